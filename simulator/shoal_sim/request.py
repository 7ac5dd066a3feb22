"""One generation request (one choice of an API call) while the engine holds it."""

import asyncio
from dataclasses import dataclass
from enum import Enum

from shoal_sim.prompt import Prompt
from shoal_sim.tokens import Generator


class State(Enum):
    NEW = "new"
    WAITING = "waiting"
    PREFILLING = "prefilling"
    RUNNING = "running"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Finish:
    """Why a request ended: kind is length, stop or abort; the rest belongs to the kind."""

    kind: str
    matched: str | int | None = None
    message: str | None = None
    status: int | None = None

    @property
    def failed(self) -> bool:
        """Ended by the engine with an HTTP status (queue full, out of memory), not by its caller."""
        return self.status is not None


@dataclass(frozen=True, slots=True)
class Limits:
    """When generation ends. max_tokens None means the natural end, at the latest the end of the context."""

    max_tokens: int | None = None
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()


@dataclass(slots=True)
class Times:
    """Wall-clock seconds since the epoch."""

    received: float = 0.0
    forward_entry: float = 0.0
    prefill_finished: float = 0.0
    first_token: float = 0.0
    finished: float = 0.0


class Signal:
    """Wakes the one handler that waits for some requests. Notices are not counted: look at the state, then wait."""

    __slots__ = ("_waiter",)

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


class Request:
    """Scheduler-owned state; handlers read `output`, `finish`, `cached_tokens` and wait for `signal`."""

    __slots__ = (
        "cached_tokens",
        "choice",
        "counted",
        "due_tokens",
        "finish",
        "generator",
        "hashes",
        "limits",
        "locked_pages",
        "namespace",
        "output",
        "prefilled",
        "priority",
        "private_pages",
        "prompt",
        "retractions",
        "rid",
        "signal",
        "state",
        "steps",
        "streaming",
        "times",
        "token_budget",
    )

    def __init__(
        self,
        rid: str,
        prompt: Prompt,
        limits: Limits,
        signal: Signal,
        *,
        choice: int = 0,
        namespace: str = "",
        priority: int = 0,
        streaming: bool = False,
        counted: bool = True,
    ) -> None:
        self.rid = rid
        self.prompt = prompt
        self.limits = limits
        self.signal = signal
        self.choice = choice
        self.namespace = namespace
        self.priority = priority
        self.streaming = streaming
        self.counted = counted
        self.generator = Generator(prompt.data, choice)
        self.output: list[str] = []
        self.due_tokens = 1
        """A stream is told when its output has so many tokens."""
        self.finish: Finish | None = None
        self.state = State.NEW
        self.times = Times()
        self.hashes = prompt.page_hashes
        self.cached_tokens = 0
        self.prefilled = 0
        self.locked_pages = 0
        self.private_pages = 0
        self.retractions = 0
        self.steps = 0
        self.token_budget = 0

    @property
    def sequence_tokens(self) -> int:
        return self.prompt.tokens + len(self.output)

    @property
    def tokens_left(self) -> int:
        return self.token_budget - len(self.output)
