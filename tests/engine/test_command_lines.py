"""Every golden command line, parsed by the real SGLang's own parser (`make test-engine`)."""

import json
import os
import pathlib
import subprocess

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser(allow_abbrev=False)
ServerArgs.add_cli_args(parser)
for name, argv in json.load(sys.stdin).items():
    parsed = parser.parse_args(argv)
    print(name, parsed.served_model_name, parsed.page_size, parsed.max_running_requests, flush=True)
"""


def test_real_parser_takes_every_golden_command_line(engine_env: pathlib.Path) -> None:
    environment = json.loads((engine_env / "environment.json").read_text())
    # The case of a version that nobody knows passes made-up flags verbatim, on purpose.
    files = [one for one in sorted((ROOT / "tests/golden/argv").glob("*.txt")) if "unchecked" not in one.name]
    lines = {one.stem: one.read_text(encoding="utf-8").splitlines() for one in files}
    ran = subprocess.run(
        [f"{environment['PATH']}/python", "-c", PROGRAM],
        input=json.dumps(lines),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert [line.split()[0] for line in ran.stdout.splitlines() if line.split()[0] in lines] == list(lines)
