"""Rows of a run, and what a reader sees of them: tables, the targets with what was reached, and plots.

Pure but for `draw`. Called by `bench`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shoal_bench import plots, results, tables
from shoal_bench.peers import install
from shoal_bench.router import measure
from shoal_bench.router.measure import Taken

OURS: Final = "shoal"
PEER_POLICY: Final = "cache_aware"
"""Peers are those that do the same work. Others are bounds: nginx looks at nothing, nor does a router by turns."""

UNITS: Final[Mapping[str, str]] = {
    "small_rps": "1/s",
    "prompt350k_rps": "1/s",
    "cpu_us_per_request": "us",
    "cpu_us_per_prompt350k": "us",
    "cpu_us_per_chunk": "us",
    "added_ms_p50": "ms",
    "added_ms_p99": "ms",
    "ttfb_ms_500_long": "ms",
    "rss_mb": "MB",
    "rss_mb_2000_streams": "MB",
    "rss_mb_10000_streams": "MB",
}
TITLES: Final[Mapping[str, str]] = {
    "small_rps": "small chats, 1/s",
    "prompt350k_rps": "350 KB prompts, 1/s",
    "cpu_us_per_request": "CPU a small chat, us",
    "cpu_us_per_prompt350k": "CPU a 350 KB prompt, us",
    "cpu_us_per_chunk": "CPU a relayed chunk, us",
    "added_ms_p50": "added at half load p50, ms",
    "added_ms_p99": "added at half load p99, ms",
    "ttfb_ms_500_long": "first event of 500 long prompts, median, ms",
    "rss_mb": "memory at rest, MB",
    "rss_mb_2000_streams": "with 2,000 streams, MB",
    "rss_mb_10000_streams": "with 10,000 streams, MB",
}
PLOTS: Final[Mapping[str, Sequence[str]]] = {
    "router-throughput": ("small_rps", "prompt350k_rps"),
    "router-cpu": ("cpu_us_per_request", "cpu_us_per_prompt350k", "cpu_us_per_chunk"),
    "router-latency": ("added_ms_p50", "added_ms_p99", "ttfb_ms_500_long"),
    "router-memory": ("rss_mb", "rss_mb_2000_streams"),
}


_FACTS: Final[Mapping[str, Sequence[str]]] = {
    "small_rps": ("small_rps_core",),
    "prompt350k_rps": ("prompt350k_rps_core",),
    "added_ms_p50": ("at_rps", "direct_ms_p50"),
    "added_ms_p99": ("at_rps", "direct_ms_p99"),
    "rss_mb_10000_streams": ("streams",),
}
"""What else a measure's rows say; `core`: how much of its core the router used."""


@dataclass(frozen=True, slots=True)
class Target:
    """What Shoal must reach: a bound, or a factor of the best peer's figure."""

    measure: str
    text: str
    at_least: float | None = None
    at_most: float | None = None
    of_best_peer: bool = False


TARGETS: Final = (
    Target("small_rps", ">= 2.5 x the best peer", at_least=2.5, of_best_peer=True),
    Target("prompt350k_rps", ">= 1.3 x the best peer", at_least=1.3, of_best_peer=True),
    Target("cpu_us_per_chunk", "<= the best peer", at_most=1.0, of_best_peer=True),
    Target("rss_mb", "<= 80 MB", at_most=80.0),
    Target("added_ms_p50", "<= 0.3 ms", at_most=0.3),
    Target("added_ms_p99", "<= 1.5 ms", at_most=1.5),
    Target("rss_mb_10000_streams", "<= 1 GiB", at_most=1073.7),
)


@dataclass(slots=True)
class Collected:
    """What the rounds have brought: samples by router and measure, failures as sentences."""

    samples: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    policies: dict[str, str] = field(default_factory=dict)
    facts: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, router: str, policy: str, number: int, taken: Taken) -> None:
        self.policies[router] = policy
        for measure_name, value in taken.samples.items():
            self.samples.setdefault((router, measure_name), []).append(value)
        for fact, value in taken.facts.items():
            self.facts.setdefault((router, fact), []).append(value)
        for measure_name, why in taken.failures.items():
            self.failures.append(f"{router}, {measure_name}, round {number + 1}: {' '.join(why.split())[:400]}")


def rows(collected: Collected) -> list[results.Row]:
    """In the order of measures, routers as they came."""
    made = []
    for name, unit in UNITS.items():
        for (router, measure_name), samples in collected.samples.items():
            if measure_name != name:
                continue
            one = results.row(samples, unit, router=router, measure=name)
            if collected.policies[router]:
                one["policy"] = collected.policies[router]
            for fact in _FACTS.get(name, ()):
                if (router, fact) in collected.facts:
                    shown = "core" if fact.endswith("_core") else fact
                    one[shown] = results.rounded(results.summarise(collected.facts[router, fact]).median)
            made.append(one)
    return made


