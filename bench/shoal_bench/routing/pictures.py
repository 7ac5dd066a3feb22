"""Plots of the routing runs: quantiles of the time to first token by router, its distribution, spread over time."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from shoal_bench import plots, results
from shoal_bench.routing.routers import ROUTERS
from shoal_bench.routing.runs import Record

QUANTILES: Final = (("mean", "ttft_s_mean"), ("p50", "ttft_s_p50"), ("p90", "ttft_s_p90"), ("p99", "ttft_s_p99"))
_SMOOTH_SAMPLES: Final = 8

Line = tuple[Sequence[float], Sequence[float]]
"""Places and values."""


def write(folder: Path, records: Sequence[Record], workloads: Mapping[str, str]) -> list[Path]:
    """One file of each kind, with a panel a workload; `workloads` are names and titles. Returns what was written."""
    names = [name for name in workloads if any(one.workload == name for one in records)]
    if not names:
        return []
    made = [folder / f"routing-{kind}.svg" for kind in ("ttft", "distribution", "spread")]
    _quantiles(made[0], records, names, workloads)
    _distribution(made[1], records, names, workloads)
    _spread(made[2], records, names, workloads)
    return made


def typical(records: Sequence[Record], workload: str, router: str) -> Record | None:
    """The run with the median mean; with two, the better one."""
    found = [one for one in records if one.workload == workload and one.router == router]
    found = [one for one in found if "ttft_s_mean" in one.figures.measures]
    found.sort(key=lambda one: one.figures.measures["ttft_s_mean"])
    return found[(len(found) - 1) // 2] if found else None


def _quantiles(path: Path, records: Sequence[Record], names: Sequence[str], titles: Mapping[str, str]) -> None:
    figure, axes = plots.figure(rows=len(names), columns=len(QUANTILES), width=3.2, height=2.0)
    for row, name in enumerate(names):
        for column, (label, measure) in enumerate(QUANTILES):
            values, spread = {}, {}
            for router in ROUTERS:
                found = [
                    one.figures.measures[measure]
                    for one in records
                    if one.workload == name and one.router == router and measure in one.figures.measures
                ]
                if found:
                    summary = results.summarise(found)
                    values[router], spread[router] = summary.median, (summary.low, summary.high)
            title = f"{titles[name]}\n{label}, s" if column == 0 else f"{label}, s"
            plots.draw_bars(axes[row * len(QUANTILES) + column], title, values, spread=spread)
    plots.save(figure, path)


def _distribution(path: Path, records: Sequence[Record], names: Sequence[str], titles: Mapping[str, str]) -> None:
    def curve(one: Record) -> Line:
        found = one.figures.ttft_curve
        return found, [place / (len(found) - 1) for place in range(len(found))]

    figure, axes = plots.figure(rows=len(names))
    for panel, name in zip(axes, names, strict=True):
        panel.set_xscale("log")
        lines = _typical_lines(records, name, curve)
        plots.draw_lines(panel, titles[name], lines, x_label="TTFT, s", y_label="share of requests")
    plots.save(figure, path)


def _spread(path: Path, records: Sequence[Record], names: Sequence[str], titles: Mapping[str, str]) -> None:
    def spread(one: Record) -> Line:
        return one.spread_at_s, smooth(one.spread_requests, _SMOOTH_SAMPLES)

    figure, axes = plots.figure(rows=len(names))
    for panel, name in zip(axes, names, strict=True):
        lines = _typical_lines(records, name, spread)
        plots.draw_lines(panel, titles[name], lines, x_label="s of the model", y_label="requests, most - least")
    plots.save(figure, path)


def _typical_lines(records: Sequence[Record], workload: str, line: Callable[[Record], Line]) -> dict[str, Line]:
    """A line of each router's typical run, of those that were run."""
    found = {router: typical(records, workload, router) for router in ROUTERS}
    return {router: line(one) for router, one in found.items() if one is not None}


def smooth(values: Sequence[float], width: int) -> list[float]:
    """Mean over the last `width` values."""
    return [sum(values[max(0, place - width + 1) : place + 1]) / min(place + 1, width) for place in range(len(values))]
