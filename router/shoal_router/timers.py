"""One timer wheel for every deadline of the data path: header, idle, connect, write stall, queue age, lingering close.

Why: a `call_later` per request or chunk would cost a heap operation each time a byte arrives. A holder sets a float
(`deadline_s`) as often as it likes; the wheel looks at it only when the slot comes round, and puts it back if the
deadline has moved on. So a deadline is late by at most one tick and never early.
Used by server, upstream and dispatch; a leaf that imports nothing of the router.
"""

import asyncio
import math
import time
from typing import Final, Protocol

TICK_S = 0.05
_monotonic: Final = time.monotonic
_SLOTS = 1024
_NEVER = math.inf


class Timed(Protocol):
    """What the wheel holds."""

    deadline_s: float
    """Monotonic time at which `on_deadline` is due; `inf`: none for now."""
    timer_slot: int
    """Owned by the wheel: the slot that holds this object, -1 when none."""

    def on_deadline(self, now_s: float) -> None: ...


class Wheel:
    """Hashed wheel over monotonic time. Not thread-safe: one loop only."""

    __slots__ = ("_handle", "_loop", "_position", "_slots")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._slots: list[set[Timed]] = [set() for _ in range(_SLOTS)]
        self._position = int(time.monotonic() / TICK_S)
        self._handle: asyncio.TimerHandle | None = None

    def now(self) -> float:
        """The clock of the whole data path. Not `loop.time()`: uvloop's has steps of a millisecond, and tokens come
        faster than that."""
        return _monotonic()

    def start(self) -> None:
        self._position = int(time.monotonic() / TICK_S)
        self._handle = self._loop.call_later(TICK_S, self._tick)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def arm(self, item: Timed, deadline_s: float) -> None:
        """Set the deadline. An item that is already in the wheel for an earlier slot stays there and is moved later."""
        item.deadline_s = deadline_s
        if item.timer_slot >= 0:
            if self._due_before(item.timer_slot, deadline_s):
                return
            self._slots[item.timer_slot].discard(item)
        self._insert(item)

    def disarm(self, item: Timed) -> None:
        """Take the item out; needed once, when its holder dies. To pause a deadline set `deadline_s = inf`."""
        item.deadline_s = _NEVER
        if item.timer_slot >= 0:
            self._slots[item.timer_slot].discard(item)
            item.timer_slot = -1

    def _due_before(self, slot: int, deadline_s: float) -> bool:
        ahead = (slot - self._position) % _SLOTS
        return (self._position + ahead) * TICK_S <= deadline_s

    def _insert(self, item: Timed) -> None:
        tick = self._position + _SLOTS - 1 if item.deadline_s == _NEVER else math.ceil(item.deadline_s / TICK_S)
        # A far deadline waits in the last slot of this turn and is put back from there.
        tick = min(max(tick, self._position + 1), self._position + _SLOTS - 1)
        item.timer_slot = tick % _SLOTS
        self._slots[item.timer_slot].add(item)

    def _tick(self) -> None:
        now_s = time.monotonic()
        self._handle = self._loop.call_later(TICK_S, self._tick)
        while self._position < int(now_s / TICK_S):
            self._position += 1
            slot = self._slots[self._position % _SLOTS]
            if slot:
                self._fire(slot, now_s)

    def _fire(self, slot: set[Timed], now_s: float) -> None:
        items = list(slot)
        slot.clear()
        for item in items:
            item.timer_slot = -1
        try:
            while items:
                item = items.pop()
                if item.timer_slot >= 0:
                    continue  # armed anew by another item's callback
                if item.deadline_s <= now_s:
                    item.deadline_s = _NEVER
                    item.on_deadline(now_s)
                elif item.deadline_s != _NEVER:
                    self._insert(item)
        finally:
            for item in items:  # what one of them raised must not cost the others their deadlines
                if item.timer_slot < 0 and item.deadline_s != _NEVER:
                    self._insert(item)
