"""Timing and memory of simulated models: data in data/profiles.json, each entry with the source of its numbers.

    prefill step = max(floor, base + sum over requests of token * n + attention * n * (p + n / 2))
    decode step  = base + sqrt_batch * sqrt(B) + batch * B + kv_token * (KV tokens of the batch)
    reception    = request + id or text_token * (all tokens of the prompt), one request at a time, + latency

n are tokens computed in the step, p tokens of the same request already in the cache, B requests in the batch.
With speculation a step verifies B * d tokens (d = draft tokens) and pays for drafting them; see `decode_s`.
"""

import json
import math
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

FALLBACK: Final = "tiny"
GPU_DEFAULT: Final = "b200"

DRAFT_STEP_RATIO: Final = 0.06
"""Assumed cost of one draft step, as a share of the target's decode base: a draft layer or two out of about 60."""


@dataclass(frozen=True, slots=True)
class PrefillTiming:
    base_s: float
    token_s: float
    attention_s: float
    floor_s: float
    prepare_s: float = 0.0
    """Of a step that nothing ran before, so that it could not be prepared meanwhile."""


@dataclass(frozen=True, slots=True)
class DecodeTiming:
    base_s: float
    sqrt_batch_s: float
    batch_s: float
    kv_token_s: float


@dataclass(frozen=True, slots=True)
class ReceptionTiming:
    """Of one request before the scheduler sees it; `latency_s` holds up nobody else. Zeros: not measured."""

    request_s: float = 0.0
    id_s: float = 0.0
    """A token of a prompt given as ids."""
    text_token_s: float = 0.0
    """A token of a prompt given as text."""
    latency_s: float = 0.0

    def faster(self, factor: float) -> "ReceptionTiming":
        return ReceptionTiming(*(getattr(self, name) / factor for name in self.__dataclass_fields__))


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one GPU. The KV pool is gpu_bytes * fraction - weight_bytes; kv_token_bytes is for a 16-bit cache."""

    gpu_bytes: int
    weight_bytes: int
    fraction: float
    kv_token_bytes: int

    def kv_tokens(self, fraction: float | None, kv_bytes_ratio: float) -> int:
        budget = self.gpu_bytes * (self.fraction if fraction is None else fraction) - self.weight_bytes
        return max(0, int(budget / (self.kv_token_bytes * kv_bytes_ratio)))


@dataclass(frozen=True, slots=True)
class Profile:
    name: str
    source: str
    gpu: str
    gpu_name: str | None
    tp_size: int
    match: tuple[str, ...]
    model_type: str
    architecture: str
    prefill: PrefillTiming
    decode: DecodeTiming
    memory: Memory
    context_length: int
    chunked_prefill_size: int
    load_s: float
    warmup_s: float
    reception: ReceptionTiming = ReceptionTiming()

    def prefill_s(self, pieces: list[tuple[int, int]]) -> float:
        """Duration of one prefill step; each piece is (tokens computed, tokens before them)."""
        timing = self.prefill
        work = sum(n * (timing.token_s + timing.attention_s * (p + n / 2)) for n, p in pieces)
        return max(timing.floor_s, timing.base_s + work)

    def decode_s(self, batch: int, kv_tokens: int, draft_steps: int = 0, draft_tokens: int = 1) -> float:
        """Duration of one decode step. Speculation runs `draft_steps` of the draft, then verifies `draft_tokens`
        tokens a request at once: the terms for the batch see that many more tokens, the KV is read once."""
        timing = self.decode
        verified = batch * draft_tokens
        return (
            timing.base_s * (1 + DRAFT_STEP_RATIO * draft_steps)
            + timing.sqrt_batch_s * math.sqrt(verified)
            + timing.batch_s * verified
            + timing.kv_token_s * kv_tokens
        )


def load_profiles() -> dict[str, Profile]:
    raw = json.loads(resources.files("shoal_sim").joinpath("data/profiles.json").read_bytes())
    return {name: _profile(name, entry) for name, entry in raw.items()}


def choose(profiles: dict[str, Profile], model_path: str, gpu: str, tp_size: int) -> Profile:
    """The profile for a model on a GPU type; `tiny` for a model that none is measured for."""
    model = model_path.lower()
    fitting = [p for p in profiles.values() if any(word in model for word in p.match)]
    if not fitting:
        return profiles[FALLBACK]
    return min(fitting, key=lambda p: (p.gpu != gpu, abs(p.tp_size - tp_size)))


def _profile(name: str, entry: dict[str, Any]) -> Profile:
    fields = dict(entry)
    return Profile(
        name=name,
        prefill=PrefillTiming(**fields.pop("prefill")),
        decode=DecodeTiming(**fields.pop("decode")),
        memory=Memory(**fields.pop("memory")),
        reception=ReceptionTiming(**fields.pop("reception", {})),
        match=tuple(fields.pop("match")),
        **fields,
    )