def routers(found: Iterable[results.Row]) -> list[str]:
    """In order of appearance."""
    return list(dict.fromkeys(str(one["router"]) for one in found))


def peers(found: Iterable[results.Row]) -> list[str]:
    """Those that Shoal is compared with."""
    return [name for name in routers(results.select(found, policy=PEER_POLICY)) if name not in install.OURS]


def best_peer(found: Sequence[results.Row], name: str, *, high_is_good: bool) -> tuple[str, float] | None:
    """Of the peers that have the figure."""
    figures = [(peer, value) for peer in peers(found) if (value := _value(found, peer, name)) is not None]
    if not figures:
        return None
    return (max if high_is_good else min)(figures, key=lambda one: one[1])


def figures_table(found: Sequence[results.Row]) -> str:
    """Routers across, measures down."""
    names = routers(found)
    lines = []
    for name, title in TITLES.items():
        cells = [_cell(found, router, name) for router in names]
        if any(cell != tables.MISSING for cell in cells):
            lines.append([title, *cells])
    return tables.table(["", *names], lines)


def targets_table(found: Sequence[results.Row]) -> str:
    lines = []
    for target in TARGETS:
        ours = _value(found, OURS, target.measure)
        bound, reached, met = judge(target, found)
        shown = tables.number(ours)
        lines.append([TITLES[target.measure], target.text, shown, bound, reached, met])
    return tables.table(["", "target", "Shoal", "best peer", "ratio", "met"], lines)


def judge(target: Target, found: Sequence[results.Row]) -> tuple[str, str, str]:
    """Best peer, ratio to it, and whether the target is met, as words."""
    ours = _value(found, OURS, target.measure)
    best = best_peer(found, target.measure, high_is_good=target.at_least is not None)
    shown = f"{tables.number(best[1])} ({best[0]})" if best else tables.MISSING
    if ours is None:
        return shown, tables.MISSING, "not measured"
    ratio = ours / best[1] if best and best[1] > 0 else None
    judged = ratio if target.of_best_peer else ours
    if judged is None:
        return shown, tables.MISSING, "not measured"
    too_low = target.at_least is not None and judged < target.at_least
    too_high = target.at_most is not None and judged > target.at_most
    return shown, tables.number(ratio), "no" if too_low or too_high else "yes"


def block(
    found: Sequence[results.Row], failures: Sequence[str], facts: Mapping[str, str], where: str, *, pictures: bool
) -> str:
    """The generated part of the document."""
    parts = [
        f"Machine: {results.describe(facts)}.",
        where,
        figures_table(found),
        "Median of the rounds (lowest to highest).",
        targets_table(found),
    ]
    streams = [one["streams"] for one in results.select(found, measure="rss_mb_10000_streams")]
    if streams and streams[0] != measure.FULL.streams_many:
        parts.append(
            f"The limit of open files of this machine allows {streams[0]:,.0f} streams, two files each, not 10,000."
        )
    if failures:
        parts.append("Not measured:\n\n" + "\n".join(f"- {one}" for one in failures))
    if pictures:
        parts += [f"![{name}]({name}.svg)" for name in PLOTS]
    return "\n\n".join(parts)


def draw(found: Sequence[results.Row], folder: Path) -> None:
    """One file a group of measures."""
    for name, measures in PLOTS.items():
        shown = [one for one in measures if results.select(found, measure=one)]
        if not shown:
            continue
        bounds = [name for name in routers(found) if name != OURS and name not in peers(found)]
        made, axes = plots.figure(columns=len(shown), width=4.2, height=0.6 + 0.27 * len(routers(found)))
        for one, place in zip(shown, axes, strict=True):
            values, spread = {}, {}
            for row in results.select(found, measure=one):
                values[row["router"]] = row["value"]
                if "min" in row:
                    spread[row["router"]] = (row["min"], row["max"])
            text = {router: tables.number(value) for router, value in values.items()}
            plots.draw_bars(place, TITLES[one], values, limits=bounds, spread=spread, text=text)
        plots.save(made, folder / f"{name}.svg")


def _value(found: Sequence[results.Row], router: str, name: str) -> float | None:
    return results.value(found, router=router, measure=name)


def _cell(found: Sequence[results.Row], router: str, name: str) -> str:
    matching = results.select(found, router=router, measure=name)
    if not matching:
        return tables.MISSING
    one = matching[0]
    text = tables.number(one["value"])
    return f"{text} ({tables.number(one['min'])} to {tables.number(one['max'])})" if "min" in one else text
