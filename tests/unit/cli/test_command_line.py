"""The group lists its commands without importing them, and says what an absent module needs."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from shoal_cli import lazy
from shoal_cli.__main__ import COMMANDS, main


def test_help_imports_no_command() -> None:
    code = (
        "import sys; from shoal_cli.__main__ import main; main(['--help'], standalone_mode=False); "
        "print(sorted(name for name in sys.modules if name.split('.')[0] in {'aiohttp', 'rich', 'pydantic', 'kopf'}))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.endswith("[]\n")
    for command in COMMANDS:
        assert command.name in done.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_loads_and_has_help(command: lazy.Command) -> None:
    done = CliRunner().invoke(main, [command.name, "--help"])
    assert done.exit_code == 0, done.output


def test_absent_module_is_named_with_its_extra() -> None:
    absent = lazy.Command("x", "shoal_cli.absent_module", "x", "", "sim")
    with pytest.raises(click.ClickException, match=r"absent_module.*pip install 'shoal\[sim\]'"):
        lazy.load(absent)


def test_unknown_command_is_a_usage_error() -> None:
    assert CliRunner().invoke(main, ["nonsense"]).exit_code == 2
