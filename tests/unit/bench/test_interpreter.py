"""The interpreter that a benchmark measures Shoal with."""

import subprocess
import sys

import orjson

from shoal_bench.peers import interpreter


def test_the_chosen_interpreter_has_this_version_and_sees_the_same_packages() -> None:
    chosen = interpreter.chosen()
    code = "import sys, orjson, uvloop; print(*sys.version_info[:2], orjson.__version__)"
    found = subprocess.run([str(chosen.program), "-c", code], check=True, capture_output=True, text=True, timeout=30)
    assert found.stdout.split() == [*map(str, sys.version_info[:2]), orjson.__version__]
    assert chosen.version in chosen.describe()
    assert 0.0 < chosen.ratio <= 1.0
