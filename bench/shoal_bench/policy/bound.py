"""What no router can beat, nearly: the routing study's bound, for any engine model of the fleet simulator. Discrete
events in virtual time; used by `shoal_bench.policy.cells`.

All replicas share one cache as large as theirs together and one queue, out of which the prompt with the least left to
compute goes first, on any of them. `preemptive`: a shorter one that arrives interrupts the longest under way, at no
cost, and the rest of that goes on anywhere. Prompts take what the engine's profile says, chunk by chunk where the
engine has chunks. Answers go on where the fewest run. Under SGLang's scheduler they stand still while their replica
computes a prompt; with the study's engine they do not. Better than any engine here: answers take no room in the cache,
no step is waited for, and what one replica computed all have at once. Worse in one: an engine computes several short
prompts in one step and pays the step's base once, here each pays it.

Least work first with preemption is best on one server, in the mean and where a prompt in parts takes no less time than
whole. On several, and the more so without preemption, another order can be luckier: on small random loads policies come
below the preemptive bound now and then by 1 %, below the other by half. On loads of thousands of prompts none has.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from shoal_fleet import prefix, results, run
from shoal_fleet.clients import Clients
from shoal_fleet.clock import Clock, Event
from shoal_fleet.fleet import Done, Outcome
from shoal_fleet.model import EngineModel
from shoal_fleet.workload import Job
from shoal_sim.radix import RadixCache

WAITING: Final = "bound"
PREEMPTIVE: Final = "bound_preemptive"
NAMES: Final = (WAITING, PREEMPTIVE)
"""Beside the names of policies."""
_LEAST_GAIN_S: Final = 1e-9


@dataclass(slots=True)
class _Prompt:
    """One request until its first token, and after it."""

    number: int
    job: Job
    hashes: Sequence[int]
    done: Done
    arrived_s: float
    left_s: float
    """To compute, when it was last looked at."""
    cached_tokens: int | None = None
    """Known when it has started."""
    first_s: float = 0.0
    ends_at: float = 0.0
    """Answer tokens of each stream of its replica at which its own are complete."""


class Bound:
    """See the module. Clients drive it as they drive a fleet."""

    def __init__(self, model: EngineModel, replicas: int, clock: Clock, *, preemptive: bool) -> None:
        self.clock = clock
        self.outcomes: list[Outcome] = []
        self._model = model
        self._preemptive = preemptive
        self._cache = RadixCache(replicas * (model.kv_tokens // model.page_tokens))
        self._servers = [_Server(number, self) for number in range(replicas)]
        self._queue: list[tuple[float, int, _Prompt]] = []
        self._count = 0

    @property
    def model(self) -> EngineModel:
        return self._model

    def submit(self, job: Job, done: Done) -> None:
        self._count += 1
        hashes = prefix.page_hashes(job, self._model.page_tokens)
        prompt = _Prompt(self._count, job, hashes, done, self.clock.now_s, 0.0)
        prompt.left_s = self._work_s(prompt, self._cached(prompt))
        self._push(prompt)
        self._go()

    def run(self) -> None:
        """Until nothing is left to happen."""
        while self.clock.step():
            pass

    def prefilled(self, prompt: _Prompt) -> None:
        """Its first token is there: what it computed is everybody's, its answer goes on where the fewest run."""
        matched = self._cache.match(prompt.hashes)
        self._cache.lock(prompt.hashes[:matched])
        missing = len(prompt.hashes) - matched
        if self._cache.take(missing):
            self._cache.insert(prompt.hashes, missing)
        self._cache.unlock(prompt.hashes[:matched])
        prompt.first_s = self.clock.now_s
        min(self._servers, key=lambda server: len(server.streams)).add(prompt)
        self._go()

    def ended(self, prompt: _Prompt, replica: int) -> None:
        outcome = Outcome(
            prompt.job,
            prompt.arrived_s,
            self.clock.now_s,
            first_s=prompt.first_s,
            replica=f"replica-{replica}",
            cached_tokens=prompt.cached_tokens,
        )
        self.outcomes.append(outcome)
        prompt.done(outcome)

    def _push(self, prompt: _Prompt) -> None:
        heapq.heappush(self._queue, (prompt.left_s, prompt.number, prompt))

    def _go(self) -> None:
        while self._queue:
            idle = [server for server in self._servers if server.prompt is None]
            if not idle:
                if not self._preemptive:
                    return
                longest = max(self._servers, key=_Server.left_s)
                if longest.left_s() <= self._queue[0][0] + _LEAST_GAIN_S:
                    return
                self._push(longest.interrupted())
                idle = [longest]
            _, _, prompt = heapq.heappop(self._queue)
            if prompt.cached_tokens is None:  # others may have computed its prefix while it waited
                prompt.cached_tokens = self._cached(prompt)
                prompt.left_s = self._work_s(prompt, prompt.cached_tokens)
            min(idle, key=lambda server: len(server.streams)).start(prompt)

    def _cached(self, prompt: _Prompt) -> int:
        page = self._model.page_tokens
        # The last token is computed even where all of it is cached: it gives the first of the answer.
        return self._cache.match(prompt.hashes[: (prompt.job.input_tokens - 1) // page]) * page

    def _work_s(self, prompt: _Prompt, cached: int) -> float:
        return prefill_s(self._model, prompt.job.input_tokens - cached, cached)


def prefill_s(model: EngineModel, tokens: int, cached: int) -> float:
    """Seconds in which an engine that does nothing else computes so many tokens after cached ones."""
    chunk = model.chunk_tokens or tokens
    return sum(
        model.profile.prefill_s([(min(chunk, tokens - done), cached + done)]) for done in range(0, tokens, chunk)
    )


@dataclass(slots=True)
class _Server:
    """One replica: at most one prompt, and the streams of answers, which all advance alike."""

    number: int
    bound: Bound
    prompt: _Prompt | None = None
    streams: list[_Prompt] = field(default_factory=list)
    _prompt_ends_s: float = 0.0
    _prompt_end: Event | None = None
    _tokens: float = 0.0
    """Answer tokens that a stream which ran all the time would have got."""
    _since_s: float = 0.0
    _step_s: float | None = None
    """Of one token since then; None while they stand still."""
    _stream_end: Event | None = None

    def left_s(self) -> float:
        return self._prompt_ends_s - self.bound.clock.now_s

    def start(self, prompt: _Prompt) -> None:
        clock = self.bound.clock
        self.prompt = prompt
        self._prompt_ends_s = clock.now_s + prompt.left_s
        self._prompt_end = clock.at(self._prompt_ends_s, self._prefilled)
        self._turn()

    def interrupted(self) -> _Prompt:
        """Gives its prompt back, with what is left of it."""
        prompt, event = self.prompt, self._prompt_end
        assert prompt is not None
        assert event is not None
        self.bound.clock.cancel(event)
        prompt.left_s = self.left_s()
        self.prompt = None
        return prompt

    def add(self, prompt: _Prompt) -> None:
        """A stream starts, with its first token."""
        clock, model = self.bound.clock, self.bound.model
        if model.fluid:
            self.streams.append(prompt)
            step_s = model.profile.decode_s(len(self.streams), 0)
            clock.after(prompt.job.output_tokens * step_s, lambda: self._ended(prompt))
            return
        self._turn()
        prompt.ends_at = self._tokens + prompt.job.output_tokens - 1
        self.streams.append(prompt)
        self._turn()

    def _prefilled(self) -> None:
        prompt = self.prompt
        assert prompt is not None
        self.prompt = None
        self._turn()
        self.bound.prefilled(prompt)

    def _turn(self) -> None:
        """Counts the tokens so far, and plans the next end of a stream."""
        clock, model = self.bound.clock, self.bound.model
        if model.fluid:
            return
        if self._step_s is not None:
            self._tokens += (clock.now_s - self._since_s) / self._step_s
        self._since_s, self._step_s = clock.now_s, None
        if self._stream_end is not None:
            clock.cancel(self._stream_end)
            self._stream_end = None
        if self.streams and self.prompt is None:
            self._step_s = model.profile.decode_s(len(self.streams), self._context())
            first = min(self.streams, key=lambda one: one.ends_at)
            left = max(0.0, first.ends_at - self._tokens)
            self._stream_end = clock.after(left * self._step_s, lambda: self._ended(first))

    def _context(self) -> int:
        """KV tokens of its streams."""
        return round(
            sum(one.job.input_tokens + one.job.output_tokens + self._tokens - one.ends_at for one in self.streams)
        )

    def _ended(self, prompt: _Prompt) -> None:
        self.streams.remove(prompt)
        self._turn()
        self.bound.ended(prompt, self.number)


def played(scenario: run.Scenario) -> list[Outcome]:
    """The requests of a scenario whose policy is one of NAMES. Raises ValueError for another."""
    if scenario.policy not in NAMES:
        raise ValueError(f"{scenario.policy!r} is none of {', '.join(NAMES)}")
    made = Bound(scenario.model, scenario.replicas, Clock(), preemptive=scenario.policy == PREEMPTIVE)
    Clients(made, scenario.workload, scenario.pace).start()
    made.run()
    return made.outcomes


def summary(scenario: run.Scenario, outcomes: Sequence[Outcome]) -> results.Summary:
    """As that of a fleet's run, without what samples of replicas say."""
    ended_s = max((one.ended_s for one in outcomes), default=0.0)
    return results.summarize(outcomes, (), ended_s * scenario.replicas)
