"""Rows and tables of profiles. Pure. Called by `run`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shoal_bench import results, tables
from shoal_bench.hotpath import stages
from shoal_bench.hotpath.frames import Stack

TOP: Final = 12
HEADS: Final[Mapping[str, str]] = {
    "small": "small chat",
    "small-interpreted": "small chat, interpreted",
    "prompt350k": "350 KB prompt",
    "chunk": "relayed chunk",
}
"""Profiles by name, in the order of columns."""
PICTURES: Final = ("small", "prompt350k", "chunk")


@dataclass(frozen=True, slots=True)
class Taken:
    """A profile, folded."""

    stacks: Counter[Stack]
    cpu_us: float
    per_s: float
    busy: float

    @property
    def samples(self) -> int:
        return self.stacks.total()


def rows(found: Mapping[str, Taken]) -> list[results.Row]:
    """One a profile and stage, `value` in microseconds of CPU, and one for all of it."""
    made: list[results.Row] = []
    for name, one in found.items():
        key = {"load": name.removesuffix("-interpreted"), "build": _build(name)}
        made.append(
            {**key, "stage": "all", "value": results.rounded(one.cpu_us), "unit": "us", "share": 1.0}
            | {"samples": one.samples, "per_s": results.rounded(one.per_s), "busy": results.rounded(one.busy, 3)}
        )
        made += [
            {**key, "stage": part.stage, "value": results.rounded(part.us, 3), "unit": "us"}
            | {"share": results.rounded(part.share, 3), "samples": part.samples}
            for part in stages.shares(one.stacks, one.cpu_us)
        ]
    return made


def stages_table(found: Mapping[str, Taken]) -> str:
    """Stages down, profiles across: microseconds and share."""
    names = [name for name in HEADS if name in found]
    parts = {name: stages.shares(found[name].stacks, found[name].cpu_us) for name in names}
    lines = [[stage, *(_cell(parts[name][place]) for name in names)] for place, stage in enumerate(stages.STAGES)]
    lines.append(["**CPU in all**", *(f"**{tables.number(found[name].cpu_us)} us**" for name in names)])
    lines.append(["a second, on one core", *(tables.number(found[name].per_s) for name in names)])
    lines.append(["core in use", *(f"{found[name].busy:.0%}" for name in names)])
    lines.append(["samples", *(tables.number(found[name].samples) for name in names)])
    return tables.table(["", *(HEADS[name] for name in names)], lines)


def own_table(found: Mapping[str, Taken]) -> str:
    """Where samples end, for the profiles that have a picture."""
    names = [name for name in PICTURES if name in found]
    columns = [stages.own(found[name].stacks, TOP) for name in names]
    lines = []
    for place in range(max(map(len, columns), default=0)):
        cells = [f"`{one[place][0]}` {one[place][1]:.1%}" if place < len(one) else "" for one in columns]
        lines.append([str(place + 1), *cells])
    return tables.table(["", *(HEADS[name] for name in names)], lines)


def block(found: Mapping[str, Taken], facts: Mapping[str, str], where: str, *, pictures: bool) -> str:
    """The generated part of the document."""
    parts = [
        f"Machine: {results.describe(facts)}.",
        where,
        stages_table(found),
        f"The {TOP} frames in which most samples ended, with their share of all:",
        own_table(found),
    ]
    if pictures:
        parts += [f"![{HEADS[name]}](hot-path-{name}.svg)" for name in PICTURES if name in found]
    return "\n\n".join(parts)


def _cell(part: stages.Share) -> str:
    return f"{part.us:,.1f} us ({part.share:.1%})"


def _build(name: str) -> str:
    return "interpreted" if name.endswith("-interpreted") else "compiled"


def title(name: str, one: Taken) -> str:
    """Of a picture."""
    return f"{HEADS[name]}: {one.cpu_us:,.1f} us of CPU, {one.samples:,} samples; the router {_build(name)}"


def selected(text: str, known: Sequence[str] = tuple(HEADS)) -> list[str]:
    """Names of profiles, comma separated. Raises ValueError for another."""
    names = text.split(",")
    strange = [one for one in names if one not in known]
    if strange:
        raise ValueError(f"no profile {', '.join(strange)}; there are {', '.join(known)}")
    return names
