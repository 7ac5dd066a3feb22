"""One ServiceCore with one replica in virtual time, whose engine computes what it is given in order, one at a time.

    one = Lane(itl_objective_s=0.2); one.submit(0.0, tokens=40_000, session=1); one.run(); one.requests[0].first_at

For tests of slices: exact about what the core decides, and nothing else is modelled. The engine takes as long as the
core predicts, and `overhead_s` more for a slice.
"""

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from shoal_api import routes
from shoal_router import model
from shoal_router.admission import core, ticket
from shoal_router.index import chain
from shoal_router.policy import binding, slices

PAGE: Final = 64
TIMING: Final = routes.Timing()
EVENTS_MAX: Final = 1_000_000


class Request:
    """What happened to one request."""

    def __init__(self, tokens: int, session: int, at_s: float, decode_s: float) -> None:
        self.tokens = tokens
        self.session = session
        self.at_s = at_s
        self.decode_s = decode_s
        self.binding: binding.Binding | None = None
        self.turns: list[tuple[float, int]] = []
        """When, and where the slice ended; 0 is the request itself."""
        self.sent_s: float | None = None
        self.first_at: float | None = None
        self.rejected: model.Outcome | None = None

    @property
    def sliced(self) -> slices.Sliced:
        assert self.binding is not None
        assert self.binding.sliced is not None
        return self.binding.sliced


class Lane:
    """See the module."""

    def __init__(self, overhead_s: float = 0.05, timing: routes.Timing = TIMING, **service: Any) -> None:
        table = routes.Service(name="m", served_name="m", timing={"": timing}, **service)
        self.core = core.ServiceCore(table, random.Random(1))
        self.core.add_replica(model.Replica("a", "http://a", uid="1"), 0.0)
        self.core.set_facts("a", model.EngineFacts(None, None, PAGE), 0.0)
        self.core.set_state("a", model.ReplicaState.ROUTABLE, 0.0)
        self.load = self.core._pool.loads["a"]
        self.now = 0.0
        self.overhead_s = overhead_s
        self.timing = timing
        self.requests: list[Request] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._jobs: deque[tuple[float, Callable[[], None]]] = deque()
        self._working = False

    def at(self, at_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._numbers), action))

    def submit(
        self, at_s: float, tokens: int, session: int, decode_s: float = 0.2, sliceable: bool | None = None
    ) -> Request:
        """A request whose prompt has nothing in common with others."""
        request = Request(tokens, session, at_s, decode_s)
        self.requests.append(request)
        data = len(self.requests).to_bytes(4, "big") * 256
        facts = model.Request(
            prompt=model.Prompt(data, tokens=tokens),
            chain=chain.chain(data),
            session=model.Session(session, "test"),
            body_bytes=len(data),
            sliceable=tokens >= 4096 if sliceable is None else sliceable,
        )

        def rejected(outcome: model.Outcome, _: float) -> None:
            request.rejected = outcome

        given = ticket.Ticket(facts, lambda bound: self._bound(request, bound), rejected)
        self.at(at_s, lambda: self.core.submit(given, self.now))
        return request

    def _bound(self, request: Request, bound: binding.Binding) -> None:
        request.binding = bound
        if bound.sliced is None:
            self._send(request, 0)
        else:
            self.core.slices_ready(bound, request.tokens, lambda end: self._turn(request, end), self.now)

    def _turn(self, request: Request, end: int) -> None:
        request.turns.append((self.now, end))
        if not end:
            self._send(request, request.sliced.done)
            return
        before = request.sliced.done

        def done() -> None:
            assert request.binding is not None
            self.core.slice_done(request.binding, end, before, self.now)

        self._work(self._prefill_s(end, before) + self.overhead_s, done)

    def _send(self, request: Request, cached: int) -> None:
        request.sent_s = self.now

        def first() -> None:
            bound = request.binding
            assert bound is not None
            request.first_at = self.now
            self.core.first_token(bound, self.now)
            self.core.tokens(bound, 1, self.now)
            self.at(self.now + request.decode_s, lambda: self._end(request, cached))

        self._work(self._prefill_s(request.tokens, cached), first)

    def _end(self, request: Request, cached: int) -> None:
        assert request.binding is not None
        self.core.finish(request.binding, model.Usage(request.tokens, 1, cached), self.now)

    def _prefill_s(self, tokens: int, cached: int) -> float:
        given = self.timing
        count = tokens - cached
        return given.a_s + count * (given.b_s + given.c_s * (cached + count / 2))

    def _work(self, seconds: float, done: Callable[[], None]) -> None:
        self._jobs.append((seconds, done))
        if not self._working:
            self._next()

    def _next(self) -> None:
        self._working = bool(self._jobs)
        if self._jobs:
            seconds, done = self._jobs.popleft()
            self.at(self.now + seconds, lambda: self._done(done))

    def _done(self, done: Callable[[], None]) -> None:
        self._working = False
        done()
        if not self._working:
            self._next()

    def run(self, until_s: float = math.inf) -> None:
        """Until nothing happens any more; wakes the core as the router does."""
        for _ in range(EVENTS_MAX):
            wake = self.core.next_wake()
            event = self._events[0][0] if self._events else None
            at_s = min(x for x in (wake, event, math.inf) if x is not None)
            if at_s > until_s or at_s == math.inf:
                self.now = max(self.now, until_s) if until_s < math.inf else self.now
                return
            self.now = max(self.now, at_s)
            if event is not None and event <= at_s:
                heapq.heappop(self._events)[2]()
            else:
                self.core.pump(self.now)
        raise AssertionError("it never ends")

    def assert_empty(self) -> None:
        """Nothing is reserved any more."""
        load = self.load
        assert not load.flight
        assert not load.pending
        assert (load.pending_s, load.rest_s, load.lane.count, load.loose) == (0.0, 0.0, 0, 0.0)
        assert not self.core._pool.slicing.lanes
