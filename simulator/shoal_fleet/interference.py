"""One engine, warm turns and long cold prompts in virtual time: who waits for whom, whole or in slices.

The load of the measurement on a real engine that slicing rests on (docs/simulator.md): sessions that send turn after
turn upon a cached context, and now and then a long prompt that nothing of is cached. The cold prompt goes whole, or as
growing prefixes of one token each, with or without waiting between them until no turn lacks its first token.
Says what clients see, and every step that the engine made. Called by tests and by the benchmark of slicing.
"""

import itertools
import random
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

from shoal_fleet.clock import Clock
from shoal_fleet.engine import Engine, Observer, Step
from shoal_fleet.model import EngineModel
from shoal_fleet.workload import Job

BLOCK_TOKENS = 32
POLL_S = 0.002
"""How often a waiting slice looks."""
COLD_SEED = 7
SESSION_SEED = 100
"""Of the first session; the measurement's, as is the one above."""
COLD = -1
"""`session` of the jobs of cold prompts; turns have their session's number, from 0."""


@dataclass(frozen=True, slots=True)
class Load:
    """Defaults: the measurement's. Token counts are multiples of BLOCK_TOKENS."""

    sessions: int = 24
    context_tokens: int = 8192
    turn_tokens: int = 256
    answer_tokens: int = 96
    think_s: tuple[float, float] = (0.5, 1.5)
    spread_s: float = 1.2
    """First turns start over so many seconds."""
    cold_tokens: int = 65_536
    cold_answer_tokens: int = 64
    cold_every_s: float = 5.5
    cold_spread: tuple[float, float] = (0.6, 1.4)
    """Shares of `cold_every_s` between which a gap lies."""
    duration_s: float = 32.0
    """No turn and no cold prompt starts after it."""
    client_token_s: float = 1e-7
    """What the client needs to write a token id as JSON, before it sends a slice or a cold prompt. Assumed: Python
    takes 1 to 2.5e-7 s by machine."""


@dataclass(frozen=True, slots=True)
class Sending:
    """How cold prompts are sent: whole, or in slices of so many tokens, each after waiting at most `wait_s`."""

    slice_tokens: int | None = None
    wait_s: float = 0.0


WHOLE = Sending()


@dataclass(slots=True)
class Seen:
    """What the clients saw, in seconds."""

    warm_ttft_s: list[float] = field(default_factory=list)
    warm_gap_s: list[float] = field(default_factory=list)
    """Between two tokens of one running turn."""
    cold_ttft_s: list[float] = field(default_factory=list)
    """From the first slice on, where it is sliced."""
    slice_s: list[float] = field(default_factory=list)
    """From sending a slice until it has ended."""


def run(model: EngineModel, load: Load, sending: Sending, seed: int, observer: Observer | None = None) -> Seen:
    """The whole load against one engine. Raises RuntimeError where a request fails.

    Deterministic: cold prompts come at the measurement's times; the seed says when turns do, 0 as in the measurement.
    """
    made = _Run(model, load, sending, seed, observer or _unobserved)
    made.start()
    while made.clock.step():
        pass
    return made.seen


def _unobserved(step: Step) -> None:
    """Nobody looks, but steps must be single ones: their tokens are timed."""


