"""A value read from the API that is kept until news says that it is old. One per list that reconcilers share.

A reader never gets a value whose reading began before the last news: it waits for a new reading instead, which all
waiting readers share. Readings begin `interval_s` apart, further where they take long, so that a burst of events costs
one reading and not one each; `age_max_s` bounds how long a missed event can matter.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
PAUSE_S_MAX: Final = 3.0


class Cached(Generic[T]):
    def __init__(
        self,
        read: Callable[[], Awaitable[T]],
        *,
        interval_s: float = 0.5,
        age_max_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._interval_s = interval_s
        self._age_max_s = age_max_s
        self._clock = clock
        self._lock = asyncio.Lock()
        self._value: T | None = None
        self._read_at_s = float("-inf")
        self._took_s = 0.0
        self._stale = True

    def touch(self) -> None:
        """Something changed: the next reader gets a reading that began after now."""
        self._stale = True

    async def get(self) -> T:
        async with self._lock:
            if self._stale or self._clock() - self._read_at_s > self._age_max_s or self._value is None:
                pause_s = self._read_at_s + max(self._interval_s, min(4 * self._took_s, PAUSE_S_MAX)) - self._clock()
                if pause_s > 0:
                    await asyncio.sleep(pause_s)
                # Before the request: news that arrives while it is under way makes it old again.
                self._stale = False
                self._read_at_s = self._clock()
                try:
                    self._value = await self._read()
                except BaseException:
                    self._stale = True
                    raise
                self._took_s = self._clock() - self._read_at_s
            return self._value
