"""Our own load generator: arrivals at a constant rate, and thousands of streams. Raw protocols on one event loop.

wrk does the rest (`wrk`), but it sends the next request when the last was answered, so it hides waiting, and it does
not look into streams. Called by `measure` inside a running loop. Every wait has a deadline; what a router does wrong
is counted, and raised as LoadError by the functions that must have all answers.
"""

import asyncio
import collections
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from shoal_bench.router import pacer
from shoal_bench.router.bodies import Template

CONNECTIONS_MAX: Final = 512
OPENING_AT_ONCE: Final = 64
DEADLINE_S: Final = 60.0
DRAIN_S: Final = 10.0
_OK: Final = b"HTTP/1.1 200 "
_EVENT: Final = b"data: {"
_CARRIED: Final = len(_EVENT) - 1


class LoadError(Exception):
    """A router did not answer as it must, or not in time."""


@dataclass(slots=True)
class Tally:
    """What streams have brought so far."""

    events: int = 0
    first_s: list[float] = field(default_factory=list)
    """When the first event of each stream came."""
    done: int = 0
    broken: list[str] = field(default_factory=list)


class Stream(asyncio.Protocol):
    """One connection with one streamed request."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._transport: asyncio.Transport | None = None
        self._carried = b""
        self._answered = False
        self._begun = False
        self._done = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def send(self, request: bytes) -> None:
        if self._transport is None:
            raise LoadError("a connection was closed before its request was sent")
        self._transport.write(request)

    def abort(self) -> None:
        self._done = True
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        tally = self._tally
        if not self._answered:
            self._answered = True
            if not data.startswith(_OK):
                tally.broken.append(data[:200].decode(errors="replace"))
        text = self._carried + data
        self._carried = text[-_CARRIED:]
        events = text.count(_EVENT)
        tally.events += events
        if events and not self._begun:
            self._begun = True
            tally.first_s.append(time.monotonic())
        if b"[DONE]" in text and not self._done:
            self._done = True
            tally.done += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self._done:
            self._tally.broken.append(f"closed before its end: {exc or self._carried!r}")


async def connect(
    host: str, port: int, count: int, tally: Tally, request: Callable[[int], bytes] | None = None
) -> list[Stream]:
    """So many open connections; with `request`, each sends its own as soon as it is open. Raises LoadError."""
    loop = asyncio.get_running_loop()
    gate = asyncio.Semaphore(OPENING_AT_ONCE)
    opened: list[Stream] = []

    async def one(number: int) -> None:
        async with gate:
            _, protocol = await loop.create_connection(lambda: Stream(tally), host, port)
            opened.append(protocol)
            if request is not None:
                protocol.send(request(number))

    try:
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*(one(number) for number in range(count)))
    except (OSError, TimeoutError, LoadError) as error:
        for stream in opened:
            stream.abort()
        raise LoadError(f"{count} connections could not be opened: {error!r}") from error
    return opened


async def until(condition: Callable[[], bool], tally: Tally, what: str, deadline_s: float = DEADLINE_S) -> None:
    """Waits for streams. Raises LoadError at the deadline, or when one breaks."""
    end = time.monotonic() + deadline_s
    while not condition():
        if tally.broken:
            raise LoadError(f"{len(tally.broken)} streams broke, the first: {tally.broken[0]}")
        if time.monotonic() > end:
            raise LoadError(f"{what}: not in {deadline_s:.0f} s")
        await asyncio.sleep(0.02)


class _Caller(asyncio.Protocol):
    """A kept connection for requests that do not stream."""

    def __init__(self, owner: "OpenLoop") -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._due_s = 0.0
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def send(self, request: bytes, due_s: float) -> None:
        self._due_s = due_s
        self._answer = b""
        assert self._transport is not None
        self._transport.write(request)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        answer = self._answer + data if self._answer else data
        if answer_ended(answer):
            self._owner.answered(self, self._due_s, answer.startswith(_OK))
        else:
            self._answer = answer

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._owner.lost(self)


def answer_ended(answer: bytes) -> bool:
    """Whether a whole answer has arrived, with a length or in chunks."""
    end = answer.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = answer[:end].lower()
    at = head.find(b"\r\ncontent-length:")
    if at < 0:
        return answer.endswith(b"\r\n0\r\n\r\n")
    stop = head.find(b"\r\n", at + 2)
    length = int(head[at + 17 : stop if stop >= 0 else len(head)])
    return len(answer) >= end + 4 + length


class OpenLoop:
    """Requests at a constant rate whatever the answers do; latency counts from when a request was due."""

    def __init__(self, host: str, port: int, templates: Sequence[Template], first_number: int) -> None:
        self._host, self._port = host, port
        self._templates = templates
        self._authority = f"{host}:{port}"
        self._number = first_number
        self._idle: list[_Caller] = []
        self._waiting: collections.deque[float] = collections.deque()
        """Due times of requests without a connection; as long as the run at most."""
        self._busy = 0
        self._drained: asyncio.Event | None = None
        self.latencies_s: list[float] = []
        self.bad = 0
        self.lost_count = 0

    async def run(self, rate_per_s: float, seconds: float, connections: int) -> None:
        """Raises LoadError unless every request was answered with 200."""
        loop = asyncio.get_running_loop()
        ticks = pacer.Pacer(loop, rate_per_s, self._on_due)
        try:
            async with asyncio.timeout(DEADLINE_S):
                for _ in range(min(connections, CONNECTIONS_MAX)):
                    _, caller = await loop.create_connection(lambda: _Caller(self), self._host, self._port)
                    self._idle.append(caller)
            ticks.start()
            await asyncio.sleep(seconds)
            ticks.stop()
            if self._busy or self._waiting:
                self._drained = asyncio.Event()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._drained.wait(), DRAIN_S)
            left = self._busy + len(self._waiting)
        except OSError as error:
            raise LoadError(f"no connection: {error!r}") from error
        finally:
            ticks.stop()
            callers, self._idle = self._idle, []
            for one in callers:
                one.close()
        if left or self.bad or self.lost_count:
            raise LoadError(
                f"of {len(self.latencies_s) + left} requests {left} had no answer, {self.bad} another than 200, "
                f"{self.lost_count} connections were closed"
            )

    def _on_due(self, due_s: float) -> None:
        if self._idle:
            self._send(self._idle.pop(), due_s)
        else:
            self._waiting.append(due_s)

    def _send(self, caller: _Caller, due_s: float) -> None:
        number = self._number
        self._number = number + 1
        self._busy += 1
        caller.send(self._templates[number % len(self._templates)].request(self._authority, number), due_s)

    def answered(self, caller: _Caller, due_s: float, good: bool) -> None:
        self._busy -= 1
        self.latencies_s.append(time.monotonic() - due_s)
        self.bad += not good
        if self._waiting:
            self._send(caller, self._waiting.popleft())
        else:
            self._idle.append(caller)
            if self._drained is not None and not self._busy:
                self._drained.set()

    def lost(self, caller: _Caller) -> None:
        if caller in self._idle:
            self._idle.remove(caller)
            self.lost_count += 1