class _Run:
    """What the sessions and the cold prompts share. The load starts, as time 0, when all contexts are cached."""

    def __init__(self, model: EngineModel, load: Load, sending: Sending, seed: int, observer: Observer) -> None:
        self.load = load
        self.sending = sending
        self.clock = Clock()
        self.engine = Engine("engine", model, self.clock, observer)
        self._times = random.Random(COLD_SEED)
        self.seen = Seen()
        self.owed = 0
        """Turns that lack their first token."""
        self._ids = itertools.count(1)
        self._sessions = [
            _Session(self, number, SESSION_SEED + number + 1000 * seed) for number in range(load.sessions)
        ]
        self._unready = load.sessions
        self._end_s = 0.0

    def start(self) -> None:
        for session in self._sessions:
            session.cache_context()

    def ready(self) -> None:
        """One more context is cached."""
        self._unready -= 1
        if self._unready:
            return
        self._end_s = self.clock.now_s + self.load.duration_s
        for session in self._sessions:
            self.clock.after(session.delay_s(0.0, self.load.spread_s), session.turn)
        self._next_cold()

    @property
    def over(self) -> bool:
        return self.clock.now_s >= self._end_s

    def text(self, tokens: int) -> "array[int]":
        """Blocks that nobody has sent before."""
        return array("Q", itertools.islice(self._ids, tokens // BLOCK_TOKENS))

    def _next_cold(self) -> None:
        if self.over:
            return
        load = self.load
        _Cold(self, job(self.text(load.cold_tokens), load.cold_answer_tokens, COLD)).send()
        self.clock.after(load.cold_every_s * self._times.uniform(*load.cold_spread), self._next_cold)


def job(blocks: "array[int]", answer_tokens: int, session: int) -> Job:
    return Job(blocks, BLOCK_TOKENS, len(blocks) * BLOCK_TOKENS, answer_tokens, session=session)


class _Session:
    """Turns upon a growing context. An answer is not what the next turn carries, so it is computed again."""

    def __init__(self, shared: _Run, number: int, seed: int) -> None:
        self._run = shared
        self._number = number
        self._times = random.Random(seed)
        self._context = shared.text(shared.load.context_tokens)

    def delay_s(self, low_s: float, high_s: float) -> float:
        return self._times.uniform(low_s, high_s)

    def cache_context(self) -> None:
        self._run.engine.submit(job(self._context, 1, self._number), _Whole(self._run.ready))

    def turn(self) -> None:
        shared = self._run
        if shared.over:
            return
        self._context = self._context + shared.text(shared.load.turn_tokens)
        shared.owed += 1
        shared.engine.submit(job(self._context, shared.load.answer_tokens, self._number), _Turn(shared, self._answered))

    def _answered(self) -> None:
        shared = self._run
        self._context = self._context + shared.text(shared.load.answer_tokens)
        shared.clock.after(self.delay_s(*shared.load.think_s), self.turn)


class _Whole:
    """A request of which only the end is of interest."""

    def __init__(self, done: Callable[[], None]) -> None:
        self._done = done

    def first_token(self) -> None:
        """Not of interest."""

    def tokens(self, count: int) -> None:
        """Not of interest."""

    def ended(self, cached_tokens: int) -> None:
        self._done()

    def failed(self, reason: str) -> None:
        raise RuntimeError(f"the engine refused a request of the load: {reason}")


class _Turn(_Whole):
    """A turn that is timed."""

    def __init__(self, shared: _Run, done: Callable[[], None]) -> None:
        super().__init__(done)
        self._run = shared
        self._sent_s = shared.clock.now_s
        self._last_s: float | None = None

    def first_token(self) -> None:
        self._run.owed -= 1
        self._run.seen.warm_ttft_s.append(self._run.clock.now_s - self._sent_s)

    def tokens(self, count: int) -> None:
        now_s = self._run.clock.now_s
        if self._last_s is not None:
            self._run.seen.warm_gap_s.append(now_s - self._last_s)
        self._last_s = now_s


class _Cold(_Whole):
    """A cold prompt: its slices one after the other, then itself."""

    def __init__(self, shared: _Run, whole: Job) -> None:
        super().__init__(_nothing)
        self._run = shared
        self._job = whole
        self._arrived_s = shared.clock.now_s
        self._sliced_tokens = 0
        self._look_until_s: float | None = None

    def first_token(self) -> None:
        self._run.seen.cold_ttft_s.append(self._run.clock.now_s - self._arrived_s)

    def send(self) -> None:
        """The next slice, or the prompt itself when no further slice is shorter than it."""
        shared, size = self._run, self._run.sending.slice_tokens
        tokens = self._job.input_tokens if size is None else self._sliced_tokens + size
        if tokens >= self._job.input_tokens:
            self._write(self._job, self)
            return
        now_s = shared.clock.now_s
        if self._look_until_s is None:
            self._look_until_s = now_s + shared.sending.wait_s
        if shared.owed and now_s < self._look_until_s:
            shared.clock.after(POLL_S, self.send)
            return
        self._look_until_s = None
        self._sliced_tokens = tokens

        def sliced() -> None:
            shared.seen.slice_s.append(shared.clock.now_s - now_s)
            self.send()

        self._write(self._job.prefix(tokens), _Whole(sliced))

    def _write(self, part: Job, caller: _Whole) -> None:
        shared = self._run
        shared.clock.after(shared.load.client_token_s * part.input_tokens, lambda: shared.engine.submit(part, caller))


def _nothing() -> None:
    """Nobody waits for the end of a cold prompt's answer."""
