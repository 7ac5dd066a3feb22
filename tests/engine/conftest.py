"""`--engine-env DIR`: the folder that setup_cpu_engine.sh prepared (`make test-engine` passes it)."""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine-env", type=Path, default=None, help="folder of a prepared CPU engine")


@pytest.fixture(scope="module")
def engine_env(request: pytest.FixtureRequest) -> Path:
    found: Path | None = request.config.getoption("--engine-env")
    if found is None:
        pytest.skip("needs --engine-env DIR, a real SGLang engine on the CPU: run `make test-engine`")
    return found.resolve()
