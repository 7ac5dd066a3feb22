"""Runs a program of ours in compressed time: `python -m shoal_bench.routing.fastclock 10 shoal_router --port ...`

Where engines, arrivals and think times are ten times as fast, a router whose rules hold seconds (half a second of work
on a replica at most, so much ageing a second) would follow other rules than in production. So its clock runs at the
same rate: it sees the seconds of the model, and its code is unchanged. Liveness checks keep real seconds, because what
they guard against here, a process that gets no core for a moment, is real. Started by `routers`.
"""

import runpy
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import uvloop

REAL_TIME: Final = {
    "shoal_router.dispatch.health": (
        *("STEP_S", "PROBE_EVERY_S", "PROBE_SOON_S", "PROBE_TIMEOUT_S", "SUSPECT_S", "STALL_S", "GENERATE_LEAD_S"),
        *("GENERATE_TIMEOUT_S", "UNSTREAMED_STALL_S", "INFO_EVERY_S", "INFO_TIMEOUT_S"),
    ),
    "shoal_router.upstream.pool": ("CONNECT_TIMEOUT_S", "IDLE_S"),
    "shoal_router.upstream.connection": ("STALE_MAX_S",),
}
"""Constants that are seconds of this machine, by module."""


def compress(rate: float) -> None:
    """From now on, clocks and timers of this process run at `rate`. Before anything imports the clock by name."""
    real: Callable[[], float] = time.monotonic
    start_s = real()
    time.monotonic = lambda: start_s + (real() - start_s) * rate

    class Loop(uvloop.Loop):
        def call_later(self, delay: float, callback: Any, *args: Any, **more: Any) -> Any:  # type: ignore[override]
            return super().call_later(delay / rate, callback, *args, **more)

    uvloop.new_event_loop = Loop


def keep_real(rate: float) -> None:
    """Turns the constants of `REAL_TIME` into seconds of the compressed clock. Fails where one is gone, and on compiled
    modules, which have theirs inside and would not hear of it."""
    for module, names in REAL_TIME.items():
        loaded = __import__(module, fromlist=["_"])
        if not str(loaded.__file__).endswith(".py"):
            raise SystemExit(f"{loaded.__file__} is compiled: its constants cannot be changed")
        for name in names:
            setattr(loaded, name, getattr(loaded, name) * rate)


def main(argv: list[str]) -> None:
    rate, module = float(argv[0]), argv[1]
    compress(rate)
    keep_real(rate)
    sys.argv = [module, *argv[2:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
