"""`shoal-router`, `python -m shoal_router`."""

import asyncio
import gc
import sys
from typing import Final

import uvloop

from shoal_router import log, settings
from shoal_router.runtime import Runtime

GC_THRESHOLDS: Final = (2000, 5, 2000)
"""A request leaves no cycles behind, so there is next to nothing to collect; but a full collection walks the mirrors of
all caches, a tenth of a second in which no byte moves. With these it comes about once in an hour of heavy traffic."""


async def _run(found: settings.Settings) -> int:
    return await Runtime(found, asyncio.get_running_loop()).run()


def main(argv: list[str] | None = None) -> int:
    found = settings.parse(argv)
    log.configure(found.log_level)
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(found))


if __name__ == "__main__":
    sys.exit(main())
