"""Which build of the router tests are about: `--router`.

- `interpreted`, the default: the sources, in router processes and in the test process.
- `processes`: router processes run as they ship, compiled; what tests import stays as it is, open to be patched.
- `compiled`: what tests import is compiled as well.

`make test` asks for `processes`; `make test-compiled` and `make test-interpreted` run the router's own tests with the
other two. It is compiled where the cache lacks it. A pytest plugin (tests/conftest.py names it).
"""

import os
import sys
from pathlib import Path
from typing import Final

import pytest

import build_compiled

CHOICES: Final = ("interpreted", "processes", "compiled")
_FOLDER: Final = "SHOAL_TEST_ROUTER_FOLDER"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--router", choices=CHOICES, default=CHOICES[0], help="which build of the router tests are about")


def pytest_configure(config: pytest.Config) -> None:
    """Before any test module is imported."""
    choice = config.getoption("--router")
    found = build_compiled.ROOT / "router" if choice == "interpreted" else build_compiled.ensure(print)
    os.environ[_FOLDER] = str(found)
    if choice != "compiled":
        return
    early = [name for name in sys.modules if name.partition(".")[0] == "shoal_router"]
    if early:
        raise pytest.UsageError(f"imported before the compiled router could be put in front: {early}")
    sys.path.insert(0, str(found))


def pytest_report_header(config: pytest.Config) -> str:
    return f"router: {config.getoption('--router')}, {folder()}"


def folder() -> Path:
    """Of the `shoal_router` that router processes run."""
    return Path(os.environ[_FOLDER])
