"""Figures of one run, from what clients saw and from counters of engine and router. Pure.

Only requests sent in the measured time count; a figure without samples has no entry. Called by `runs`.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from shoal_bench import results
from shoal_bench.slicing.engine import Counters
from shoal_bench.slicing.play import Played, Sent
from shoal_bench.slicing.routers import SliceCounters

UNITS: Final[Mapping[str, str]] = {
    "warm_ttft_s_mean": "s",
    "warm_ttft_s_p50": "s",
    "warm_ttft_s_p90": "s",
    "warm_ttft_s_p99": "s",
    "warm_ttft_s_max": "s",
    "silence_s_max": "s",
    "silences_300ms": "1",
    "warm_tokens_per_s": "1/s",
    "cold_ttft_s_mean": "s",
    "cold_ttft_s_p50": "s",
    "cold_ttft_s_max": "s",
    "cold_silence_s_max": "s",
    "turns": "1",
    "cold_prompts": "1",
    "failures": "1",
    "slices": "1",
    "sliced_prompts": "1",
    "slice_failures": "1",
    "slice_added_s": "s",
    "slice_saved_s": "s",
    "output_tokens_per_s": "1/s",
    "prefill_tokens": "1",
    "engine_prefill_share": "1",
    "engine_busy_share": "1",
}
"""Measure and unit, in the order of rows."""
CHAT: Final = "chat_"
"""Before the names of measures of the chat load."""
SILENCE_S: Final = 0.3
CURVE_POINTS: Final = 100


def figures(
    played: Played, before: Counters, after: Counters, sliced: SliceCounters | None, elapsed_s: float
) -> dict[str, float]:
    """`before` and `after`: the engine's counters at the start of the measured time and after the last answer,
    `elapsed_s` apart; `sliced`: what a router that slices has counted since."""
    warm = [one for one in played.sent if not one.cold]
    cold = [one for one in played.sent if one.cold]
    made: dict[str, float] = {
        "turns": sum(one.answer.error is None for one in warm),
        "cold_prompts": sum(one.answer.error is None for one in cold),
        "failures": sum(one.answer.error is not None for one in (*played.lead_in, *played.sent)),
    }
    made |= _ttft("warm", warm, (0.5, 0.9, 0.99)) | _ttft("cold", cold, (0.5,))
    silences = gaps(warm)
    if silences:
        made |= {"silence_s_max": max(silences), "silences_300ms": sum(one > SILENCE_S for one in silences)}
    if cold_silences := gaps(cold):
        made["cold_silence_s_max"] = max(cold_silences)
    if rates := _rates(warm):
        made["warm_tokens_per_s"] = results.percentile(rates, 0.5)
    made["output_tokens_per_s"] = _tokens_in_time(played) / played.load.measured_s
    made |= _engine(before, after, elapsed_s)
    return made | (sliced.figures() if sliced is not None else {})


def ttfts(sent: Sequence[Sent]) -> list[float]:
    """From sending to the first token, of good answers, in order of size."""
    return sorted(one.answer.token_s[0] - one.answer.sent_s for one in sent if one.answer.error is None)


def gaps(sent: Sequence[Sent]) -> list[float]:
    """Between two token events of one stream; also of streams that broke."""
    return [after - before for one in sent for before, after in pairwise(one.answer.token_s)]


def curve(values: Sequence[float]) -> list[float]:
    """Quantiles of ordered values, from the least to the greatest."""
    last = len(values) - 1
    return (
        [results.rounded(values[round(last * step / CURVE_POINTS)]) for step in range(CURVE_POINTS + 1)]
        if values
        else []
    )


def _ttft(kind: str, sent: Sequence[Sent], shares: Sequence[float]) -> dict[str, float]:
    found = ttfts(sent)
    if not found:
        return {}
    made = {f"{kind}_ttft_s_mean": sum(found) / len(found), f"{kind}_ttft_s_max": found[-1]}
    return made | {f"{kind}_ttft_s_p{share * 100:.0f}": results.percentile(found, share) for share in shares}


def _rates(sent: Sequence[Sent]) -> list[float]:
    """Tokens a second that a user sees after the first."""
    found = []
    for one in sent:
        times, tokens = one.answer.token_s, one.answer.output_tokens or 0
        if one.answer.error is None and tokens > 1 and times[-1] > times[0]:
            found.append((tokens - 1) / (times[-1] - times[0]))
    return found


def _tokens_in_time(played: Played) -> float:
    """Token events within the measured time, of whatever request: one token each unless an engine bundles them."""
    everything = (*played.lead_in, *played.sent)
    return float(sum(played.began_s <= at < played.until_s for one in everything for at in one.answer.token_s))


def _engine(before: Counters, after: Counters, elapsed_s: float) -> dict[str, float]:
    made = {}
    if before.prefill_busy_s is not None and after.prefill_busy_s is not None:
        made["engine_prefill_share"] = (after.prefill_busy_s - before.prefill_busy_s) / elapsed_s
    if before.idle_s is not None and after.idle_s is not None:
        made["engine_busy_share"] = 1.0 - (after.idle_s - before.idle_s) / elapsed_s
    if before.prefill_tokens is not None and after.prefill_tokens is not None:
        made["prefill_tokens"] = after.prefill_tokens - before.prefill_tokens
    return made
