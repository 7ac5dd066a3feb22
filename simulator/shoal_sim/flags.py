"""SGLang's command line, as a table: data/server_args.json, one entry a server argument of the version.

An entry is [field, default, arity, aliases]. The flag is `--` and the field with dashes. Arities: `flag` takes no
value, `bool` is a flag that also exists as `--no-...`, `one` takes one value, `many` at least one, and `field` has no
flag (it only appears in /server_info). The table was derived from the /server_info of a running 0.5.23 and its
documentation; choices of values are not in it.

Flags that the simulator acts on are read in `settings`; all others are checked for existence and arity and are
reported by /server_info. An unknown flag or a missing value ends the process as argparse does: usage, exit status 2.
Unlike argparse no abbreviation is accepted.
"""

import json
import sys
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final, NoReturn

SIMULATOR_FLAGS: Final = ("speedup", "profile", "load-seconds")
"""Flags of the simulator itself, one value each; not in /server_info."""

PROGRAM = "launch_server.py"


@dataclass(frozen=True, slots=True)
class Flag:
    field: str
    arity: str
    default: Any


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Fields with their values (defaults where no flag was given), which were given, and the simulator's own flags."""

    argv: tuple[str, ...]
    fields: dict[str, Any]
    given: frozenset[str]
    simulator: dict[str, str]


class CommandLineError(ValueError):
    """The command line is not one that this version accepts."""


def load_table() -> tuple[str, list[tuple[str, Any]], dict[str, Flag]]:
    """Version, fields with defaults in the order of /server_info, and flags by spelling."""
    raw = json.loads(resources.files("shoal_sim").joinpath("data/server_args.json").read_bytes())
    flags: dict[str, Flag] = {}
    for field, default, arity, *aliases in raw["fields"]:
        if arity == "field":
            continue
        flag = Flag(field, arity, default)
        for name in (field.replace("_", "-"), *(aliases[0] if aliases else ())):
            flags[f"--{name}"] = flag
    return raw["version"], [(entry[0], entry[1]) for entry in raw["fields"]], flags


def parse(argv: list[str]) -> CommandLine:
    _, defaults, flags = load_table()
    fields = dict(defaults)
    given: set[str] = set()
    simulator: dict[str, str] = {}
    position = 0
    while position < len(argv):
        name, joined, inline = argv[position].partition("=")
        position += 1
        if not name.startswith("--"):
            raise CommandLineError(f"unrecognized arguments: {argv[position - 1]}")
        values: list[str] = [inline] if joined else []
        if name.removeprefix("--") in SIMULATOR_FLAGS:
            position += _collect(argv, position, values, most=1)
            simulator[name.removeprefix("--")] = _only(name, values)
            continue
        negated = name.startswith("--no-") and name not in flags
        flag = flags.get(f"--{name.removeprefix('--no-')}" if negated else name)
        if flag is None or (negated and flag.arity != "bool"):
            raise CommandLineError(f"unrecognized arguments: {argv[position - 1]}")
        given.add(flag.field)
        if flag.arity in ("flag", "bool"):
            if joined:
                raise CommandLineError(f"argument {name}: ignored explicit argument {inline!r}")
            fields[flag.field] = not negated
        elif flag.arity == "many":
            position += _collect(argv, position, values, most=None)
            if not values:
                raise CommandLineError(f"argument {name}: expected at least one argument")
            fields[flag.field] = values
        else:
            position += _collect(argv, position, values, most=1)
            fields[flag.field] = _typed(name, _only(name, values), flag.default)
    if not fields["model_path"]:
        raise CommandLineError("the following arguments are required: --model-path/--model")
    return CommandLine(tuple(argv), fields, frozenset(given), simulator)


def refuse(message: str) -> NoReturn:
    """Ends the process as argparse does."""
    sys.stderr.write(f"usage: {PROGRAM} [-h] --model-path MODEL_PATH ...\n{PROGRAM}: error: {message}\n")
    raise SystemExit(2)


def _collect(argv: list[str], position: int, values: list[str], most: int | None) -> int:
    """Moves the following values into `values`; returns how many there were."""
    taken = 0
    while position + taken < len(argv) and (most is None or len(values) < most):
        value = argv[position + taken]
        if value.startswith("--"):
            break
        values.append(value)
        taken += 1
    return taken


def _only(name: str, values: list[str]) -> str:
    if not values:
        raise CommandLineError(f"argument {name}: expected one argument")
    return values[0]


def _typed(name: str, value: str, default: object) -> Any:
    """The value in the type of the default; without one, as a number where it reads as one."""
    kind = type(default)
    try:
        if kind is int or kind is float:
            return kind(value)
        if kind is str:
            return value
        if kind is dict or kind is list:
            return json.loads(value)
    except ValueError as error:
        raise CommandLineError(f"argument {name}: invalid {kind.__name__} value: {value!r}") from error
    for number in (int, float):
        try:
            return number(value)
        except ValueError:
            continue
    return value
