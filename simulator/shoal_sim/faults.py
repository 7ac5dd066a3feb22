"""Faults that tests switch on through /admin/fault: what can go wrong in an engine besides being killed.

* stall: steps stop; connections stay open and nothing more is produced, until stall is switched off again.
* crash_after_tokens: the process dies, without closing streams properly, after that many more generated tokens.
* slow_ready_s: /ready and /health answer 503 for that long from now.
* reject: every generation request is refused as if the queue were full.
"""

import asyncio
import os
import time
from dataclasses import dataclass

from shoal_sim.batch import Counters

CRASH_EXIT_CODE = 137


@dataclass(frozen=True, slots=True)
class FaultSettings:
    stall: bool = False
    crash_after_tokens: int | None = None
    slow_ready_s: float = 0.0
    reject: bool = False


class Faults:
    def __init__(self) -> None:
        self.settings = FaultSettings()
        self._running = asyncio.Event()
        self._running.set()
        self._ready_at = 0.0
        self._tokens_at_set = 0
        self._tokens = 0

    def apply(self, settings: FaultSettings) -> None:
        """Replaces all faults; the default settings switch everything off."""
        self.settings = settings
        self._tokens_at_set = self._tokens
        self._ready_at = time.monotonic() + settings.slow_ready_s
        if settings.stall:
            self._running.clear()
        else:
            self._running.set()

    @property
    def stalled(self) -> bool:
        return self.settings.stall

    @property
    def ready(self) -> bool:
        return time.monotonic() >= self._ready_at

    async def hold(self) -> None:
        """Returns when steps may go on."""
        if self.settings.stall:
            await self._running.wait()

    def produced(self, counters: Counters) -> None:
        """Notes progress; ends the process when the crash is due."""
        self._tokens = counters.generated
        limit = self.settings.crash_after_tokens
        if limit is not None and self._tokens - self._tokens_at_set >= limit:
            crash("crash_after_tokens")


def crash(reason: str) -> None:
    """Ends the process at once, as a killed engine ends: no goodbye on any connection."""
    os.write(2, f"shoal-sim: crashing: {reason}\n".encode())
    os._exit(CRASH_EXIT_CODE)
