"""What has happened so far in the demo: phases with their seconds, and events. The story writes, the screen reads.

In line mode every phase and event is printed when it happens, so a log of the demo is complete without a terminal.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

EVENTS_MAX = 200


@dataclass(slots=True)
class Phase:
    name: str
    began_s: float
    seconds: float | None = None
    """None while it runs."""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    at_s: float
    text: str


class Stage:
    """Times are seconds since the demo began."""

    def __init__(self, said: Callable[[str], None]) -> None:
        self.began_s = time.monotonic()
        self.phases: list[Phase] = []
        self.events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._said = said

    def now_s(self) -> float:
        return time.monotonic() - self.began_s

    def tell(self, text: str) -> None:
        event = Event(self.now_s(), text)
        self.events.append(event)
        self._said(f"[{event.at_s:5.1f} s] {text}")

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[Phase]:
        phase = Phase(name, self.now_s())
        self.phases.append(phase)
        self._said(f"[{phase.began_s:5.1f} s] == {name}")
        try:
            yield phase
        except BaseException:
            phase.failed = True
            raise
        finally:
            phase.seconds = self.now_s() - phase.began_s
            self._said(f"[{self.now_s():5.1f} s] == {name}: {phase.seconds:.1f} s{' (failed)' if phase.failed else ''}")

    def seconds(self) -> dict[str, float]:
        return {phase.name: round(phase.seconds, 2) for phase in self.phases if phase.seconds is not None}
