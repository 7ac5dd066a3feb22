"""One engine in virtual time: the simulator's own scheduler and cache, with the clock's events instead of a loop.

As the engine process does (`shoal_sim.engine`): what arrives is seen when `shoal_sim.arrivals` says, a step takes as
long as the profile says, and its tokens come out at its end. Runs of decode steps in which nothing else happens are one
event (`shoal_sim.stretch`); an arrival cuts such a run at the end of the last step that does not look at it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from shoal_fleet import prefix
from shoal_fleet.clock import Clock, Event
from shoal_fleet.model import EngineModel
from shoal_fleet.workload import Job
from shoal_sim import steptime, stretch
from shoal_sim.arrivals import Arrivals
from shoal_sim.batch import Batch
from shoal_sim.prompt import Prompt
from shoal_sim.radix import RadixCache
from shoal_sim.request import Limits, Request, Signal, State
from shoal_sim.scheduler import Scheduler
from shoal_sim.tokens import Generator

STRETCH_S_MAX = 1.0
"""Tokens of a run of decode steps are reported at its end: routers count them at most so late."""
RETRY_S = 0.001
_MUTE_TEXT = " tok"


class Caller(Protocol):
    """Who sent a request and hears of it."""

    def first_token(self) -> None: ...

    def tokens(self, count: int) -> None: ...

    def ended(self, cached_tokens: int) -> None: ...

    def failed(self, reason: str) -> None: ...


@dataclass(frozen=True, slots=True)
class StepPiece:
    """What one prefill step computes of one prompt: `tokens` after `prefix` that were there."""

    job: Job
    tokens: int
    prefix: int


@dataclass(frozen=True, slots=True)
class Step:
    """One step as an observer sees it when it begins. Mixed where both kinds of work are in it."""

    start_s: float
    duration_s: float
    prefill: tuple[StepPiece, ...]
    decode: tuple[Job, ...]


Observer = Callable[[Step], None]


class _Prompt(Prompt):
    """A prompt without text: its page hashes come from block ids, those of its answer from its own number."""

    __slots__ = ("_serial",)

    def __init__(self, job: Job, page_tokens: int, serial: int) -> None:
        self.data = b""
        self.tokens = job.input_tokens
        self.page_hashes = prefix.page_hashes(job, page_tokens)
        self._page_bytes = page_tokens * prefix.TOKEN_BYTES
        self._serial = serial

    def hashes_with(self, generated: str, namespace: str) -> list[int]:
        pages = (self.tokens * prefix.TOKEN_BYTES + len(generated)) // self._page_bytes
        known = len(self.page_hashes)
        if pages <= known:
            return self.page_hashes
        # Nobody asks for these again: they only fill the cache, as answers do that the next turn does not repeat.
        return self.page_hashes + [-(self._serial << 24 | place) for place in range(known, pages)]


class _Mute(Generator):
    """Tokens are counted here, not read."""

    __slots__ = ()

    def __init__(self) -> None:
        self.natural_end = False

    def next_token(self) -> str:
        return _MUTE_TEXT

    def take(self, count: int) -> list[str]:
        return [_MUTE_TEXT] * count


class _Request(Request):
    __slots__ = ("caller", "job", "reported")

    def __init__(self, serial: int, job: Job, page_tokens: int, caller: Caller) -> None:
        limits = Limits(max_tokens=job.output_tokens, ignore_eos=True)
        super().__init__(str(serial), _Prompt(job, page_tokens, serial), limits, Signal(), streaming=True)
        self.generator = _Mute()
        self.token_budget = job.output_tokens
        self.job = job
        self.caller = caller
        self.reported = 0


class Engine:
    """See the module. `observer` hears of every step; each is then an event of its own, and tokens come at its end."""

    def __init__(self, name: str, model: EngineModel, clock: Clock, observer: Observer | None = None) -> None:
        self.name = name
        self.model = model
        self._observer = observer
        self._prefill_s = 0.0
        self._prefill_since_s: float | None = None
        self._clock = clock
        self._scheduler = Scheduler(model.scheduling(), RadixCache(model.kv_tokens // model.page_tokens))
        self._arrivals = Arrivals(model.profile.reception, model.overlap)
        self._step_began_s = 0.0
        self._prepared = False
        """A step has just ended, whose time was used to prepare the next."""
        self._serial = 0
        self._idle = True
        self._stretch: _Stretch | None = None

    @property
    def scheduler(self) -> Scheduler:
        return self._scheduler

    @property
    def requests(self) -> int:
        """Everything that it holds."""
        return len(self._arrivals) + len(self._scheduler.requests())

    @property
    def waiting_tokens(self) -> int:
        """Prompt tokens that wait here and are not cached."""
        page, cache = self.model.page_tokens, self._scheduler.cache
        waiting = [*self._arrivals.requests(), *self._scheduler.waiting]
        return sum(one.sequence_tokens - cache.peek(one.hashes) * page for one in waiting)

    @property
    def prefill_busy_s(self) -> float:
        """Seconds in which it has computed prompts so far."""
        since_s = self._prefill_since_s
        return self._prefill_s + (0.0 if since_s is None else self._clock.now_s - since_s)

    def submit(self, job: Job, caller: Caller) -> None:
        """Sends a request; the caller hears of it during later events, never within this call."""
        self._serial += 1
        if job.input_tokens + job.output_tokens > self.model.kv_tokens - 1:
            self._clock.after(0.0, lambda: caller.failed("too_long"))
            return
        request = _Request(self._serial, job, self.model.page_tokens, caller)
        here_s = self._arrivals.add(request, job.text, self._clock.now_s)
        self._clock.at(here_s, self._arrive)

    def _arrive(self) -> None:
        """A request has come to the scheduler."""
        if self._idle:
            self._idle = False
            self._clock.after(0.0, self._next)
        elif self._stretch is not None:
            self._stretch.cut(self._clock)

    def stop(self) -> None:
        """The process is killed: what it holds fails."""
        self._scheduler.abort_unseen(self._arrivals.withdraw(lambda request: True))
        self._scheduler.abort(lambda request: True)
        lost = self._scheduler.take_ended()
        for request in lost:
            assert isinstance(request, _Request)
            request.caller.failed("replica_gone")

    def _next(self) -> None:
        """Between two steps."""
        scheduler, arrivals, now_s = self._scheduler, self._arrivals, self._clock.now_s
        self._take(arrivals.due(self._step_began_s, now_s))
        here = arrivals.next_s is not None and arrivals.next_s <= now_s
        steps = 0 if here or self._observer is not None else stretch.steps_max(scheduler, _STEPS_MAX)
        if steps > 1:
            self._prepared = True
            self._stretch = _Stretch(self, steps, self._clock)
            return
        batch = scheduler.plan()
        if batch is None:
            self._prepared = False
            self._take(arrivals.here(now_s))
            batch = scheduler.plan()
        self._report(scheduler.take_ended())
        if batch is not None:
            self._run(batch)
        elif scheduler.idle:
            self._idle = True
        else:
            self._clock.after(RETRY_S, self._next)

    def _take(self, requests: list[Request]) -> None:
        for request in requests:
            self._scheduler.submit(request)

    def _run(self, batch: Batch) -> None:
        prepared = self._prepared and self.model.overlap
        duration_s = steptime.step_s(self.model.profile, batch, prepared=prepared)
        self._prepared = True
        self._step_began_s = self._clock.now_s
        if self._observer is not None:
            self._observer(_seen(batch, self._clock.now_s, duration_s))
        if batch.prefill:
            self._prefill_since_s = self._clock.now_s

        def done() -> None:
            self._prefill_s, self._prefill_since_s = self.prefill_busy_s, None
            self._report(self._scheduler.complete(batch, self._clock.now_s))
            self._next()

        self._clock.after(duration_s, done)

    def end_stretch(self, steps: int, last_began_s: float) -> None:
        self._stretch = None
        self._step_began_s = last_began_s
        running = list(self._scheduler.running)
        stretch.advance(self._scheduler, steps)
        self._report(running)
        self._next()

    def _report(self, requests: list[Request]) -> None:
        for request in requests:
            assert isinstance(request, _Request)
            new = len(request.output) - request.reported
            if new > 0:
                first = not request.reported
                request.reported += new
                if first:
                    request.caller.first_token()
                request.caller.tokens(new)
            if request.state is State.DONE:
                finish = request.finish
                if finish is not None and finish.kind == "length":
                    request.caller.ended(request.cached_tokens)
                else:
                    request.caller.failed(finish.message or finish.kind if finish is not None else "unknown")


def _seen(batch: Batch, start_s: float, duration_s: float) -> Step:
    pieces = tuple(StepPiece(_job(piece.request), piece.tokens, piece.prefix) for piece in batch.prefill)
    return Step(start_s, duration_s, pieces, tuple(_job(request) for request in batch.decode))


def _job(request: Request) -> Job:
    assert isinstance(request, _Request)
    return request.job


_STEPS_MAX = 1 << 20


class _Stretch:
    """Decode steps under way as one event: step j ends j*base + kv*(j*T + B*j*(j-1)/2) after the start."""

    __slots__ = ("_base_s", "_batch", "_context", "_engine", "_event", "_kv_s", "_start_s", "_steps")

    def __init__(self, engine: Engine, steps: int, clock: Clock) -> None:
        running, profile = engine.scheduler.running, engine.model.profile
        self._engine = engine
        self._batch = len(running)
        self._context = sum(request.sequence_tokens for request in running)
        self._base_s = profile.decode_s(self._batch, 0)
        self._kv_s = profile.decode.kv_token_s
        self._start_s = clock.now_s
        self._steps = self._first_at(STRETCH_S_MAX, steps)
        self._event: Event = clock.at(self._start_s + self._ends_s(self._steps), self._end)

    def cut(self, clock: Clock) -> None:
        """Somebody has arrived: end with the last step that is made without looking at arrivals."""
        under_way = self._first_at(clock.now_s - self._start_s, self._steps)
        steps = under_way + self._engine.model.overlap
        if steps < self._steps:
            self._steps = steps
            clock.cancel(self._event)
            self._event = clock.at(self._start_s + self._ends_s(steps), self._end)

    def _end(self) -> None:
        self._engine.end_stretch(self._steps, self._start_s + self._ends_s(self._steps - 1))

    def _ends_s(self, steps: int) -> float:
        grown = self._batch * steps * (steps - 1) / 2
        return steps * self._base_s + self._kv_s * (steps * self._context + grown)

    def _first_at(self, elapsed_s: float, most: int) -> int:
        """The first step that ends at or after so much time, from 1 to `most`."""
        low, high = 1, most
        while low < high:
            middle = (low + high) >> 1
            if self._ends_s(middle) >= elapsed_s:
                high = middle
            else:
                low = middle + 1
        return low
