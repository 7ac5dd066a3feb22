"""A small discrete-event fleet around the router's pure core: simulated engines, simulated clients, production policy.

Engines prefill one prompt after the other in order, decode slower the more streams run, and keep an LRU of blocks.
`Fleet.submit` goes through ServiceCore; `Fleet.submit_greedy` binds at once to the least predicted time to first token
(no price for work while others wait, no late binding), the policy that ours is compared with.
"""

import collections
import heapq
import itertools
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shoal_api import routes
from shoal_router import model
from shoal_router.admission import core, ticket
from shoal_router.index import chain
from shoal_router.policy import binding

BLOCK_TOKENS = 512
_BLOCK_BYTES = 4 * BLOCK_TOKENS


@dataclass(frozen=True, slots=True)
class Job:
    """One request: block ids of its prompt (equal ids, equal text), its tokens and those of its answer."""

    blocks: tuple[int, ...]
    prompt_tokens: int
    output_tokens: int
    session: int = 0


@dataclass(slots=True)
class Engine:
    """One simulated replica."""

    name: str
    blocks_max: int
    prefill_tokens_per_s: float
    speedup: float = 1.0
    cache: "collections.OrderedDict[int, None]" = field(default_factory=collections.OrderedDict)
    line: "collections.deque[tuple[Job, binding.Binding, Callable[[], None] | None]]" = field(
        default_factory=collections.deque
    )
    busy: bool = False
    running: int = 0

    def match(self, blocks: Sequence[int]) -> int:
        return sum(1 for _ in itertools.takewhile(self.cache.__contains__, blocks))

    def keep(self, blocks: Sequence[int]) -> None:
        for block in reversed(blocks):  # an engine evicts the ends of prompts before their beginnings
            self.cache[block] = None
            self.cache.move_to_end(block)
        while len(self.cache) > self.blocks_max:
            self.cache.popitem(last=False)

    def prefill_s(self, uncached: int, total: int) -> float:
        return (0.02 + uncached / self.prefill_tokens_per_s * (1 + total / 200_000)) / self.speedup

    def step_s(self) -> float:
        return (0.012 + 0.0006 * self.running) / self.speedup


class Fleet:
    """Engines, a ServiceCore in front of them, and a clock. Figures: ttfts, cached and total prompt tokens."""

    def __init__(
        self,
        replicas: int,
        kv_tokens: int,
        prefill_tokens_per_s: float,
        speedup: float = 1.0,
        timing: routes.Timing | None = None,
        seed: int = 1,
        running_max: int = 256,
    ) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._wake_at: float | None = None
        if timing is None:
            rate = prefill_tokens_per_s
            timing = routes.Timing(a_s=0.02, b_s=1 / rate, c_s=1 / rate / 200_000, alpha_s=0.012, beta_s=0.003)
        service = routes.Service(
            name="sim", served_name="sim", timing={"sim": timing}, queue=routes.Queue(requests_max=1 << 20, ttl_s=1e6)
        )
        self.core = core.ServiceCore(service, random.Random(seed))
        self.engines: dict[str, Engine] = {}
        for number in range(replicas):
            name = f"r{number}"
            self.engines[name] = Engine(name, kv_tokens // BLOCK_TOKENS, prefill_tokens_per_s, speedup)
            self.core.add_replica(model.Replica(name, f"http://{name}", gpu="sim"), 0.0)
            self.core.set_facts(name, model.EngineFacts(kv_tokens, running_max), 0.0)
            self.core.set_state(name, model.ReplicaState.ROUTABLE, 0.0)
        self.ttfts: list[float] = []
        self.cached_tokens = 0
        self.predicted_error = 0
        self.prompt_tokens = 0
        self.done = 0

    @property
    def hit_rate(self) -> float:
        return self.cached_tokens / self.prompt_tokens

    def at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._count), action))

    def run(self, until: float = float("inf")) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            action()
            wake = self.core.next_wake()
            if wake is not None and (self._wake_at is None or wake < self._wake_at):
                self._wake_at = max(wake, self.now)
                self.at(self._wake_at, self._wake)

    def _wake(self) -> None:
        self._wake_at = None
        self.core.pump(self.now)

    def submit(self, job: Job, done: Callable[[], None] | None = None) -> None:
        """Through the waiting queue, as production does."""
        arrived = self.now

        def bound(given: binding.Binding) -> None:
            self._send(job, given, arrived, done)

        def rejected(outcome: model.Outcome, _: float) -> None:
            raise AssertionError(outcome)

        self.core.submit(ticket.Ticket(request_of(job), bound, rejected), self.now)

    def submit_greedy(self, job: Job, done: Callable[[], None] | None = None) -> None:
        """At once to the replica with the least predicted time to first token."""
        pool = self.core._pool
        chosen = pool.choose(pool.query(request_of(job)), frozenset(), self.now)
        assert chosen is not None
        self._send(job, pool.bind(chosen, self.now), self.now, done)

    def _send(self, job: Job, given: binding.Binding, arrived: float, done: Callable[[], None] | None) -> None:
        engine = self.engines[given.replica.name]

        def first() -> None:
            self._first(engine, job, given, arrived, done)

        engine.line.append((job, given, first))
        if not engine.busy:
            self._start(engine)

    def _start(self, engine: Engine) -> None:
        if not engine.line:
            engine.busy = False
            return
        engine.busy = True
        job, given, first = engine.line.popleft()
        cached = min(job.prompt_tokens - 1, engine.match(job.blocks) * BLOCK_TOKENS)
        self.cached_tokens += cached
        self.predicted_error += abs(cached - given.matched_tokens)
        self.prompt_tokens += job.prompt_tokens
        given_cached[id(given)] = cached
        assert first is not None
        self.at(self.now + engine.prefill_s(job.prompt_tokens - cached, job.prompt_tokens), first)

    def _first(
        self, engine: Engine, job: Job, given: binding.Binding, arrived: float, done: Callable[[], None] | None
    ) -> None:
        engine.keep(job.blocks)
        engine.running += 1
        self.ttfts.append(self.now - arrived)
        self.core.first_token(given, self.now)
        self.core.tokens(given, 1, self.now)
        self._start(engine)

        def end() -> None:
            engine.running -= 1
            self.done += 1
            self.core.tokens(given, job.output_tokens - 1, self.now)
            usage = model.Usage(job.prompt_tokens, job.output_tokens, given_cached.pop(id(given)))
            self.core.finish(given, usage, self.now)
            if done is not None:
                done()

        self.at(self.now + job.output_tokens * engine.step_s(), end)


given_cached: dict[int, int] = {}
"""Cached tokens of each binding in flight, as its engine found them; emptied as they end."""


def text_of(blocks: Sequence[int], tokens: int) -> bytes:
    """Prompt text: 4 bytes a token, equal for equal blocks."""
    return b"".join(struct.pack("<Q", block) * (_BLOCK_BYTES // 8) for block in blocks)[: 4 * tokens]


def request_of(job: Job) -> model.Request:
    data = text_of(job.blocks, job.prompt_tokens)
    return model.Request(
        prompt=model.Prompt(data),
        chain=chain.chain(data),
        session=model.Session(job.session, "sim"),
        body_bytes=len(data),
    )


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
