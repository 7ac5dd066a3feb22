"""Does a replica fit its GPUs, and how many tokens of KV cache does that leave? Pure; offline as `shoal fit`.

Weights a GPU: parameters by class times bytes by format. Quantized formats keep embeddings, head, and (nvfp4, int4,
mxfp4) everything but the routed experts at 16 bits, as the published checkpoints do. Tensor parallelism shards all of
it but what attention-data groups replicate. Where the spec says `auto`, the format is read from the source's name, and
the result is an assumption: `checks` warns by it and does not refuse.

KV a token, from SGLang's pool configurator: MLA (kv_lora_rank + qk_rope_head_dim) x layers x element bytes on every
GPU, not divided by the tensor size; GQA max(1, kv_heads / attention tensor size) x 2 x head_dim x layers x element
bytes. A pipeline stage holds its layers only. A draft takes weights and layers from the same budget (`_DRAFT_LAYERS`).

Reserve, from SGLang's mem-fraction rule (0.5.23, `handle_gpu_memory_settings`), in MiB:
    512 + 1.5*max(chunked prefill, 2048) + 128*tensor*pipeline + decode graphs 2*max_bs + prefill graphs (1536 for MLA,
    8 a captured size else), attention data + (3, above 300 4.5)*max_bs*groups; at least 10240 on GPUs above 60 GiB.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from shoal_operator.domain import values

GIB: Final = 1 << 30
MIB: Final = 1 << 20
SCALES: Final = {"bf16": 2.0, "fp8": 1 + 4 / 16384, "nvfp4": 0.5 + 1 / 16, "mxfp4": 0.5 + 1 / 32, "int4": 0.5 + 2 / 32}
"""Bytes a parameter: fp8 with a float scale per 128x128 block, nvfp4 with an fp8 scale per 16, mxfp4 with one byte per
32, int4 with a 16-bit scale per 32."""
KV_ELEMENT_BYTES: Final = {"bf16": 2.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "nvfp4": 0.5 + 1 / 16}
USABLE_SHARE: Final = 0.985
"""Of the memory that the driver reports: its context and NCCL's buffers are taken before SGLang measures."""
MULTIMODAL_FACTOR: Final = 0.91
"""SGLang's own cut of the memory fraction for models with a vision tower of Kimi's size."""
MEDIAN_SESSION_TOKENS: Final = 119_000
"""Median prompt of a coding agent's turn (TraceLab)."""
_PREFILL_GRAPHS: Final = 64
_DRAFT_LAYERS: Final = {"EAGLE3": 1, "NEXTN": 1, "DFLASH": 5, "STANDALONE": 0, "NGRAM": 0}
"""Layers of the usual drafts, each counted as one of the target's in the cache. A STANDALONE draft is a model of its
own whose size is not known here."""
_NAMED_FORMATS: Final = (
    (re.compile(r"nvfp4|[-_]fp4"), "nvfp4"),
    (re.compile(r"mxfp4"), "mxfp4"),
    (re.compile(r"fp8"), "fp8"),
    (re.compile(r"int4|awq|gptq|w4a16"), "int4"),
    (re.compile(r"bf16|fp16"), "bf16"),
    (re.compile(r"kimi[-_]k2\.\d"), "int4"),
    (re.compile(r"kimi[-_]k2|deepseek[-_](v3|r1)"), "fp8"),
)
"""What a checkpoint's name says of its weights; the last two families are published in those formats."""


@dataclass(frozen=True, slots=True)
class Fit:
    """One replica on one hardware profile. Bytes are per GPU; `kv_tokens` is the whole replica's."""

    gpu: str
    gpus: int
    weight_format: str
    """Format that the weights were counted in."""
    assumed: bool
    """The spec says `auto`: the format is what the source's name suggests."""
    memory_bytes: int
    weight_bytes: int
    reserve_bytes: int
    kv_bytes: int
    kv_bytes_per_token: float
    kv_tokens: int
    context_tokens: int
    sessions_full: int
    """Sessions of full context length at once."""
    sessions_median: int
    """Sessions of the median length at once."""
    headroom_bytes: int
    """KV memory beyond one full context; negative: it does not fit."""
    remedy: str | None = None
    """The smallest change that would make it fit; None where it fits."""

    @property
    def fits(self) -> bool:
        return self.headroom_bytes >= 0


