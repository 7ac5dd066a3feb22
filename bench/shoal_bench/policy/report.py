"""From rows to the generated part of docs/benchmarks/policy.md, and to the sweep's picture. Pure but for `picture`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from shoal_bench import plots, results, tables
from shoal_bench.policy import bound, constants, report_slices, scenarios, slicing

COMMAND: Final = "make bench-policy"
OURS: Final = "price_and_hold"
PUBLISHED_STUDY: Final[Mapping[str, Mapping[str, str]]] = {
    "study-mooncake-x1.0": {
        "cache_aware": "3.37 / 1.68 / 23.5",
        "greedy": "1.90 / 1.09 / 14.3",
        OURS: "1.62 / - / 16.4",
        slicing.WHOLE: "1.63 / 0.80 / 14.3",
        bound.WAITING: "1.47 / - / 14.0",
        bound.PREEMPTIVE: "1.43 / - / 15.6",
    },
    "study-mooncake-x1.6": {
        "cache_aware": "7.85 / 5.43 / 35.3",
        "greedy": "10.31 / 9.72 / 26.1",
        OURS: "2.18 / - / 21.5",
        slicing.WHOLE: "2.47 / 1.29 / 20.8",
        bound.WAITING: "2.00 / - / 18.4",
        bound.PREEMPTIVE: "1.73 / - / 23.7",
    },
    "study-agents-80": {
        "cache_aware": "2.64 / 0.14 / 54.8",
        "greedy": "2.11 / 0.16 / 61.3",
        OURS: "0.94 / - / 13.2",
        slicing.WHOLE: "1.57 / - / 20.2",
        bound.WAITING: "0.84 / - / 13.1",
        bound.PREEMPTIVE: "0.77 / - / 11.6",
    },
}
"""Mean / p50 / p99 of TTFT in seconds, as the routing study gave them; its bound's p50 it did not."""
ROUTERS: Final = {
    OURS: "shoal",
    "cache_aware": "sglang-router",
    "least_loaded": "least-loaded",
    "round_robin": "round-robin",
}
"""Policies here, and the routers with processes that they stand for."""
COMPARED: Final = (
    *("ttft_s_mean", "ttft_s_p50", "ttft_s_p90", "ttft_s_p99", "hit_rate", "decode_tokens_per_s_per_user"),
    *("tokens_per_gpu_minute", "spread_prefill_cv", "prefill_share"),
)


def text(rows: Sequence[results.Row], real: Sequence[results.Row], machine: Mapping[str, str]) -> str:
    """`real`: rows of docs/benchmarks/routing.json, empty where there are none."""
    parts = [f"Machine: {results.describe(machine)}"]
    if results.select(rows, part="study"):
        parts += ["### The routing study with production code", *_study(rows)]
    if results.select(rows, part=slicing.PART):
        parts += ["### Slices and the bound", *report_slices.text(rows)]
    if results.select(rows, part="sweep"):
        parts += ["### Constants", *_sweep(rows)]
    if results.select(rows, part="check"):
        parts += ["### Against real processes", _check(rows, real)]
    return "\n\n".join(parts)


def _study(rows: Sequence[results.Row]) -> list[str]:
    parts = []
    for study in scenarios.STUDIES:
        mine = results.select(rows, part="study", workload=study.name)
        if not mine:
            continue
        base = results.value(mine, policy="cache_aware", measure="ttft_s_mean")
        lines = []
        for policy in dict.fromkeys(str(one["policy"]) for one in mine):
            found = {name: results.value(mine, policy=policy, measure=name) for name in _STUDY_MEASURES}
            mean = found["ttft_s_mean"]
            ratio = f"{mean / base:.2f}" if mean is not None and base else tables.MISSING
            shown = [_shown(name, value) for name, value in found.items()]
            known = PUBLISHED_STUDY.get(study.name, {}).get(policy, tables.MISSING)
            lines.append((policy, *shown, ratio, known))
        head = (
            "policy",
            "TTFT mean, s",
            "p50",
            "p90",
            "p99",
            "hit rate",
            "mean / cache_aware's",
            "study: mean / p50 / p99",
        )
        parts += [f"{study.title}:", tables.table(head, lines)]
    return parts


