"""Profiles: their data is whole, and their formulas give back what was measured."""

import pytest

from shoal_sim import profiles
from shoal_sim.arrivals import Arrivals
from shoal_sim.profiles import Profile
from shoal_sim.prompt import Prompt
from shoal_sim.request import Limits, Request, Signal
from shoal_sim.speculation import Speculation, from_flags

PROFILES = profiles.load_profiles()
MS = 1e-3

# uncached, cached tokens, measured TTFT in seconds: one H200, the 8B shape.
LLAMA_TTFT = [
    *((512, 0, 0.0193), (1024, 0, 0.0294), (8192, 0, 0.2140), (65536, 0, 3.3207), (120000, 0, 8.9631)),
    *((1664, 14720, 0.0757), (16384, 16384, 0.7200), (64, 16320, 0.0217)),
]
# streams, context, measured inter-token latency in seconds.
LLAMA_ITL = [(1, 1104, 4.66), (16, 1104, 5.29), (128, 1104, 10.09), (16, 16432, 12.32), (8, 65584, 19.90)]
KIMI_B200_TPOT = [(1, 1024, 5.1), (8, 1024, 7.5), (64, 8192, 17.6), (128, 65536, 61.8)]


def near(got: float, want: float, share: float) -> bool:
    return abs(got / want - 1) <= share


@pytest.mark.parametrize("name", PROFILES)
def test_profile_is_whole_and_says_where_it_is_from(name: str) -> None:
    profile = PROFILES[name]
    assert len(profile.source) > 20
    assert profile.prefill_s([(1000, 0)]) > 0
    assert profile.decode_s(1, 1000) > 0
    assert profile.memory.kv_tokens(None, 1.0) > profile.context_length
    assert profile.chunked_prefill_size % 64 == 0


@pytest.mark.parametrize(("uncached", "cached", "want_s"), LLAMA_TTFT)
def test_measured_first_token_of_the_8b_model(uncached: int, cached: int, want_s: float) -> None:
    """Alone: it is read, its step is prepared, its chunks are computed."""
    profile = PROFILES["llama-8b-h200"]
    arrivals = Arrivals(profile.reception, overlap=True)
    tokens = cached + uncached
    here_s = arrivals.add(Request("r", Prompt(b"four" * tokens, 64), Limits(), Signal()), text=False, now_s=5.0) - 5.0
    chunk = profile.chunked_prefill_size
    starts = range(cached, tokens, chunk)
    chunks_s = sum(profile.prefill_s([(min(chunk, tokens - start), start)]) for start in starts)
    assert near(here_s + profile.prefill.prepare_s + chunks_s, want_s, 0.11)


@pytest.mark.parametrize(("streams", "context", "want_ms"), LLAMA_ITL)
def test_measured_decode_of_the_8b_model(streams: int, context: int, want_ms: float) -> None:
    assert near(PROFILES["llama-8b-h200"].decode_s(streams, streams * context), want_ms * MS, 0.02)


def test_measured_pool_of_the_8b_model() -> None:
    assert near(PROFILES["llama-8b-h200"].memory.kv_tokens(None, 1.0), 857_600, 0.01)


@pytest.mark.parametrize(("batch", "context", "want_ms"), KIMI_B200_TPOT)
def test_decode_of_kimi_on_b200(batch: int, context: int, want_ms: float) -> None:
    assert near(PROFILES["kimi-k2.5-b200"].decode_s(batch, batch * context), want_ms * MS, 0.10)


@pytest.mark.parametrize(
    ("name", "tokens", "prefix", "want_ms"),
    [
        ("kimi-k2.5-h200", 131072, 0, 35936),
        ("kimi-k2.5-h200", 4096, 126976, 2082),
        ("deepseek-v3-h200", 32768, 0, 2698),
        ("deepseek-v3-b200", 131072, 0, 5034),
    ],
)
def test_prefill_of_large_models(name: str, tokens: int, prefix: int, want_ms: float) -> None:
    assert near(PROFILES[name].prefill_s([(tokens, prefix)]), want_ms * MS, 0.22)


def test_halving_the_cache_type_doubles_the_pool() -> None:
    memory = PROFILES["kimi-k2.5-b200"].memory
    assert near(memory.kv_tokens(None, 0.5), 2 * memory.kv_tokens(None, 1.0), 0.001)


@pytest.mark.parametrize(
    ("path", "gpu", "tp", "want"),
    [
        ("moonshotai/Kimi-K2.5", "h200", 8, "kimi-k2.5-h200"),
        ("/models/nvidia/Kimi-K2-Instruct-NVFP4", "b200", 4, "kimi-k2.5-b200-tp4"),
        ("/models/nvidia/Kimi-K2-Instruct-NVFP4", "b200", 8, "kimi-k2.5-b200"),
        ("deepseek-ai/DeepSeek-V3", "b300", 8, "deepseek-v3-b300"),
        ("meta-llama/Meta-Llama-3-8B", "b200", 1, "llama-8b-h200"),
        ("/models/unheard-of", "b200", 8, "tiny"),
    ],
)
def test_profile_is_chosen_by_model_gpu_and_width(path: str, gpu: str, tp: int, want: str) -> None:
    assert profiles.choose(PROFILES, path, gpu, tp).name == want


def mean_accepted(speculation: Speculation) -> float:
    counts = [speculation.accepted("rid", step) for step in range(4000)]
    assert min(counts) >= 1
    assert max(counts) <= speculation.draft_tokens
    assert counts == [speculation.accepted("rid", step) for step in range(4000)]
    return sum(counts) / len(counts)


def test_accepted_lengths_follow_the_probability() -> None:
    speculation = from_flags("EAGLE3", 3, 4, None)
    assert speculation is not None
    p = speculation.accept_probability
    assert near(mean_accepted(speculation), 1 + p + p**2 + p**3, 0.03)


def test_accepted_lengths_follow_the_engines_test_knob() -> None:
    speculation = from_flags("NEXTN", None, None, 2.5)
    assert speculation is not None
    assert near(mean_accepted(speculation), 2.5, 0.03)


def test_speculation_pays_when_it_accepts() -> None:
    kimi: Profile = PROFILES["kimi-k2.5-b200"]
    speculation = from_flags("EAGLE3", 3, 4, None)
    assert speculation is not None
    step = kimi.decode_s(4, 4 * 8192, speculation.draft_steps, speculation.draft_tokens)
    assert step > kimi.decode_s(4, 4 * 8192)
    assert step / mean_accepted(speculation) < kimi.decode_s(4, 4 * 8192)
