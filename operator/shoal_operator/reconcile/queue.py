"""The work queue: which object is reconciled next, and never twice at once.

Any number of events for one key become one entry. A key that is asked for while it is being worked on is worked on
once more afterwards. Failures of a key back off exponentially to a cap and are forgotten at the first success; other
keys are not held up. The number of entries is bounded by the number of objects. One asyncio loop only.
"""

import asyncio
import heapq
import random
import time
from collections.abc import Callable
from typing import Final

from shoal_operator.reconcile.outcome import Done, Failed, Key, Outcome, Requeue

BACKOFF_FIRST_S: Final = 0.2
BACKOFF_CAP_S: Final = 60.0


class WorkQueue:
    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        backoff_first_s: float = BACKOFF_FIRST_S,
        backoff_cap_s: float = BACKOFF_CAP_S,
    ) -> None:
        self._clock = clock
        self._jitter = jitter
        self._backoff_first_s = backoff_first_s
        self._backoff_cap_s = backoff_cap_s
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []  # may hold entries that `_due` no longer agrees with
        self._running: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()

    @property
    def depth(self) -> int:
        """Keys that could be worked on now."""
        now = self._clock()
        return sum(due <= now and key not in self._running for key, due in self._due.items())

    @property
    def running(self) -> int:
        return len(self._running)

    def add(self, key: Key) -> None:
        """Work on it as soon as possible; news about an object also ends its back-off."""
        self.add_after(key, 0.0)

    def add_after(self, key: Key, delay_s: float) -> None:
        """Work on it in `delay_s`, or earlier where that was already asked for."""
        due = self._clock() + max(0.0, delay_s)
        known = self._due.get(key)
        if known is not None and known <= due:
            return
        self._due[key] = due
        if key not in self._running:
            self._push(key, due)

    def take(self) -> Key | None:
        """The next key that is due, marked as being worked on; None when there is none now."""
        while self._heap:
            due, key = self._heap[0]
            if self._due.get(key) != due or key in self._running:
                heapq.heappop(self._heap)
                continue
            if due > self._clock():
                return None
            heapq.heappop(self._heap)
            del self._due[key]
            self._running.add(key)
            return key
        return None

    def done(self, key: Key, outcome: Outcome) -> None:
        """The work that `take` began has ended."""
        self._running.discard(key)
        asked = self._due.get(key)  # while it was being worked on
        if asked is not None:
            self._push(key, asked)
        match outcome:
            case Done():
                self._failures.pop(key, None)
            case Requeue(after_s=after_s):
                self._failures.pop(key, None)
                self.add_after(key, after_s)
            case Failed(retry_after_s=retry_after_s):
                self.add_after(key, self._backoff(key) if retry_after_s is None else retry_after_s)

    def clear(self) -> None:
        """Forget everything that waits (leadership was lost); what is being worked on ends by itself."""
        self._due.clear()
        self._heap.clear()
        self._failures.clear()

    async def wait(self) -> Key:
        """`take`, waiting until there is something to take."""
        while True:
            self._changed.clear()
            key = self.take()
            if key is not None:
                return key
            # take() left at the heap's top the earliest entry that is true.
            timeout_s = max(0.0, self._heap[0][0] - self._clock()) if self._heap else None
            try:
                await asyncio.wait_for(self._changed.wait(), timeout_s)
            except TimeoutError:
                continue

    def _push(self, key: Key, due: float) -> None:
        heapq.heappush(self._heap, (due, key))
        self._changed.set()

    def _backoff(self, key: Key) -> float:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        # The exponent is capped before the power: 2.0 ** 1100 overflows after a night of failures.
        delay_s = min(self._backoff_cap_s, self._backoff_first_s * 2.0 ** min(failures, 16))
        return delay_s * (0.75 + 0.5 * self._jitter())
