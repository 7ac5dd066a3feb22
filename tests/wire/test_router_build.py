"""A router says which build it is, and the one that was asked for is the one that runs."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import build_compiled
from shoal_testing import routerbuild
from shoal_testing.routers import ROOT, router

pytestmark = pytest.mark.wire


def test_metric_and_log_say_what_runs(pytestconfig: pytest.Config) -> None:
    asked = pytestconfig.getoption("--router") != "interpreted"
    with router({}) as one:
        assert one.metric("shoal_router_build_info", compiled=str(asked).lower()) == 1
        assert one.metric("shoal_router_build_info") == 1
        lines = [json.loads(line) for line in one.log.read_text().splitlines()]
        assert [line["compiled"] for line in lines if line["message"] == "listening"] == [asked]


def test_version(pytestconfig: pytest.Config) -> None:
    path = os.pathsep.join((str(routerbuild.folder()), str(ROOT / "crds")))
    argv = [sys.executable, "-P", "-m", "shoal_router", "--version"]
    environment = {**os.environ, "PYTHONPATH": path}
    said = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True, timeout=20).stdout
    assert said.startswith("shoal-router ")
    asked = "interpreted" if pytestconfig.getoption("--router") == "interpreted" else "compiled"
    assert said.rstrip().endswith(f"({asked})")


@pytest.mark.parametrize("name", build_compiled.compiled_files(ROOT / "router"))
def test_in_this_process(name: str, pytestconfig: pytest.Config) -> None:
    module = importlib.import_module(".".join(Path(name).relative_to(ROOT / "router").with_suffix("").parts))
    assert module.__file__ is not None
    assert module.__file__.endswith(".py") == (pytestconfig.getoption("--router") != "compiled")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_both_builds_decide_the_same(seed: int, pytestconfig: pytest.Config) -> None:
    """Anything a client or engine may send, and a simulated fleet: equal to the last bit."""
    if pytestconfig.getoption("--router") == "interpreted":
        pytest.skip("needs the compiled build too: --router processes")
    compiled, interpreted = (_decisions(folder, seed) for folder in (routerbuild.folder(), ROOT / "router"))
    assert len(interpreted) > 5000
    assert [pair for pair in zip(compiled, interpreted, strict=True) if pair[0] != pair[1]][:3] == []


def _decisions(folder: Path, seed: int) -> list[str]:
    path = os.pathsep.join(map(str, (folder, ROOT / "crds", ROOT / "simulator", ROOT / "tests" / "support")))
    argv = [sys.executable, "-P", "-m", "shoal_testing.decisions", str(seed)]
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
    said = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 0, said.stderr
    return said.stdout.splitlines()
