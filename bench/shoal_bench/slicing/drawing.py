"""Draws the timeline: two runs of one replica, above each other, on one axis of time. Called by `__main__`."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from shoal_bench.slicing import routers
from shoal_bench.slicing.timeline import FROM_S, UNTIL_S, Picture, Span

COLD, WARM, DECODE, WAITS, SILENT = "#d1842f", "#1f6f8b", "#7fb58c", "#c9302c", "#f3c6c0"
_TITLES: Final = {routers.WHOLE: "Whole prompt", routers.SHOAL: "In slices"}
_ENGINE_ROWS: Final = 2.2
"""Height of the engine's lane, in rows of a session."""
_TICK_S: Final = 0.03
"""Width of a single token."""


def draw(path: Path, pictures: Sequence[Picture]) -> None:
    # Imported where it is drawn: on the machine of a GPU there may be no matplotlib.
    from matplotlib.patches import Patch

    from shoal_bench import plots

    figure, axes = plots.figure(rows=len(pictures), width=9.6, height=2.9)
    for panel, one in zip(axes, pictures, strict=True):
        _panel(panel, one)
    axes[-1].set_xlabel("seconds since the cold prompt of 65,536 tokens was sent")
    colours = {
        "engine computes the cold prompt": COLD,
        "engine computes a turn's prompt": WARM,
        "engine makes tokens, a stream gets them": DECODE,
        "waits for its first token": WAITS,
        "waits for its next one": SILENT,
    }
    patches = [Patch(color=colour, label=label) for label, colour in colours.items()]
    figure.legend(handles=patches, loc="outside upper center", ncols=5, fontsize=8)
    plots.save(figure, path)


def _panel(panel: Any, one: Picture) -> None:
    for spans, colour in ((one.decode, DECODE), (one.warm, WARM), (one.cold, COLD)):
        _bars(panel, spans, 0.0, _ENGINE_ROWS * 0.9, colour)
    names, places = ["engine computes"], [_ENGINE_ROWS * 0.45]
    rows = [((one.cold_turn,), "cold prompt"), *((turns, "") for turns in one.sessions)]
    for number, (turns, name) in enumerate(rows):
        top = _ENGINE_ROWS + 0.4 + number + (0.4 if number else 0.0)
        for turn in turns:
            _bars(panel, [turn.waited], top + 0.16, 0.46, WAITS)
            _bars(panel, _between(turn.running), top + 0.16, 0.46, SILENT)
            ticks = [(began, max(ended, began + _TICK_S)) for began, ended in turn.running]
            _bars(panel, ticks, top, 0.78, DECODE)
        if name:
            names.append(name)
            places.append(top + 0.39)
    middle = _ENGINE_ROWS + 0.8 + 1 + len(one.sessions) / 2
    panel.set_yticks([*places, middle], [*names, f"{len(one.sessions)} of 24 sessions\nwith short turns"])
    panel.tick_params(axis="y", length=0)
    panel.set_ylim(_ENGINE_ROWS + 0.8 + len(rows), 0)
    panel.set_xlim(FROM_S, UNTIL_S)
    panel.axvline(0.0, color="#666666", linewidth=0.8, linestyle=":")
    panel.spines["left"].set_visible(False)
    panel.set_title(
        f"{_TITLES.get(one.router, one.router)}: turns sent meanwhile wait {one.ttft_s_mean:.2f} s for a first token; "
        f"longest silence {one.silence_s_max:.2f} s; the cold prompt waits {one.cold_turn.waited[1]:.1f} s"
    )


def _between(spans: Sequence[Span]) -> list[Span]:
    return [(before[1], after[0]) for before, after in pairwise(spans)]


def _bars(panel: Any, spans: Sequence[Span], top: float, height: float, colour: str) -> None:
    shown = [(max(began, FROM_S), min(ended, UNTIL_S)) for began, ended in spans if ended > FROM_S and began < UNTIL_S]
    panel.broken_barh([(began, ended - began) for began, ended in shown], (top, height), color=colour, linewidth=0)
