"""A flame graph as one SVG file: callers below, what they call above, widths by share, colours by stage. Pure.

Frames narrower than `SHARE_MIN` are left out, so that files stay small. Each box tells its share when pointed at, in a
browser that opened the file itself. Called by `run`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Final

from shoal_bench.hotpath import stages
from shoal_bench.hotpath.frames import Stack

WIDTH: Final = 1200
ROW: Final = 17
SHARE_MIN: Final = 0.0015
_MARGIN: Final = 10
_CHARACTER: Final = 6.1
"""Width of one at the size of text used; a box shows as many as fit."""
_LEGEND_ROW: Final = 18
_SANS: Final = "DejaVu Sans, Verdana, sans-serif"
_LEGEND_COLUMNS: Final = 4
COLOURS: Final[Mapping[str, str]] = {
    stages.WRITES: "#d98b6a",
    stages.LOOP: "#e3c08f",
    stages.PARSING: "#a9c7d8",
    stages.CHECKS: "#c3b7dc",
    stages.PROMPT: "#9fcbb4",
    stages.BINDING: "#6fa8bd",
    stages.RELAYING: "#c9d59a",
    stages.FINISH: "#e0b3c4",
    stages.FREEING: "#c4c4c4",
    stages.REST: "#e6e6e6",
}


@dataclass(slots=True)
class Node:
    """A frame below its caller."""

    name: str
    stage: str
    samples: int = 0
    inner: dict[str, "Node"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Box:
    """A drawn frame: `start` and `share` of all samples, `depth` from the outermost."""

    name: str
    stage: str
    start: float
    share: float
    depth: int


def tree(found: Mapping[Stack, int]) -> Node:
    """All stacks put together; the root stands for the process."""
    root = Node("all", stages.REST)
    for stack, samples in found.items():
        node = root
        node.samples += samples
        for depth, name in enumerate(stack, 1):
            node = node.inner.setdefault(name, Node(name, stages.stage_of(stack[:depth])))
            node.samples += samples
    return root


def boxes(root: Node, share_min: float = SHARE_MIN) -> Iterator[Box]:
    """Each after its caller; of one caller, in the order of names, so that two profiles look alike."""
    if root.samples:
        yield from _boxes(root, root.samples, 0.0, 0, share_min)


def _boxes(node: Node, total: int, start: float, depth: int, share_min: float) -> Iterator[Box]:
    share = node.samples / total
    if share < share_min:
        return
    yield Box(node.name, node.stage, start, share, depth)
    for one in sorted(node.inner.values(), key=lambda inner: inner.name):
        yield from _boxes(one, total, start, depth + 1, share_min)
        start += one.samples / total


def render(title: str, found: Mapping[Stack, int]) -> str:
    """The file's text."""
    drawn = list(boxes(tree(found)))
    rows = 1 + max((one.depth for one in drawn), default=0)
    legend = -(-len(COLOURS) // _LEGEND_COLUMNS)
    top = 34
    floor = top + rows * ROW
    height = floor + 12 + legend * _LEGEND_ROW + 6
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="10">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{_MARGIN}" y="21" font-size="13" font-family="{_SANS}">{escape(title)}</text>',
        *(_drawn(one, floor) for one in drawn),
        *_legend(floor + 12),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _drawn(one: Box, floor: int) -> str:
    scale = WIDTH - 2 * _MARGIN
    x, width = _MARGIN + one.start * scale, one.share * scale
    y = floor - (one.depth + 1) * ROW
    shape = (
        f'<g><title>{escape(one.name)}: {one.share:.1%}, {one.stage}</title><rect x="{x:.1f}" y="{y}" '
        f'width="{width:.1f}" height="{ROW - 1}" rx="1" fill="{COLOURS[one.stage]}"/>'
    )
    text = shortened(one.name, int((width - 4) / _CHARACTER))
    return shape + (f'<text x="{x + 2:.1f}" y="{y + 12}">{escape(text)}</text></g>' if text else "</g>")


def shortened(name: str, characters: int) -> str:
    """As much as fits, the function before its module; empty where too little would."""
    if len(name) <= characters:
        return name
    member = name.rpartition(":")[2]
    last = member.rpartition(".")[2]
    for candidate in (member, last):
        if len(candidate) <= characters:
            return candidate
    return f"{last[: characters - 1]}…" if characters >= 5 else ""


def _legend(top: int) -> Iterator[str]:
    column = (WIDTH - 2 * _MARGIN) / _LEGEND_COLUMNS
    for place, (stage, colour) in enumerate(COLOURS.items()):
        x = _MARGIN + place % _LEGEND_COLUMNS * column
        y = top + place // _LEGEND_COLUMNS * _LEGEND_ROW
        yield f'<rect x="{x:.0f}" y="{y}" width="12" height="12" rx="1" fill="{colour}"/>'
        yield f'<text x="{x + 18:.0f}" y="{y + 10}" font-size="11" font-family="{_SANS}">{escape(stage)}</text>'