def fit_profile(
    service: values.Service, profile: values.Profile, flags: Mapping[str, values.ArgValue] | None = None
) -> Fit | None:
    """The fit of one profile; None where the model's shape is not known. `flags`: the merged engine flags, of which
    `max-running-requests`, `chunked-prefill-size` and `mem-fraction-static` move the budget."""
    if service.shape is None:
        return None
    fit = _measure(service, service.shape, profile, flags or {})
    return fit if fit.fits else replace(fit, remedy=_remedy(service, service.shape, profile, flags or {}))


def weight_format(service: values.Service) -> str:
    """The spec's format; for `auto` what the source's name says, else 16 bits."""
    if service.quantization != "auto":
        return service.quantization
    name = service.source.rstrip("/").rsplit("/", 1)[-1].lower()
    return next((form for pattern, form in _NAMED_FORMATS if pattern.search(name)), "bf16")


def weight_bytes_per_gpu(shape: values.Shape, form: str, spread: values.Parallelism) -> int:
    """With attention data each group holds all attention weights of its share."""
    attention = shape.attention_params
    rest = shape.total_params - shape.routed_expert_params - shape.embedding_params
    if attention is None:
        attention = rest
    other = rest - attention
    experts = shape.routed_expert_params * SCALES[form]
    dense_form = SCALES[form] if form == "fp8" or not shape.routed_expert_params else 2.0
    groups = spread.attention_data
    sharded = experts + other * dense_form + shape.embedding_params * 2.0
    return math.ceil((sharded + attention * dense_form * groups) / spread.gpus)


