"""From the port to the scheduler: when a request is seen.

Two things of SGLang lie between. One process reads requests, checks and tokenizes them, one after the other; what that
costs is a profile's `reception`. And the scheduler prepares a step while the one before it runs (its overlap schedule,
on unless --disable-overlap-schedule). So what comes during a step finds the next one prepared and is looked at for the
one after: a decode step lies between a prompt's last chunk and prompts that came meanwhile.

Pure: told the time, any clock's. Held by the engine process and by the fleet simulator.
"""

from collections import deque
from collections.abc import Callable

from shoal_sim.profiles import ReceptionTiming
from shoal_sim.request import Request


class Arrivals:
    """Requests that the scheduler has not seen, in the order of their arrival."""

    __slots__ = ("_busy_until_s", "_overlap", "_timing", "_waiting")

    def __init__(self, timing: ReceptionTiming, overlap: bool) -> None:
        self._timing = timing
        self._overlap = overlap
        self._busy_until_s = 0.0
        self._waiting: deque[tuple[float, Request]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def requests(self) -> list[Request]:
        return [request for _, request in self._waiting]

    def read(self, tokens: int, text: bool, now_s: float) -> float:
        """A prompt has come; returns when it has been read, and tokenized if it is text."""
        timing = self._timing
        work_s = timing.request_s + tokens * (timing.text_token_s if text else timing.id_s)
        self._busy_until_s = max(now_s, self._busy_until_s) + work_s
        return self._busy_until_s

    def add(self, request: Request, text: bool, now_s: float) -> float:
        """Takes a request; returns when the scheduler could see it. The way back of its first token is in that."""
        tokens = request.prompt.tokens if request.choice == 0 else 0  # further choices share what was read
        here_s = self.read(tokens, text, now_s) + self._timing.latency_s
        self._waiting.append((here_s, request))
        return here_s

    @property
    def next_s(self) -> float | None:
        """When the first of them could be seen."""
        return self._waiting[0][0] if self._waiting else None

    def due(self, step_began_s: float, now_s: float) -> list[Request]:
        """Takes those that the step after the one that ends now is planned with."""
        return self.here(step_began_s if self._overlap else now_s)

    def here(self, now_s: float) -> list[Request]:
        """Takes all that could be seen: for when nothing has been prepared."""
        taken: list[Request] = []
        while self._waiting and self._waiting[0][0] <= now_s:
            taken.append(self._waiting.popleft()[1])
        return taken

    def withdraw(self, matches: Callable[[Request], bool]) -> list[Request]:
        """Takes out those that match, wherever they are."""
        taken = [request for _, request in self._waiting if matches(request)]
        if taken:
            self._waiting = deque(one for one in self._waiting if not matches(one[1]))
        return taken
