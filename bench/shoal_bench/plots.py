"""Plots as SVG in one quiet style: bars of one figure by router, lines over time. Used by all benchmarks.

Files hold no date and no random ids: a plot of the same figures is the same file.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

OURS: Final = "#1f6f8b"
OTHERS: Final = "#b4bec6"
LIMITS: Final = "#e3e7ea"
"""For what is no router but a bound, such as the engines alone."""
SERIES: Final = (OURS, "#d1842f", "#6c8f4e", "#8b5f8f", "#7a7f85", "#b0483f", "#c9b037", "#4f4a8c")

_STYLE: Final[Any] = {
    "svg.hashsalt": "shoal",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.labelcolor": "#333333",
    "xtick.color": "#333333",
    "ytick.color": "#333333",
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.bbox": "tight",
}
mpl.rcParams.update(_STYLE)  # nothing else in this process plots


def figure(rows: int = 1, columns: int = 1, width: float = 6.4, height: float = 2.6) -> tuple[Figure, list[Axes]]:
    """A figure in the common style and its axes, row by row; width and height are of one of them, in inches."""
    size = (width * columns, height * rows)
    made, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    return made, [one for line in axes for one in line]


def save(made: Figure, path: Path) -> None:
    """As SVG; closes the figure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(made)


def draw_bars(
    axes: Axes,
    title: str,
    values: Mapping[str, float],
    *,
    ours: str = "shoal",
    limits: Sequence[str] = (),
    spread: Mapping[str, tuple[float, float]] | None = None,
    text: Mapping[str, str] | None = None,
) -> None:
    """Horizontal bars in the order of `values`, with their figures; `spread` draws lowest and highest."""
    names = list(values)
    places = range(len(names))
    colours = [OURS if name == ours else LIMITS if name in limits else OTHERS for name in names]
    axes.barh(places, [values[name] for name in names], color=colours, height=0.66)
    tops = [max(values[name], (spread or {}).get(name, (0.0, 0.0))[1]) for name in names]
    for place, name in zip(places, names, strict=True):
        if spread is not None and name in spread:
            low, high = spread[name]
            axes.plot([low, high], [place, place], color="#333333", linewidth=0.8)
        shown = (text or {}).get(name, f"{values[name]:,.3g}")
        axes.annotate(shown, (tops[place], place), (4, 0), textcoords="offset points", va="center", color="#333333")
    axes.set_yticks(places, names)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, max(tops, default=1.0) * 1.18)
    axes.set_title(title)


def draw_lines(
    axes: Axes,
    title: str,
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    x_label: str = "",
    y_label: str = "",
    step: bool = False,
) -> None:
    """One line a name, (x, y) each; the first has our colour."""
    for number, (name, (x, y)) in enumerate(lines.items()):
        colour = SERIES[number % len(SERIES)]
        axes.plot(x, y, label=name, color=colour, linewidth=1.3, drawstyle="steps-post" if step else "default")
    axes.set_title(title)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.margins(x=0.01)
    if len(lines) > 1:
        axes.legend(loc="best", fontsize=8)


def bars(path: Path, title: str, values: Mapping[str, float], **options: Any) -> None:
    """One file with one bar plot; options as of `draw_bars`."""
    made, (axes,) = figure(height=0.5 + 0.27 * len(values))
    draw_bars(axes, title, values, **options)
    save(made, path)


def lines(
    path: Path, title: str, values: Mapping[str, tuple[Sequence[float], Sequence[float]]], **options: Any
) -> None:
    """One file with one line plot; options as of `draw_lines`."""
    made, (axes,) = figure()
    draw_lines(axes, title, values, **options)
    save(made, path)
