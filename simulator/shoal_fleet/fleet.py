"""Engines behind a policy: takes jobs, sends them where the policy says, tells it what engines do, keeps the outcomes.

A refused request comes back after the seconds that the refusal named, as `shoal replay`'s client does, a bounded number
of times. Times count from its first arrival.
"""

from collections.abc import Callable
from dataclasses import dataclass

from shoal_fleet.clock import Clock, Event
from shoal_fleet.engine import Engine
from shoal_fleet.fluid import FluidEngine
from shoal_fleet.model import EngineModel
from shoal_fleet.policies.protocol import Placed, Policy
from shoal_fleet.workload import Job


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long a client tries again."""

    retries_max: int = 5
    retry_after_s_max: float = 30.0
    total_s: float = 900.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request. Times are of the clock; None for what did not happen."""

    job: Job
    arrived_s: float
    ended_s: float
    placed_s: float | None = None
    first_s: float | None = None
    replica: str = ""
    cached_tokens: int | None = None
    cached_predicted: int | None = None
    ttft_predicted_s: float | None = None
    """From `placed_s` on."""
    refusals: int = 0
    slices: int = 0
    failure: str = ""

    @property
    def ttft_s(self) -> float | None:
        return None if self.first_s is None else self.first_s - self.arrived_s


Done = Callable[[Outcome], None]


class Fleet:
    """See the module. `engines` by replica name: those that are ready or draining."""

    def __init__(self, clock: Clock, policy: Policy, patience: Patience | None = None) -> None:
        self.clock = clock
        self.policy = policy
        self.patience = patience or Patience()
        self.engines: dict[str, Engine | FluidEngine] = {}
        self.outcomes: list[Outcome] = []
        self.in_flight = 0
        self._wake: Event | None = None
        self._wake_at_s: float | None = None

    def add_replica(self, name: str, model: EngineModel) -> None:
        """It is ready from now on."""
        kind = FluidEngine if model.fluid else Engine
        self.engines[name] = kind(name, model, self.clock)
        self.policy.add(name, model.kv_tokens, model.running_max, model.page_tokens, self.clock.now_s)

    def drain(self, name: str, draining: bool = True) -> None:
        self.policy.drain(name, draining, self.clock.now_s)

    def remove_replica(self, name: str) -> None:
        """What it still holds fails."""
        engine = self.engines.pop(name)
        self.policy.remove(name, self.clock.now_s)  # first: what fails makes room, and nobody must be sent there
        engine.stop()

    def submit(self, job: Job, done: Done) -> None:
        self.in_flight += 1
        _Flight(self, job, done).send()

    def end(self, outcome: Outcome, done: Done) -> None:
        """A request has ended, one way or the other."""
        self.in_flight -= 1
        self.outcomes.append(outcome)
        done(outcome)

    def run(self) -> None:
        """Until nothing is left to happen."""
        clock, policy = self.clock, self.policy
        while clock.step():
            wake_s = policy.next_wake_s()
            if wake_s == self._wake_at_s:
                continue
            if self._wake is not None:
                clock.cancel(self._wake)
            self._wake = None if wake_s is None else clock.at(wake_s, self._on_wake)
            self._wake_at_s = wake_s

    def _on_wake(self) -> None:
        self._wake = self._wake_at_s = None
        self.policy.wake(self.clock.now_s)


class _Flight:
    """One request between its client, the policy and an engine: the caller that the engine knows."""

    __slots__ = (
        "_arrived_s",
        "_done",
        "_first_s",
        "_fleet",
        "_found_tokens",
        "_job",
        "_placed",
        "_placed_s",
        "_refusals",
        "_slices",
    )

    def __init__(self, fleet: Fleet, job: Job, done: Done) -> None:
        self._fleet = fleet
        self._job = job
        self._done = done
        self._arrived_s = fleet.clock.now_s
        self._placed: Placed | None = None
        self._placed_s: float | None = None
        self._first_s: float | None = None
        self._refusals = 0
        self._slices = 0
        self._found_tokens: int | None = None
        """Cached before its first slice was sent: the slices' own work is no hit."""

    def send(self) -> None:
        fleet = self._fleet
        fleet.policy.submit(self._job, self._on_placed, self._on_refused, fleet.clock.now_s)

    def _on_placed(self, placed: Placed) -> None:
        self._placed = placed
        self._placed_s = self._fleet.clock.now_s
        placed.start(self._on_turn, self._fleet.clock.now_s)

    def _on_turn(self, tokens: int) -> None:
        """Send the request, or its first tokens alone."""
        assert self._placed is not None
        engine = self._fleet.engines[self._placed.replica]
        if tokens:
            engine.submit(self._job.prefix(tokens), _Slice(self, tokens))
        else:
            engine.submit(self._job, self)

    def slice_ended(self, tokens: int, cached_tokens: int) -> None:
        assert self._placed is not None
        self._slices += 1
        if self._slices == 1:
            self._found_tokens = cached_tokens
        self._placed.slice_done(tokens, cached_tokens, self._fleet.clock.now_s)

    def slice_failed(self, reason: str) -> None:
        assert self._placed is not None
        if self._placed.replica in self._fleet.engines:
            self._placed.slice_failed(self._fleet.clock.now_s)
        else:
            self.failed(reason)

    def _on_refused(self, reason: str, retry_after_s: float) -> None:
        fleet, patience = self._fleet, self._fleet.patience
        self._refusals += 1
        pause_s = min(retry_after_s, patience.retry_after_s_max)
        in_time = fleet.clock.now_s + pause_s < self._arrived_s + patience.total_s
        if self._refusals <= patience.retries_max and in_time:
            fleet.clock.after(pause_s, self.send)
        else:
            self._end(None, reason)

    def first_token(self) -> None:
        now_s = self._fleet.clock.now_s
        self._first_s = now_s
        assert self._placed is not None
        self._placed.first_token(now_s)

    def tokens(self, count: int) -> None:
        assert self._placed is not None
        self._placed.tokens(count, self._fleet.clock.now_s)

    def ended(self, cached_tokens: int) -> None:
        job = self._job
        assert self._placed is not None
        self._placed.finish(job.input_tokens, job.output_tokens, cached_tokens, self._fleet.clock.now_s)
        self._end(cached_tokens if self._found_tokens is None else self._found_tokens, "")

    def failed(self, reason: str) -> None:
        assert self._placed is not None
        self._placed.release(self._fleet.clock.now_s)
        self._end(None, reason)

    def _end(self, cached_tokens: int | None, failure: str) -> None:
        placed = self._placed
        outcome = Outcome(
            self._job,
            self._arrived_s,
            self._fleet.clock.now_s,
            placed_s=self._placed_s,
            first_s=self._first_s,
            replica=placed.replica if placed is not None else "",
            cached_tokens=cached_tokens,
            cached_predicted=placed.cached_predicted if placed is not None else None,
            ttft_predicted_s=placed.ttft_predicted_s if placed is not None else None,
            refusals=self._refusals,
            slices=self._slices,
            failure=failure,
        )
        self._fleet.end(outcome, self._done)


class _Slice:
    """A slice of a flight's prompt: what the engine says of it, passed on."""

    __slots__ = ("_flight", "_tokens")

    def __init__(self, flight: _Flight, tokens: int) -> None:
        self._flight = flight
        self._tokens = tokens

    def first_token(self) -> None:
        """The one token of a slice is nobody's."""

    def tokens(self, count: int) -> None:
        """As above."""

    def ended(self, cached_tokens: int) -> None:
        self._flight.slice_ended(self._tokens, cached_tokens)

    def failed(self, reason: str) -> None:
        self._flight.slice_failed(reason)