def kv_bytes_per_token(shape: values.Shape, kv_dtype: str, spread: values.Parallelism) -> float:
    """On one GPU of one pipeline stage."""
    element = KV_ELEMENT_BYTES[kv_dtype]
    layers = math.ceil(shape.layers / spread.pipeline)
    if shape.attention == "mla":
        return (shape.kv_lora_rank + shape.qk_rope_head_dim) * layers * element
    heads = max(1, shape.kv_heads // (spread.tensor // spread.attention_data))
    return heads * 2 * shape.head_dim * layers * element


def draft_bytes_per_gpu(shape: values.Shape, algorithm: str, form: str, spread: values.Parallelism) -> int:
    """An estimate: NEXTN is one more layer of the target in its own format, others dense layers at 16 bits."""
    if algorithm == "NEXTN":
        return math.ceil(shape.total_params / shape.layers * SCALES[form] / spread.gpus)
    # 16 hidden^2: attention and a feed-forward of four times the width, as drafts are built.
    return math.ceil(_DRAFT_LAYERS[algorithm] * 16 * shape.hidden**2 * 2.0 / spread.gpus)


def kv_dtype(service: values.Service) -> str:
    """What `auto` comes to: the weights' own 16 bits."""
    return "bf16" if service.kv_cache_dtype == "auto" else service.kv_cache_dtype


def reserve_bytes(
    shape: values.Shape, pool: values.Pool, spread: values.Parallelism, running_max: int, chunk_tokens: int | None
) -> int:
    """What SGLang keeps for activations and graphs on each GPU."""
    memory_mib = pool.memory_bytes / MIB
    chunk, batch = _memory_class(memory_mib, spread.tensor)
    chunk = chunk if chunk_tokens is None else max(chunk_tokens, 0)
    batch = min(batch, running_max)
    groups = spread.attention_data
    reserve = 512 + 1.5 * max(chunk, 2048) + 128 * spread.gpus + 2 * batch
    reserve += 1536 if shape.attention == "mla" else 8 * _PREFILL_GRAPHS
    if groups > 1:
        reserve += batch * groups * (4.5 if batch > 300 else 3.0)
    if memory_mib > 60 * 1024:
        reserve = max(reserve, 10 * 1024)
    return round(reserve * MIB)


def _memory_class(memory_mib: float, tensor: int) -> tuple[int, int]:
    """Chunked prefill size and largest decode graph by GPU memory, as SGLang chooses them."""
    if memory_mib < 20 * 1024:
        return 2048, 8
    if memory_mib < 35 * 1024:
        return 4096, 48 if tensor < 4 else 160
    if memory_mib < 60 * 1024:
        return 4096, 32 if tensor < 4 else 160
    if memory_mib < 160 * 1024:
        return 8192, 256 if tensor < 4 else 512
    return 16384, 512


def _measure(
    service: values.Service, shape: values.Shape, profile: values.Profile, flags: Mapping[str, values.ArgValue]
) -> Fit:
    pool, spread = profile.pool, profile.parallelism
    memory = int(pool.memory_bytes * USABLE_SHARE)
    running = _integer(flags, "max-running-requests", service.running_max)
    chunk = _integer(flags, "chunked-prefill-size", -1) if "chunked-prefill-size" in flags else None
    reserve = reserve_bytes(shape, pool, spread, running, chunk)
    fraction = (1 - reserve / pool.memory_bytes) * (MULTIMODAL_FACTOR if shape.multimodal else 1.0)
    given = flags.get("mem-fraction-static")
    if given is not None and not isinstance(given, tuple):
        fraction = float(given)
    form = weight_format(service)
    weights = weight_bytes_per_gpu(shape, form, spread)
    per_token = kv_bytes_per_token(shape, kv_dtype(service), spread)
    if service.draft is not None:
        weights += draft_bytes_per_gpu(shape, service.draft.algorithm, form, spread)
        per_token *= 1 + _DRAFT_LAYERS[service.draft.algorithm] / shape.layers
    budget = int(memory * fraction) - weights
    # Attention-data groups hold different sessions: each has its own cache of this size.
    tokens = max(0, int(budget // per_token)) * spread.attention_data
    context = service.context_tokens or MEDIAN_SESSION_TOKENS
    return Fit(
        gpu=profile.gpu,
        gpus=profile.gpus,
        weight_format=form,
        assumed=service.quantization == "auto",
        memory_bytes=memory,
        weight_bytes=weights,
        reserve_bytes=memory - int(memory * fraction),
        kv_bytes=max(0, budget),
        kv_bytes_per_token=per_token,
        kv_tokens=tokens,
        context_tokens=context,
        sessions_full=tokens // context,
        sessions_median=tokens // min(context, MEDIAN_SESSION_TOKENS),
        headroom_bytes=budget - math.ceil(context * per_token),
    )


def _integer(flags: Mapping[str, values.ArgValue], name: str, default: int) -> int:
    value = flags.get(name, default)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _remedy(
    service: values.Service, shape: values.Shape, profile: values.Profile, flags: Mapping[str, values.ArgValue]
) -> str:
    """The first of these changes, cheapest for the user first, after which it fits."""
    for changed, sentence in _changes(service, profile):
        if _measure(changed[0], shape, changed[1], flags).fits:
            return sentence
    return "choose a GPU with more memory, a smaller model, or a smaller weight format"


def _changes(
    service: values.Service, profile: values.Profile
) -> list[tuple[tuple[values.Service, values.Profile], str]]:
    changes: list[tuple[tuple[values.Service, values.Profile], str]] = []
    if kv_dtype(service) == "bf16":
        smaller = replace(service, kv_cache_dtype="fp8_e4m3")
        changes.append(((smaller, profile), "set model.kvCacheDtype to fp8_e4m3"))
    context = service.context_tokens or MEDIAN_SESSION_TOKENS
    for divisor in (2, 4, 8):
        shorter = replace(service, context_tokens=context // divisor)
        changes.append(((shorter, profile), f"set model.contextLength to {context // divisor} or less"))
    spread = profile.parallelism
    gpus = profile.gpus * 2
    while gpus <= profile.pool.gpus_per_node:
        wider = replace(profile, gpus=gpus, parallelism=replace(spread, tensor=gpus // spread.pipeline))
        changes.append(((service, wider), f"set gpusPerReplica to {gpus} for {profile.gpu}"))
        gpus *= 2
    formats = ["fp8", "nvfp4"] if profile.pool.sm >= 100 else ["fp8", "int4"]
    size = SCALES[weight_format(service)]
    for form in formats:
        if SCALES[form] < size:
            quantized = replace(service, quantization=form)  # type: ignore[arg-type]
            changes.append(((quantized, profile), f"serve a checkpoint in {form} (model.quantization: {form})"))
    return changes
