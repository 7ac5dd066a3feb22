"""Every manifest and command in the documents is one that works: applied, rendered or parsed by the real program."""

import re
import subprocess
from functools import cache
from pathlib import Path

import click
import pytest
import yaml

from shoal_cli.__main__ import main as shoal
from shoal_testing import markdown
from shoal_testing.apiserver import Tool

YAML_BLOCKS = [block for block in markdown.blocks() if block.language.startswith("yaml")]
COMMANDS = markdown.commands()
ELSEWHERE = {
    "curl",
    "eval",
    "cd",
    "git",
    "pip",
    "docker",
    "tail",
    "cat",
    "jq",
    "export",
    "kill",
    "true",
    "wait",
    "sleep",
}
"""Programs that are not ours: their commands are run by the end-to-end tests where they talk to Shoal."""
MANIFESTS = [block for block in YAML_BLOCKS if "apiVersion: shoal.dev/" in block.text]


@pytest.mark.apiserver
@pytest.mark.parametrize("block", MANIFESTS, ids=str)
def test_manifest_is_accepted_by_the_apiserver(block: markdown.Block, kinds_kubectl: Tool) -> None:
    documents = [{**document} for document in yaml.safe_load_all(block.text) if document]
    for document in documents:
        document["metadata"].pop("namespace", None)
        done = kinds_kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(document), check=False)
        assert done.returncode == 0, f"{block}: {done.stderr}"


@pytest.mark.chart
@pytest.mark.parametrize("block", [b for b in YAML_BLOCKS if b.language == "yaml values"], ids=str)
def test_values_are_accepted_by_the_chart(block: markdown.Block, control_plane_binaries: Path, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(block.text)
    command = [control_plane_binaries / "helm", "template", "shoal", markdown.ROOT / "charts/shoal", "-f", values]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{block}: {done.stderr}"


@pytest.mark.parametrize("block", YAML_BLOCKS, ids=str)
def test_yaml_parses(block: markdown.Block) -> None:
    assert list(yaml.safe_load_all(block.text)) != [None]


def _check_make(words: tuple[str, ...]) -> None:
    makefile = (markdown.ROOT / "Makefile").read_text()
    for word in words[1:]:
        if "=" not in word and not word.startswith("-"):
            assert re.search(rf"^{re.escape(word)}:", makefile, re.MULTILINE), f"make has no target {word!r}"


def _check_shoal(words: tuple[str, ...]) -> None:
    command: click.Command = shoal
    context = click.Context(command)
    arguments = list(words[1:])
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        name = arguments.pop(0)
        found = command.get_command(context, name)
        assert found is not None, f"there is no `shoal {name}`"
        command, context = found, click.Context(found, parent=context)
    # Raises NoSuchOption and the like; values are not converted, so names of files may be placeholders.
    command.make_parser(context).parse_args(args=arguments)


@cache
def _help_of(program: Path, verb: str) -> str:
    done = subprocess.run([program, *verb.split(), "--help"], capture_output=True, text=True, check=True)
    general = subprocess.run([program, *_GENERAL[program.name]], capture_output=True, text=True, check=True)
    return done.stdout + general.stdout


_GENERAL = {"kubectl": ("options",), "helm": ("--help",)}
_TWO_WORDS = {("rollout", "status"), ("auth", "can-i"), ("repo", "add"), ("create", "namespace"), ("create", "secret")}


def _check_go_tool(program: Path, words: tuple[str, ...]) -> None:
    plain: list[str] = []
    skip = False
    for word in words[1:]:
        if skip:
            skip = False
        elif word in ("-n", "--namespace", "--kubeconfig"):
            skip = True
        elif not word.startswith("-"):
            plain.append(word)
    verb = " ".join(plain[: 2 + (plain[:2] == ["create", "secret"])]) if tuple(plain[:2]) in _TWO_WORDS else plain[0]
    text = _help_of(program, verb)
    for word in words[1:]:
        flag = word.split("=")[0]
        if re.fullmatch(r"--[a-z-]+|-[a-zA-Z]", flag):
            assert re.search(rf"(^|[\s,\[]){re.escape(flag)}(=|[\s,\]])", text, re.MULTILINE), f"{verb} has no {flag}"


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_command_parses(command: markdown.Command, control_plane_binaries: Path) -> None:
    program = Path(command.words[0]).name
    if program == "make":
        _check_make(command.words)
    elif program == "shoal" or command.words[:2] == ("kubectl", "shoal"):
        _check_shoal(command.words if program == "shoal" else command.words[1:])
    elif program in ("kubectl", "helm"):
        _check_go_tool(control_plane_binaries / program, command.words)
    elif program.startswith(("python", "bash")):
        scripts = [word for word in command.words[1:] if word.endswith((".py", ".sh"))]
        assert all((markdown.ROOT / script).exists() for script in scripts)
    elif program in ("shoal-router", "shoal-sim", "shoal-operator"):
        assert (Path(markdown.ROOT) / ".venv/bin" / program).exists()
    else:
        assert program in ELSEWHERE, f"{command}: nobody runs this command"


@pytest.mark.parametrize("path", markdown.documents(), ids=lambda path: str(path.relative_to(markdown.ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name}: {target}"
