"""Golden files: what is rendered is compared with a committed file, or written anew with `pytest --update-golden`.

One small file an object or command line, so that a review shows what a change does to whom.
"""

import pathlib
from collections.abc import Mapping

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2] / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files in place of comparing with them")


class Golden:
    """Compares texts with files under tests/golden."""

    def __init__(self, update: bool) -> None:
        self._update = update

    def check(self, path: str, text: str) -> None:
        """One file; the text is compared as it is."""
        file = ROOT / path
        if self._update:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            return
        assert file.exists(), f"{path} is missing: run pytest --update-golden and review what it writes"
        assert text == file.read_text(encoding="utf-8"), f"{path} differs: if that is meant, run pytest --update-golden"

    def check_folder(self, folder: str, texts: Mapping[str, str]) -> None:
        """A whole folder: every text has its file and every file its text."""
        if self._update:
            for stale in (ROOT / folder).glob("*"):
                if stale.name not in texts:
                    stale.unlink()
        for name, text in texts.items():
            self.check(f"{folder}/{name}", text)
        found = {file.name for file in (ROOT / folder).glob("*")}
        assert found == set(texts), f"{folder} holds files that nothing renders: {sorted(found - set(texts))}"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(update=request.config.getoption("--update-golden"))
