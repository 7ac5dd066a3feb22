"""A click group that imports a command's module when the command is called, not when the group is listed.

Used by `__main__` only. A missing module becomes a usage error that names the extra to install.
"""

import importlib
from dataclasses import dataclass
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class Command:
    """Where a command lives: `attribute` of `module`; `extra` is the optional dependency set that it needs."""

    name: str
    module: str
    attribute: str
    summary: str
    extra: str


class LazyGroup(click.Group):
    def __init__(self, *, commands_known: tuple[Command, ...], **settings: Any) -> None:
        super().__init__(**settings)
        self._known = {command.name: command for command in commands_known}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._known)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        known = self._known.get(cmd_name)
        return None if known is None else load(known)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(command.name, command.summary) for command in self._known.values()])


def load(command: Command) -> click.Command:
    try:
        found = getattr(importlib.import_module(command.module), command.attribute)
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"`shoal {command.name}` needs the Python module {error.name!r}, which is not installed; "
            f"install it with: pip install 'shoal[{command.extra}]'"
        ) from error
    if not isinstance(found, click.Command):
        raise click.ClickException(f"{command.module}.{command.attribute} is not a command")
    return found
