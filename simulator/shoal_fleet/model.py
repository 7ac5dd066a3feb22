"""What an engine of the fleet is: its timing, its KV cache and its limits; and the constants that a router starts from.

Profiles are the engine simulator's (`shoal_sim.profiles`); `study` makes the timing of the routing study, whose prefill
of n tokens after p cached ones takes 0.02 + n/R * (1 + (p + n)/200,000) seconds and whose decode step takes
0.012 + 0.0006 * B.
"""

from dataclasses import dataclass, replace

from shoal_api import routes
from shoal_sim import policy, profiles

STUDY_OVERHEAD_S = 0.02
STUDY_SLOWDOWN_TOKENS = 200_000.0
STUDY_STEP_S = 0.012
STUDY_STEP_BATCH_S = 0.0006
RUNNING_MAX = 256
PAGE_TOKENS = 64


class StudyProfile(profiles.Profile):
    """The routing study's prefill: a prompt slows down with its whole length, not with half of it."""

    __slots__ = ()

    def prefill_s(self, pieces: list[tuple[int, int]]) -> float:
        timing = self.prefill
        return timing.base_s + sum(n * (timing.token_s + timing.attention_s * (p + n)) for n, p in pieces)


@dataclass(frozen=True, slots=True)
class EngineModel:
    """One engine, as its command line and its hardware make it."""

    profile: profiles.Profile
    kv_tokens: int
    page_tokens: int = PAGE_TOKENS
    running_max: int = RUNNING_MAX
    chunk_tokens: int | None = 8192
    """None: a prompt is computed in one step, however long it is."""
    prefill_requests_max: int | None = None
    """Prompts that one step computes together."""
    mixed_chunk: bool = False
    """Decode goes on within prefill steps."""
    overlap: bool = True
    """Steps are prepared while the one before runs: see `shoal_sim.arrivals`."""
    fluid: bool = False
    """Decode beside prefill, undisturbed: `shoal_fleet.fluid` instead of the scheduler."""
    load_s: float = 0.0
    """From the decision to start it until it is ready."""

    def scheduling(self) -> policy.Policy:
        """The scheduler's share of the command line."""
        return policy.Policy(
            page_tokens=self.page_tokens,
            max_running=self.running_max,
            chunk_tokens=self.chunk_tokens,
            prefill_max_requests=self.prefill_requests_max,
            mixed_chunk=self.mixed_chunk,
        )

    def router_timing(self) -> routes.Timing:
        """The profile in the form that route tables have; what the form cannot say, routers learn."""
        prefill, decode, reception = self.profile.prefill, self.profile.decode, self.profile.reception
        # The table has no term linear in the batch: exact at 16 running requests.
        return routes.Timing(
            a_s=prefill.base_s + prefill.prepare_s + reception.request_s + reception.latency_s,
            b_s=prefill.token_s,
            c_s=prefill.attention_s,
            alpha_s=decode.base_s,
            beta_s=decode.sqrt_batch_s + 4 * decode.batch_s,
            gamma_s=decode.kv_token_s,
        )


def study(prefill_tokens_per_s: float, kv_tokens: int, page_tokens: int = PAGE_TOKENS) -> EngineModel:
    """The study's engine. The profiles `study-8k` and `study-15k` are its timing under SGLang's scheduler."""
    token_s = 1.0 / prefill_tokens_per_s
    base = profiles.load_profiles()[profiles.FALLBACK]
    profile = StudyProfile(
        **{
            **{name: getattr(base, name) for name in base.__dataclass_fields__},
            "name": f"study-{prefill_tokens_per_s:g}",
            "source": "the routing study's formulas",
            "prefill": profiles.PrefillTiming(STUDY_OVERHEAD_S, token_s, token_s / STUDY_SLOWDOWN_TOKENS, 0.0),
            "decode": profiles.DecodeTiming(STUDY_STEP_S, 0.0, STUDY_STEP_BATCH_S, 0.0),
        }
    )
    return EngineModel(profile, kv_tokens, page_tokens, chunk_tokens=None, prefill_requests_max=1, fluid=True)


def simulated(name: str, kv_tokens: int | None = None, page_tokens: int = PAGE_TOKENS) -> EngineModel:
    """An engine with one of the simulator's profiles. Raises KeyError for a name that is none."""
    profile = profiles.load_profiles()[name]
    tokens = profile.memory.kv_tokens(None, 1.0) if kv_tokens is None else kv_tokens
    return EngineModel(
        profile,
        tokens // page_tokens * page_tokens,
        page_tokens=page_tokens,
        chunk_tokens=profile.chunked_prefill_size,
        load_s=profile.load_s + profile.warmup_s,
    )


def faster(engine: EngineModel, factor: float) -> EngineModel:
    """The same engine with the duration of everything that a request needs divided."""
    prefill, decode = engine.profile.prefill, engine.profile.decode
    profile = replace(
        engine.profile,
        prefill=profiles.PrefillTiming(*(getattr(prefill, name) / factor for name in prefill.__dataclass_fields__)),
        decode=profiles.DecodeTiming(*(getattr(decode, name) / factor for name in decode.__dataclass_fields__)),
        reception=engine.profile.reception.faster(factor),
    )
    return replace(engine, profile=profile)
