"""The compiled router's build: what is compiled, when it is built anew, and what it says where it cannot be."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import build_compiled
from shoal_local import buildcache

ROUTER = build_compiled.ROOT / "router"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A checkout whose router is one module, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def made(text: str) -> Path:
        root = tmp_path / "checkout"
        for folder in ("router/shoal_router", "crds/shoal_api"):
            (root / folder).mkdir(parents=True, exist_ok=True)
            (root / folder / "__init__.py").touch()
        (root / "router" / "shoal_router" / "model.py").write_text(text)
        return root

    return made


@pytest.mark.parametrize("pattern", build_compiled.COMPILED)
def test_every_pattern_names_something(pattern: str) -> None:
    assert list((ROUTER / "shoal_router").glob(pattern))


def test_what_starts_and_discovers_stays_as_it_is() -> None:
    compiled = {path.removeprefix(f"{ROUTER}/shoal_router/") for path in build_compiled.compiled_files(ROUTER)}
    assert "dispatch/exchange.py" in compiled
    assert not [path for path in compiled if path.endswith("__init__.py")]
    assert not compiled & {"__main__.py", "runtime.py", "settings.py", "log.py", "server/admin.py", "server/metrics.py"}
    assert not [path for path in compiled if path.startswith("discovery/")]


def test_key_follows_the_sources(tmp_path: Path) -> None:
    package, api = tmp_path / "shoal_router", tmp_path / "shoal_api"
    for folder in (package, api):
        folder.mkdir()
        (folder / "a.py").write_text("one = 1\n")
    before = build_compiled.key_of(package, api)
    assert build_compiled.key_of(package, api) == before
    (api / "a.py").write_text("one = 2\n")
    changed = build_compiled.key_of(package, api)
    (package / "b.py").touch()
    assert len({before, changed, build_compiled.key_of(package, api)}) == 3
    (package / "b.pyc").touch()
    assert build_compiled.key_of(package, api) == build_compiled.key_of(package, api)


def test_build_is_used_again_and_marked_as_used(project: Callable[[str], Path]) -> None:
    root = project("")
    found = build_compiled.cache() / build_compiled.key_of(root / "router/shoal_router", root / "crds/shoal_api")
    found.mkdir(parents=True)
    said: list[str] = []
    assert build_compiled.ensure(said.append, root) == found
    assert said == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("value: int = 'text'\n", "model.py:1"),
        ("def f(numbers: list[int]) -> list[int]:\n    lazy = (n for n in numbers)\n    return [*lazy]\n", "eagerly"),
    ],
)
def test_what_cannot_be_compiled_is_told_and_not_kept(project: Callable[[str], Path], text: str, says: str) -> None:
    root = project(text)
    with pytest.raises(build_compiled.BuildError, match=says):
        build_compiled.ensure(root=root)
    assert [path.name for path in build_compiled.cache().iterdir()] == [".lock"]


def test_build_holds_sources_and_what_was_made_of_them(project: Callable[[str], Path]) -> None:
    said: list[str] = []
    root = project("def half(value: int) -> float:\n    return value / 2\n")
    (root / "router" / "shoal_router" / "log.py").write_text("from shoal_router.model import half\n")
    built = build_compiled.ensure(said.append, root)
    assert said[0].startswith("Compiling the router")
    code = "from shoal_router import log, model; print(log.half(3), model.__file__, log.__file__)"
    argv = [sys.executable, "-P", "-B", "-c", code]
    shown = subprocess.run(argv, env={"PYTHONPATH": str(built)}, capture_output=True, text=True, check=True, timeout=20)
    half, compiled, plain = shown.stdout.split()
    assert half == "1.5"
    assert compiled.endswith(".so")
    assert plain == str(built / "shoal_router" / "log.py")
    assert (built / "shoal_router" / "model.py").is_file()
    assert build_compiled.ensure(said.append, root) == built
    assert len(said) == 2


def test_machine_without_a_compiler_is_told_what_to_install(
    project: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(build_compiled.BuildError, match="apt-get install gcc"):
        build_compiled.ensure(root=project(""))


def test_builds_used_longest_ago_go(tmp_path: Path) -> None:
    for number in range(build_compiled.KEPT_BUILDS + 2):
        (tmp_path / str(number)).mkdir()
        os.utime(tmp_path / str(number), (number, number))
    (tmp_path / ".lock").touch()
    buildcache.prune(tmp_path / "0", build_compiled.KEPT_BUILDS)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "2", "3", "4", "5"]
