"""When a replica that keeps failing gets no requests for a while, and how retries are kept from becoming a flood.

Both are pure; every call is told the time. 4xx, 429 and a full queue are neutral: they say nothing of the engine.
"""

import enum
from typing import Final

FAILURES_MAX: Final = 3
OPEN_FIRST_S: Final = 1.0
OPEN_MAX_S: Final = 30.0


class Circuit(enum.Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    """One request at a time; its end decides."""


class Breaker:
    """Consecutive failures open it; after a pause that doubles each time it lets one request try."""

    __slots__ = ("_failures", "_open_s", "circuit", "open_until_s")

    def __init__(self) -> None:
        self.circuit = Circuit.CLOSED
        self._failures = 0
        self._open_s = OPEN_FIRST_S
        self.open_until_s = 0.0

    def on_success(self) -> None:
        self._failures = 0
        if self.circuit is not Circuit.OPEN:
            self.circuit = Circuit.CLOSED
            self._open_s = OPEN_FIRST_S

    def on_failure(self, now_s: float, may_open: bool) -> bool:
        """Count a failure; true if the circuit opens now. `may_open` is false where too much of the pool is out."""
        self._failures += 1
        tried = self.circuit is Circuit.HALF_OPEN
        if self.circuit is Circuit.OPEN or not may_open or not (tried or self._failures >= FAILURES_MAX):
            return False
        self.circuit = Circuit.OPEN
        self.open_until_s = now_s + self._open_s
        self._open_s = min(OPEN_MAX_S, self._open_s * 2)
        return True

    def half_open(self) -> None:
        """Let one request try: the pause is over, or a health probe says that the engine is back."""
        self.circuit = Circuit.HALF_OPEN
        self._failures = 0


def may_eject(routable: int, ejected: int) -> bool:
    """At most half of a service's replicas are ejected for failing requests: a fault that all share is not cured by
    sending everything to the last one."""
    return (ejected + 1) * 2 <= routable + ejected


class RetryBudget:
    """Retries may be a share of requests, with a small floor so that a quiet service can still retry."""

    __slots__ = ("_floor_at_s", "_tokens")

    SHARE: Final = 0.2
    FLOOR: Final = 10.0
    FLOOR_PER_S: Final = 1.0
    MAX: Final = 100.0

    def __init__(self, now_s: float) -> None:
        self._tokens = self.FLOOR
        self._floor_at_s = now_s

    def on_request(self) -> None:
        self._tokens = min(self.MAX, self._tokens + self.SHARE)

    def take(self, now_s: float) -> bool:
        """Spend one retry if there is one."""
        if self._tokens < self.FLOOR:
            self._tokens = min(self.FLOOR, self._tokens + (now_s - self._floor_at_s) * self.FLOOR_PER_S)
        self._floor_at_s = now_s
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