_STUDY_MEASURES: Final = ("ttft_s_mean", "ttft_s_p50", "ttft_s_p90", "ttft_s_p99", "hit_rate")


def _sweep(rows: Sequence[results.Row]) -> list[str]:
    sweep = results.select(rows, part="sweep")
    workloads = list(dict.fromkeys(str(one["workload"]) for one in sweep))
    head = (
        "constant",
        "value",
        *(f"{name}: mean, s" for name in workloads),
        *(f"{name}: p99, s" for name in workloads),
    )
    lines = []
    for constant in constants.CONSTANTS:
        for value in constant.values:
            default = value == constant.default
            cells = [
                _pair(swept(sweep, workload, constant, value, measure))
                for measure in ("ttft_s_mean", "ttft_s_p99")
                for workload in workloads
            ]
            lines.append((constant.name, f"**{value:g}**" if default else f"{value:g}", *cells))
    return [tables.table(head, lines), "Defaults in bold. In brackets the least and the greatest of the seeds."]


def swept(
    sweep: Sequence[results.Row], workload: str, constant: constants.Constant, value: float, measure: str
) -> results.Row | None:
    """The row of a value; the default's is that of the run that changed nothing."""
    own = {} if value == constant.default else {"constant": constant.name, "setting": value}
    found = [
        one
        for one in results.select(sweep, workload=workload, measure=measure)
        if all(one.get(key) == own.get(key) for key in ("constant", "setting"))
    ]
    return found[0] if found else None


def _pair(row: results.Row | None) -> str:
    if row is None:
        return tables.MISSING
    shown = tables.number(row["value"])
    return f"{shown} ({tables.number(row['min'])} to {tables.number(row['max'])})" if "min" in row else shown


def _check(rows: Sequence[results.Row], real: Sequence[results.Row]) -> str:
    check = results.select(rows, part="check")
    lines = []
    for workload in dict.fromkeys(str(one["workload"]) for one in check):
        for policy, router in ROUTERS.items():
            for measure in COMPARED:
                simulated = results.value(check, workload=workload, policy=policy, measure=measure)
                runs = [
                    float(one["value"])
                    for one in results.select(real, workload=workload, router=router, measure=measure)
                ]
                if simulated is None or not runs:
                    continue
                found = results.summarise(runs).median
                apart = f"{simulated / found - 1:+.0%}" if found else tables.MISSING
                lines.append((workload, router, measure, _shown(measure, found), _shown(measure, simulated), apart))
    head = ("workload", "router", "measure", "with processes", "in virtual time", "apart")
    return tables.table(head, lines) if lines else "No run with processes of these workloads is published."


def _shown(measure: str, value: float | None) -> str:
    if value is None:
        return tables.MISSING
    return f"{value:.3f}" if measure in ("hit_rate", "prefill_share") else tables.number(value)


def picture(path: Path, rows: Sequence[results.Row]) -> None:
    """For each constant, mean TTFT relative to the default's, by value and workload."""
    sweep = results.select(rows, part="sweep")
    workloads = list(dict.fromkeys(str(one["workload"]) for one in sweep))
    shown = [one for one in constants.CONSTANTS if len(one.values) > 2]
    made, axes = plots.figure(rows=(len(shown) + 1) // 2, columns=2, width=4.2, height=2.3)
    for place, constant in enumerate(shown):
        lines = {}
        for workload in workloads:
            default = swept(sweep, workload, constant, constant.default, "ttft_s_mean")
            points = [
                (x, swept(sweep, workload, constant, value, "ttft_s_mean")) for x, value in enumerate(constant.values)
            ]
            if default is not None:
                known = [(float(x), row["value"] / default["value"]) for x, row in points if row is not None]
                lines[workload] = ([x for x, _ in known], [y for _, y in known])
        plots.draw_lines(axes[place], constant.name, lines, y_label="mean TTFT / default's")
        axes[place].set_xticks(range(len(constant.values)), [f"{value:g}" for value in constant.values])
        if place:
            legend = axes[place].get_legend()
            if legend is not None:
                legend.remove()
    for unused in axes[len(shown) :]:
        unused.set_visible(False)
    plots.save(made, path)
