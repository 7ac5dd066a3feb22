"""Plots of the figures: bars of what the targets name, and how the time to first token is distributed; by engine."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from shoal_bench import results
from shoal_bench.slicing.detail import Detail
from shoal_bench.slicing.routers import ROUTERS

BARS: Final = (
    ("warm turns: mean TTFT, s", "warm_ttft_s_mean"),
    ("warm turns: p99 TTFT, s", "warm_ttft_s_p99"),
    ("longest silence of a stream, s", "silence_s_max"),
    ("cold prompts: mean TTFT, s", "cold_ttft_s_mean"),
)
_PREFIXES: Final = {"ids": "", "chat": "chat_"}


def slug(engine: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", engine.lower()).strip("-")


def files(engine: str, detail: Detail) -> list[tuple[str, str]]:
    """Names of an engine's plots and what they show."""
    if not detail["loads"]:
        return []
    where = f"slicing-{slug(engine)}"
    return [
        (f"{where}.svg", f"First tokens, silences and cold prompts, {engine}"),
        (f"{where}-distribution.svg", f"Distribution of the time to first token, {engine}"),
    ]


def write(folder: Path, rows: Sequence[results.Row], details: Mapping[str, Detail]) -> list[Path]:
    """Of all engines. Returns what was written."""
    made = []
    for engine, detail in details.items():
        names = files(engine, detail)
        if names:
            _bars(folder / names[0][0], rows, engine, detail)
            _distribution(folder / names[1][0], detail)
            made += [folder / name for name, _ in names]
    return made


def _bars(path: Path, rows: Sequence[results.Row], engine: str, detail: Detail) -> None:
    # Imported where it is drawn: on the machine of a GPU there may be no matplotlib.
    from shoal_bench import plots

    kinds = [kind for kind in _PREFIXES if kind in detail["loads"]]
    figure, axes = plots.figure(rows=len(kinds), columns=len(BARS), width=3.1, height=1.6)
    for line, kind in enumerate(kinds):
        for column, (title, measure) in enumerate(BARS):
            values, spread = {}, {}
            for router in ROUTERS:
                found = results.select(rows, engine=engine, router=router, measure=_PREFIXES[kind] + measure)
                if found:
                    values[router] = float(found[0]["value"])
                    if "min" in found[0]:
                        spread[router] = (float(found[0]["min"]), float(found[0]["max"]))
            shown = title if column else f"{title} ({kind})"
            plots.draw_bars(axes[line * len(BARS) + column], shown, values, spread=spread)
    plots.save(figure, path)


def _distribution(path: Path, detail: Detail) -> None:
    from shoal_bench import plots

    kinds = [kind for kind in _PREFIXES if kind in detail["loads"]]
    figure, axes = plots.figure(rows=len(kinds), columns=2, width=4.6, height=2.4)
    for line, kind in enumerate(kinds):
        for column, (title, curve) in enumerate((("warm turns", "warm_curve"), ("cold prompts", "cold_curve"))):
            lines = {}
            for router, one in detail["loads"][kind]["routers"].items():
                values = one[curve]
                lines[router] = (values, [place / max(1, len(values) - 1) for place in range(len(values))])
            panel = axes[line * 2 + column]
            if curve == "warm_curve":
                panel.set_xscale("log")
            plots.draw_lines(panel, f"{title} ({kind})", lines, x_label="TTFT, s", y_label="share of requests")
            if curve == "cold_curve":
                panel.set_xlim(left=0.0)
    plots.save(figure, path)
