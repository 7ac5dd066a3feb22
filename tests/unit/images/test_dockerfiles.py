"""The images' Dockerfiles: linted, locked, not root, and made of files that exist and are sent."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]
IMAGES = CHECKOUT / "images"
DOCKERFILES = sorted(IMAGES.glob("*/Dockerfile"))
PYTHON_IMAGES = {"operator": "operator", "router": "router", "engine-sim": "sim"}
PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)(?:\[[^\]]*\])?==([^ ;\\]+)", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def _pins(path: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Version and hashes of each pin."""
    blocks = re.split(r"(?m)^(?=[a-z0-9])", path.read_text())
    pins = {}
    for block in blocks:
        if match := PIN.match(block):
            pins[match[1]] = (match[2], frozenset(HASH.findall(block)))
    return pins


def _text(image: str) -> str:
    return (IMAGES / image / "Dockerfile").read_text()


def test_every_image_is_here() -> None:
    assert [path.parent.name for path in DOCKERFILES] == ["engine", "engine-sim", "operator", "router"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_lint(path: Path) -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([str(hadolint), "--failure-threshold", "style", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("image", PYTHON_IMAGES)
def test_runs_as_nobody_from_a_read_only_file_system(image: str) -> None:
    last_stage = _text(image).split("\nFROM ")[-1]
    user = re.search(r"^USER (\d+):(\d+)$", last_stage, re.MULTILINE)
    assert user
    assert int(user[1]) > 0
    assert "PYTHONSAFEPATH=1" in last_stage
    assert "PYTHONDONTWRITEBYTECODE=1" in last_stage
    assert "RUN" not in last_stage


@pytest.mark.parametrize("image", PYTHON_IMAGES)
def test_installs_only_what_is_locked(image: str) -> None:
    installs = re.findall(r"pip install (.*?)(?: \\)?$", _text(image), re.MULTILINE)
    assert len(installs) == 3
    for options in installs:
        assert ("--require-hashes" in options and "--only-binary :all:" in options) or (
            "--no-deps" in options and "--no-index" in options
        )


@pytest.mark.parametrize("image", PYTHON_IMAGES)
def test_starts_a_program_of_the_package(image: str) -> None:
    entry = re.search(r'^ENTRYPOINT \["([a-z-]+)"', _text(image), re.MULTILINE)
    assert entry
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    assert entry[1] in project["scripts"]


@pytest.mark.parametrize("image", PYTHON_IMAGES)
def test_lock_is_a_part_of_the_projects_and_has_what_the_extra_asks(image: str) -> None:
    """Fails after `make lock`: run images/lock.sh then."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    pins, whole = _pins(IMAGES / image / "requirements.txt"), _pins(CHECKOUT / "requirements.txt")
    assert pins
    assert {name: whole.get(name) for name in pins} == pins
    asked = [*project["dependencies"], *project["optional-dependencies"][PYTHON_IMAGES[image]]]
    wanted = {re.split(r"[<>=!~\[; ]", one)[0].lower() for one in asked}
    assert wanted <= set(pins)


@pytest.mark.parametrize(
    ("path", "wanted"),
    [("requirements-build.txt", {"hatchling"}), ("router/requirements-build.txt", {"hatchling", "mypy", "setuptools"})],
)
def test_build_lock_is_a_part_of_the_projects(path: str, wanted: set[str]) -> None:
    pins, whole = _pins(IMAGES / path), _pins(CHECKOUT / "requirements-dev.txt")
    assert wanted <= set(pins)
    assert {name: whole.get(name) for name in pins} == pins


def _sending() -> list[str]:
    lines = (CHECKOUT / ".dockerignore").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _sent(path: str, rules: list[str]) -> bool:
    """Whether the build context has a path, by .dockerignore's last matching rule (ours are plain names)."""
    sent = True
    for rule in rules:
        name = rule.removeprefix("!")
        if name == "*" or path == name or path.startswith(f"{name}/") or name.startswith(f"{path}/"):
            sent = rule.startswith("!")
    return sent


def test_build_context_has_what_the_wheel_is_made_of() -> None:
    wheel = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [*wheel["packages"], wheel["hooks"]["custom"]["path"], *wheel["force-include"]]
    assert [path for path in needed if not _sent(path, _sending())] == []


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_copies_files_that_exist_and_are_sent(path: Path) -> None:
    rules = _sending()
    for line in re.findall(r"^COPY (?!--from)(?:--\S+ )?(.+)$", path.read_text(), re.MULTILINE):
        for source in line.split()[:-1]:
            assert (CHECKOUT / source).exists(), source
            assert _sent(source, rules), f"{source} is not in the build context"


def test_version_tags_in_the_build_commands_are_ours() -> None:
    version = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["version"]
    for image in ("operator", "router"):
        assert f"-t shoal/{image}:{version} ." in _text(image)


def test_router_is_compiled_by_the_python_that_runs_it_and_ships_without_a_compiler() -> None:
    first, last = _text("router").split("\nFROM ")[:2], _text("router").split("\nFROM ")[-1]
    bases = re.findall(r"^ARG (\w+)=python:([\d.]+)-(slim-)?(\w+)$", first[0], re.MULTILINE)
    assert [(name, slim) for name, _, slim, _ in bases] == [("BASE", "slim-"), ("BUILD_BASE", "")]
    assert len({(version, debian) for _, version, _, debian in bases}) == 1
    assert first[1].startswith("${BUILD_BASE} AS build\n")
    assert "HATCH_BUILD_HOOK_ENABLE_CUSTOM=1" in first[1]
    assert last.startswith("${BASE}\n")


def test_python_is_one_that_the_package_supports() -> None:
    for image in PYTHON_IMAGES:
        base = re.search(r"^ARG BASE=python:(\d+)\.(\d+)\.\d+-slim-\w+$", _text(image), re.MULTILINE)
        assert base, "the base has an exact tag"
        assert (int(base[1]), int(base[2])) >= (3, 11)
