"""The part `slices` of docs/benchmarks/policy.md: one table a workload, and how the figures stand to the aims. Pure."""

from collections.abc import Sequence
from typing import Final

from shoal_bench import results, tables
from shoal_bench.policy import bound, slicing

_TITLES: Final = {
    slicing.SLICED: "Shoal",
    slicing.WHOLE: "Shoal, prompts whole",
    slicing.PEER: "sglang-router's rule",
    bound.WAITING: "bound",
    bound.PREEMPTIVE: "bound, preemptive",
}
_COLUMNS: Final = {
    "TTFT mean, s": "ttft_s_mean",
    "p50": "ttft_s_p50",
    "p99": "ttft_s_p99",
    "warm mean": "warm_ttft_s_mean",
    "cold mean": "cold_ttft_s_mean",
    "whole answer, s": "e2e_s_mean",
    "tokens/s a stream": "decode_tokens_per_s_per_user",
    "hit rate": "hit_rate",
    "prefill share": "prefill_share",
    "requests/s": "requests_per_s",
    "slices": "slices",
}
_SHARES: Final = ("hit_rate", "prefill_share")


def text(rows: Sequence[results.Row]) -> list[str]:
    mine = results.select(rows, part=slicing.PART)
    parts = []
    for workload in dict.fromkeys(str(one["workload"]) for one in mine):
        found = results.select(mine, workload=workload)
        lines = [_line(found, policy) for policy in dict.fromkeys(str(one["policy"]) for one in found)]
        parts += [f"{workload}:", tables.table(("router", "mean / bound's", *_COLUMNS), lines)]
    return [*parts, _aims(mine)]


def _line(rows: Sequence[results.Row], policy: str) -> tuple[str, ...]:
    least = results.value(rows, policy=bound.WAITING, measure="ttft_s_mean")
    mean = results.value(rows, policy=policy, measure="ttft_s_mean")
    ratio = f"{mean / least:.2f}" if mean is not None and least else tables.MISSING
    cells = [_shown(measure, results.value(rows, policy=policy, measure=measure)) for measure in _COLUMNS.values()]
    if policy in bound.NAMES:
        cells[-1] = tables.MISSING
    return (_TITLES.get(policy, policy), ratio, *cells)


def _shown(measure: str, value: float | None) -> str:
    if value is not None and measure in _SHARES:
        return f"{value:.3f}"
    return tables.number(value)


def _aims(rows: Sequence[results.Row]) -> str:
    lines = []
    for what, value, limit in slicing.aims(rows):
        least = limit < 1.0
        met = value >= limit if least else value <= limit
        lines.append((what, f"{value:.2f}", f"{'at least' if least else 'at most'} {limit:g}", "yes" if met else "no"))
    return tables.table(("aim", "reached", "asked", "met"), lines)
