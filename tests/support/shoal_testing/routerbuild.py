"""`--router compiled`: tests import the compiled router, and the router processes that they start run it.

A pytest plugin (tests/conftest.py names it). `make test` asks for it: what ships is what is tested. `make
test-interpreted` runs the router's own tests without. It is compiled where the cache lacks it.
"""

import sys
from pathlib import Path
from typing import Final

import pytest

import build_compiled

CHOICES: Final = ("interpreted", "compiled")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--router", choices=CHOICES, default=CHOICES[0], help="which build of the router tests are about")


def pytest_configure(config: pytest.Config) -> None:
    """Before any test module is imported."""
    if config.getoption("--router") != "compiled":
        return
    early = [name for name in sys.modules if name.partition(".")[0] == "shoal_router"]
    if early:
        raise pytest.UsageError(f"imported before the compiled router could be put in front: {early}")
    sys.path.insert(0, str(build_compiled.ensure(print)))


def pytest_report_header(config: pytest.Config) -> str:
    return f"router: {config.getoption('--router')}, {folder()}"


def folder() -> Path:
    """What holds the `shoal_router` that this process would import."""
    found = next(path for path in sys.path if (Path(path) / "shoal_router" / "__main__.py").is_file())
    return Path(found).resolve()
