"""SGLang's flags by version: which exist, what they take, which are deprecated. `launch` and `checks` ask it.

A table was read from that version's own argument parser and is data (`flags-<version>.tsv`): flag, aliases, kind, type,
choices, replacement. A version without a table is not supported; nothing is guessed from a neighbour.
"""

import difflib
import functools
import json
import re
from dataclasses import dataclass
from importlib import resources
from typing import Literal, cast

from shoal_operator.domain import values

SUPPORTED_VERSIONS = ("0.5.23",)
Kind = Literal["value", "list", "optional", "bare", "negatable"]
_TYPE_NAMES = {"int": "a whole number", "float": "a number", "count": "a number of tokens such as 256k", "json": "JSON"}
_COUNT = re.compile(r"\d+(\.\d+)?(k|M|G|T)|\d+(Ki|Mi|Gi|Ti)?")


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag. `kind`: takes one value, several, an optional one, none, or none with a `--no-` form."""

    name: str
    kind: Kind
    type: str
    choices: tuple[str, ...] = ()
    replacement: str | None = None
    """What to write in place of a deprecated flag."""


@dataclass(frozen=True, slots=True)
class Table:
    """Flags of one version, by every spelling."""

    version: str
    flags: dict[str, Flag]

    def find(self, name: str) -> Flag | str:
        """The flag called `name` (without dashes), or why there is none, with the fix."""
        flag = self.flags.get(name)
        if flag is not None:
            return flag
        longer = sorted({one.name for spelling, one in self.flags.items() if spelling.startswith(name)})
        if len(longer) == 1:
            return f"--{name} is an abbreviation of --{longer[0]}: write it in full"
        close = difflib.get_close_matches(name, self.flags, n=3)
        hint = f"; did you mean {' or '.join('--' + one for one in close)}?" if close else ""
        return f"SGLang {self.version} has no flag --{name}{hint}"


@functools.cache
def table(version: str) -> Table | None:
    """The table of a version; None where it is not supported."""
    if version not in SUPPORTED_VERSIONS:
        return None
    text = resources.files(__package__).joinpath(f"flags-{version}.tsv").read_text(encoding="utf-8")
    flags: dict[str, Flag] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        spelling, aliases, kind, type_, choices, replacement = line.split("\t")
        flag = Flag(
            name=spelling.removeprefix("--"),
            kind=cast("Kind", kind),
            type=type_,
            choices=() if choices == "-" else tuple(choices.split("|")),
            replacement=None if replacement == "-" else replacement,
        )
        for name in (spelling, *(() if aliases == "-" else aliases.split(","))):
            flags[name.removeprefix("--")] = flag
    return Table(version, flags)


def value_problem(flag: Flag, value: values.ArgValue) -> str | None:
    """What is wrong with a flag's value, or None. `false` leaves a bare flag out."""
    if flag.kind in ("bare", "negatable"):
        return None if isinstance(value, bool) else f"--{flag.name} takes no value: write true or false"
    if value is True and flag.kind == "optional":
        return None
    if isinstance(value, bool):
        return f"--{flag.name} needs a value"
    if isinstance(value, tuple):
        if flag.kind != "list":
            return f"--{flag.name} takes one value, not a list"
        return next((problem for problem in (_item_problem(flag, one) for one in value) if problem), None)
    return _item_problem(flag, value)


def _item_problem(flag: Flag, item: str | int | float) -> str | None:
    if flag.choices and str(item) not in flag.choices:
        return f"--{flag.name} is {item!r}; it can be {', '.join(flag.choices)}"
    checks = {"int": _is_int, "float": _is_float, "count": _is_count, "json": _is_json}
    check = checks.get(flag.type)
    if check is not None and not check(item):
        return f"--{flag.name} is {item!r}; it takes {_TYPE_NAMES[flag.type]}"
    return None


def _is_int(item: str | int | float) -> bool:
    return isinstance(item, int) or (isinstance(item, str) and re.fullmatch(r"-?\d+", item) is not None)


def _is_float(item: str | int | float) -> bool:
    if not isinstance(item, str):
        return True
    try:
        float(item)
    except ValueError:
        return False
    return True


def _is_count(item: str | int | float) -> bool:
    return _is_int(item) or (isinstance(item, str) and _COUNT.fullmatch(item) is not None)


def _is_json(item: str | int | float) -> bool:
    try:
        json.loads(str(item))
    except ValueError:
        return False
    return True


def as_argv(flag: Flag, value: values.ArgValue) -> list[str]:
    """A flag with its value as arguments, one value an argument, never `--flag=value`."""
    if isinstance(value, bool):
        if value:
            return [f"--{flag.name}"]
        return [f"--no-{flag.name}"] if flag.kind == "negatable" else []
    if isinstance(value, tuple):
        return [f"--{flag.name}", *(str(one) for one in value)]
    return [f"--{flag.name}", str(value)]
