"""A simulated engine that writes down every step: `python -m shoal_bench.slicing.traced FILE engine ...`

One JSON line a step: its end by `time.monotonic` (one clock for all processes of a machine), its seconds, for each part
of a prompt the first bytes of that prompt, the tokens computed and those before them, and the size of the decode batch.
The engine is `shoal_sim`'s, unchanged but for this. Started by `timeline`.
"""

import json
import runpy
import sys
import time
from collections.abc import Sequence
from typing import Any, TextIO

from shoal_bench.slicing.load import MARK_BYTES
from shoal_sim.batch import Batch
from shoal_sim.telemetry import Telemetry


def trace(out: TextIO) -> None:
    """From now on, engines of this process write their steps."""
    plain = Telemetry.step

    def step(self: Telemetry, batch: Batch, duration_s: float, *more: Any) -> None:
        pieces = [(one.request.prompt.data[:MARK_BYTES].hex(), one.tokens, one.prefix) for one in batch.prefill]
        out.write(json.dumps([time.monotonic(), duration_s, pieces, len(batch.decode)]) + "\n")
        plain(self, batch, duration_s, *more)

    setattr(Telemetry, "step", step)  # noqa: B010


def main(argv: Sequence[str]) -> None:
    # By lines: the process is killed, and what it has done by then is to be read.
    with open(argv[0], "w", buffering=1) as out:
        trace(out)
        sys.argv = ["shoal_sim", *argv[1:]]
        runpy.run_module("shoal_sim", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
