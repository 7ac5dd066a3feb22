"""Virtual time: a heap of actions, run in the order of their time and, at equal times, in the order they were planned.

Background actions (samplers, pollers) do not keep a run going: it ends when nothing else is left.
"""

import heapq
import itertools
from collections.abc import Callable


class Event:
    """A planned action; `cancel` keeps it from happening."""

    __slots__ = ("action", "background")

    def __init__(self, action: Callable[[], None], background: bool) -> None:
        self.action: Callable[[], None] | None = action
        self.background = background


class Clock:
    """`now_s` is the time of the action that runs."""

    __slots__ = ("_count", "_foreground", "_heap", "now_s")

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Event]] = []
        self._count = itertools.count()
        self._foreground = 0

    def at(self, when_s: float, action: Callable[[], None], *, background: bool = False) -> Event:
        """Plans an action; a time that is over means now."""
        event = Event(action, background)
        heapq.heappush(self._heap, (max(when_s, self.now_s), next(self._count), event))
        self._foreground += not background
        return event

    def after(self, delay_s: float, action: Callable[[], None], *, background: bool = False) -> Event:
        return self.at(self.now_s + delay_s, action, background=background)

    def cancel(self, event: Event) -> None:
        if event.action is not None:
            event.action = None
            self._foreground -= not event.background

    def step(self) -> bool:
        """Runs the next action; false when no foreground action is left."""
        while self._foreground:
            when_s, _, event = heapq.heappop(self._heap)
            action = event.action
            if action is None:
                continue
            event.action = None
            self._foreground -= not event.background
            self.now_s = when_s
            action()
            return True
        return False
