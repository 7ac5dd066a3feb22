"""`shoal-router`, `python -m shoal_router`."""

import asyncio
import sys

import uvloop

from shoal_router import log, settings
from shoal_router.runtime import Runtime


async def _run(found: settings.Settings) -> int:
    return await Runtime(found, asyncio.get_running_loop()).run()


def main(argv: list[str] | None = None) -> int:
    found = settings.parse(argv)
    log.configure(found.log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(found))


if __name__ == "__main__":
    sys.exit(main())
