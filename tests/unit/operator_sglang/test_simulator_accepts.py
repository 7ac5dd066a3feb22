"""The engine simulator takes every golden command line: two tables of one version, kept apart, must agree.

In a process of its own, because operator and simulator never import each other.
"""

import json
import os
import pathlib
import subprocess
import sys

from shoal_operator.sglang import flags, launch
from shoal_testing import services

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = """
import json, sys
from shoal_sim import flags
given = json.load(sys.stdin)
for argv in given["lines"]:
    flags.parse(argv)
_, _, known = flags.load_table()
json.dump(sorted(set(given["spellings"]) - set(known)), sys.stdout)
"""


def test_simulator_accepts_every_golden_command_line() -> None:
    table = flags.table("0.5.23")
    assert table is not None
    lines = [
        [one.replace("$(POD_IP)", "127.0.0.1") for one in launch.render_launch(service, profile).argv]
        for service in (services.service(case) for case in services.CASES if case != "s3-unchecked")
        for profile in service.profiles
    ]
    rendered = sorted({one for line in lines for one in line if one.startswith("--")})
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps({"lines": lines, "spellings": rendered}),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / folder) for folder in ("crds", "simulator"))},
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == []
