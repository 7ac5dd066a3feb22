"""From the outcomes of one run to its figures, in seconds of the model. Pure.

A request that failed, or that the replay gave up, has no time to first token; how many there were is a figure beside.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from shoal_bench import results
from shoal_bench.routing import samples
from shoal_cli.replay.outcome import Ending, Outcome

UNITS: Final = {
    "ttft_s_mean": "s",
    "ttft_s_p50": "s",
    "ttft_s_p90": "s",
    "ttft_s_p99": "s",
    "ttft_s_max": "s",
    "hit_rate": "share",
    "hit_rate_bound": "share",
    "decode_tokens_per_s_per_user": "1/s",
    "decode_tokens_per_s_per_user_p10": "1/s",
    "tokens_per_gpu_minute": "1/min",
    "requests": "count",
    "failed": "count",
    "cancelled": "count",
    "retried": "count",
    "model_s": "s",
    "spread_requests": "requests",
    "spread_waiting_tokens": "tokens",
    "spread_prefill_cv": "ratio",
    "prefill_share": "share",
}
"""Every measure and its unit."""
CURVE_POINTS: Final = 200


@dataclass(frozen=True, slots=True)
class Figures:
    """`measures` has no entry for what could not be measured. `ttft_curve` are quantiles of the time to first token, at
    equal steps from the least to the greatest."""

    measures: dict[str, float]
    ttft_curve: list[float]
    errors: dict[str, int]


def figures(
    outcomes: Sequence[Outcome], taken: Sequence[samples.Sample], *, compression: float, engines: int, until_s: float
) -> Figures:
    """`until_s`: when the last request was sent, in seconds of the model."""
    done = [one for one in outcomes if one.ending is Ending.COMPLETED]
    firsts = sorted(one.ttft_s * compression for one in done if one.ttft_s is not None)
    measures: dict[str, float] = {
        "requests": sum(one.ending is not Ending.CANCELLED for one in outcomes),
        "failed": sum(one.ending in (Ending.FAILED, Ending.ERROR_EVENT) for one in outcomes),
        "cancelled": sum(one.ending is Ending.CANCELLED for one in outcomes),
        "retried": sum(one.retries > 0 for one in outcomes),
    }
    if firsts:
        measures["ttft_s_mean"] = sum(firsts) / len(firsts)
        measures["ttft_s_max"] = firsts[-1]
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            measures[f"ttft_s_{name}"] = results.percentile(firsts, share)
    measures |= _tokens(done, compression, engines)
    spread = samples.spread(taken, until_s)
    if spread is not None:
        shown = asdict(spread)
        measures["prefill_share"] = shown.pop("prefill_share")
        measures |= {f"spread_{name}": value for name, value in shown.items()}
    errors: dict[str, int] = {}
    for one in outcomes:
        if one.error:
            errors[one.error] = errors.get(one.error, 0) + 1
    return Figures(measures, _curve(firsts), errors)


def _tokens(done: Sequence[Outcome], compression: float, engines: int) -> dict[str, float]:
    made: dict[str, float] = {}
    usages = [one.usage for one in done if one.usage is not None]
    reported = [one for one in usages if one.cached_tokens is not None]
    prompt_tokens = sum(one.prompt_tokens for one in reported)
    if prompt_tokens:
        made["hit_rate"] = sum(one.cached_tokens or 0 for one in reported) / prompt_tokens
    input_tokens = sum(one.input_tokens for one in done)
    if input_tokens:
        made["hit_rate_bound"] = sum(one.bound_tokens for one in done) / input_tokens
    speeds = [
        (one.usage.completion_tokens - 1) / (one.decode_s * compression)
        for one in done
        if one.usage is not None and one.decode_s and one.usage.completion_tokens > 1
    ]
    if speeds:
        made["decode_tokens_per_s_per_user"] = results.percentile(speeds, 0.5)
        made["decode_tokens_per_s_per_user_p10"] = results.percentile(speeds, 0.1)
    if done:
        span_s = (max(one.started_s + one.total_s for one in done) - min(one.started_s for one in done)) * compression
        made["model_s"] = span_s
        total = sum(one.prompt_tokens + one.completion_tokens for one in usages)
        made["tokens_per_gpu_minute"] = total / engines / (span_s / 60.0)
    return made


def _curve(ordered: Sequence[float]) -> list[float]:
    if not ordered:
        return []
    last = len(ordered) - 1
    return [results.rounded(ordered[round(last * step / CURVE_POINTS)]) for step in range(CURVE_POINTS + 1)]
