"""Guards of the folder layout: an `operator/__init__.py` would shadow the standard library's `operator`."""

import pathlib
import subprocess
import sys
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = ("operator", "router", "simulator", "localcluster", "cli", "crds")


@pytest.mark.parametrize("folder", FOLDERS)
def test_source_folder_is_never_a_package(folder: str) -> None:
    assert not (ROOT / folder / "__init__.py").exists()


@pytest.mark.parametrize("folder", FOLDERS)
def test_source_folder_holds_no_module_named_like_the_standard_library(folder: str) -> None:
    names = {path.stem for path in (ROOT / folder).glob("*.py")}
    assert not names & sys.stdlib_module_names


def test_every_package_ships_in_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shipped = set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    present = {f"{folder}/{p.parent.name}" for folder in FOLDERS for p in (ROOT / folder).glob("shoal_*/__init__.py")}
    assert shipped == present


def test_source_files_stay_under_the_hard_limit() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    too_long = {str(p.relative_to(ROOT)): n for p in files if (n := len(p.read_text().splitlines())) > 600}
    assert not too_long, "split these files (hard limit 600 lines)"


def test_locks_hold_hashes_and_no_addresses() -> None:
    for name in ("requirements.txt", "requirements-dev.txt", "requirements-uv.txt"):
        text = (ROOT / name).read_text()
        pins = [line for line in text.splitlines() if "==" in line and not line.startswith((" ", "#"))]
        assert pins
        assert all(line.endswith("\\") for line in pins), f"{name}: a pin without hashes"
        assert "://" not in text, f"{name}: holds an address"
        assert "--index-url" not in text
        assert "--find-links" not in text


def test_nothing_tracked_names_a_machine_path() -> None:
    command = ["git", "grep", "-nIE", r"(^|[^a-zA-Z0-9_./-])/(work|farm)/", "--", ".", ":!tests/unit/test_layout.py"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 1, found.stdout
