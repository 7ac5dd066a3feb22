"""From records to rows, and from rows to the tables of docs/benchmarks/routing.md. Pure.

Tables show medians over the runs made; where there are several, the least and the greatest beside. For `__main__`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from shoal_bench import results, tables
from shoal_bench.routing import measures, targets
from shoal_bench.routing.routers import ROUTERS
from shoal_bench.routing.runs import Record
from shoal_bench.routing.workloads import Workload

COMMAND: Final = "make bench-routing"
_COLUMNS: Final[Sequence[tuple[str, str, bool]]] = (
    ("TTFT mean", "ttft_s_mean", True),
    ("p50", "ttft_s_p50", False),
    ("p90", "ttft_s_p90", False),
    ("p99", "ttft_s_p99", True),
    ("hit rate", "hit_rate", False),
    ("tokens/s a user", "decode_tokens_per_s_per_user", False),
    ("of the slowest tenth", "decode_tokens_per_s_per_user_p10", False),
    ("k tokens/GPU/min", "tokens_per_gpu_minute", False),
    ("prefill CV", "spread_prefill_cv", False),
    ("queue spread, tokens", "spread_waiting_tokens", False),
    ("requests", "requests", False),
    ("failed", "failed", False),
)
"""Heading, measure, and whether the spread over runs is shown."""
STRAINED_SHARE: Final = 0.7
"""Of the machine, or of one core for the router and the client: beyond it a run says something about the machine."""
DAGGER: Final = " †"
_COUNTED: Final = ("machine", "router", "client")


def rows(records: Sequence[Record]) -> list[results.Row]:
    """In the form of docs/benchmarks/routing.json."""
    return [
        {
            "workload": record.workload,
            "router": record.router,
            "measure": measure,
            "value": results.rounded(record.figures.measures[measure]),
            "unit": unit,
            "run": record.run,
        }
        for record in records
        for measure, unit in measures.UNITS.items()
        if measure in record.figures.measures
    ]


Key = tuple[str, str, str]


def samples(found: Sequence[results.Row]) -> dict[Key, list[float]]:
    """Values over runs by workload, router and measure."""
    made: dict[Key, list[float]] = {}
    for row in found:
        made.setdefault((row["workload"], row["router"], row["measure"]), []).append(float(row["value"]))
    return made


def medians(found: Mapping[Key, Sequence[float]]) -> dict[Key, float]:
    return {key: results.summarise(values).median for key, values in found.items()}


def text(records: Sequence[Record], workloads: Mapping[str, Workload], machine: Mapping[str, str]) -> str:
    """The generated part of the document."""
    found = samples(rows(records))
    parts = [f"Machine: {results.describe(machine)}", "### Targets", _verdicts(medians(found))]
    for name, workload in workloads.items():
        if any(record.workload == name for record in records):
            table = _workload_table(name, found, strained(records, name))
            parts += [f"### {workload.title} (`{name}`)", table, _about(name, workload, found)]
    parts += ["### Routers", _routers(records), "### What the machine did", _machine_table(records, workloads)]
    return "\n\n".join(parts)


def _verdicts(found: Mapping[Key, float]) -> str:
    lines = []
    for verdict in targets.judge(found):
        target = verdict.target
        against = f" ({verdict.peer})" if target.against == targets.BEST_PEER else ""
        lines.append(
            (
                target.workload,
                _heading(target.measure),
                target.text() + against,
                tables.number(verdict.ours),
                tables.number(verdict.theirs),
                f"{verdict.figure:.2f}",
                "hit" if verdict.hit else "**missed**",
            )
        )
    head = ("workload", "measure", "target", "Shoal", "theirs", "ratio or difference", "")
    return tables.table(head, lines) if lines else "Not all of what the targets compare was run."


def _heading(measure: str) -> str:
    return {"ttft_s_mean": "mean TTFT, s", "ttft_s_p99": "p99 TTFT, s", "hit_rate": "hit rate"}.get(measure, measure)


def strained(records: Sequence[Record], workload: str) -> set[str]:
    """Routers with a run in which the machine, the router or the client was too busy."""
    return {
        one.router
        for one in records
        if one.workload == workload and max(one.cpu[part] for part in _COUNTED) > STRAINED_SHARE
    }


def _workload_table(workload: str, found: Mapping[Key, Sequence[float]], busy: Collection[str]) -> str:
    lines = []
    for name in ROUTERS:
        runs = found.get((workload, name, "requests"))
        if runs is None:
            continue
        cells = [_cell(measure, found.get((workload, name, measure)), spread) for _, measure, spread in _COLUMNS]
        lines.append((name + DAGGER * (name in busy), *cells, str(len(runs))))
    return tables.table(("router", *(heading for heading, _, _ in _COLUMNS), "runs"), lines)


def _cell(measure: str, values: Sequence[float] | None, spread: bool) -> str:
    if not values:
        return tables.MISSING
    shown = _SHOWN.get(measure, tables.number)
    found = results.summarise(values)
    text = shown(found.median)
    return f"{text} ({shown(found.low)} to {shown(found.high)})" if spread and found.count > 1 else text


def _thousands(value: float) -> str:
    return tables.number(value / 1000.0)


def _two_places(value: float) -> str:
    return f"{value:.2f}"


def _three_places(value: float) -> str:
    return f"{value:.3f}"


_SHOWN: Final[Mapping[str, Callable[[float], str]]] = {
    "tokens_per_gpu_minute": _thousands,
    "hit_rate": _three_places,
    "spread_prefill_cv": _two_places,
    "ttft_s_mean": _two_places,
    "ttft_s_p50": _two_places,
}


def _about(name: str, workload: Workload, found: Mapping[Key, Sequence[float]]) -> str:
    bound = found.get((name, "shoal", "hit_rate_bound"))
    busy = {router: found.get((name, router, "prefill_share")) for router in ROUTERS}
    shares = ", ".join(
        f"{router} {results.summarise(values).median:.0%}" for router, values in busy.items() if values is not None
    )
    engines = workload.engines
    words = [
        f"{engines.count} engines of profile `{engines.profile}` with caches of {engines.kv_tokens:,} tokens;",
        f"time compressed {workload.compression:g} times.",
        f"Prefill took so much of the engines' time: {shares}.",
    ]
    if bound:
        words.append(f"Infinite caches would hit {results.summarise(bound).median:.3f} of what Shoal was sent.")
    return " ".join(words)


def _routers(records: Sequence[Record]) -> str:
    used = {record.router for record in records}
    return tables.table(
        ("name", "program and policy"), [(name, one.title()) for name, one in ROUTERS.items() if name in used]
    )


def _machine_table(records: Sequence[Record], workloads: Mapping[str, Workload]) -> str:
    lines = []
    for name in workloads:
        for router in ROUTERS:
            cpu = [one.cpu for one in records if one.workload == name and one.router == router]
            if cpu:
                worst = {part: max(one[part] for one in cpu) for part in ("machine", "router", "engines", "client")}
                strained = any(worst[part] > STRAINED_SHARE for part in ("machine", "router", "client"))
                lines.append((name, router, *(f"{worst[part]:.0%}" for part in worst), "yes" if strained else "no"))
    head = (
        "workload",
        "router",
        "all cores",
        "router, of a core",
        "engines, of a core",
        "client, of a core",
        "strained",
    )
    return tables.table(head, lines)
