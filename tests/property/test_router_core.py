"""ServiceCore under any order of events: every ticket is answered once, and what is reserved comes back."""

import random

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shoal_api import routes
from shoal_router import model
from shoal_router.admission import core, ticket
from shoal_router.index import chain
from shoal_router.policy import binding
from shoal_testing.corewakes import wakes

NAMES = ("a", "b", "c")


class Client:
    """One ticket and every answer it got."""

    def __init__(self, request: model.Request) -> None:
        self.bound: list[binding.Binding] = []
        self.rejected: list[tuple[model.Outcome, float]] = []
        self.ticket = ticket.Ticket(request, self.bound.append, lambda *answer: self.rejected.append(answer))


class CoreMachine(RuleBasedStateMachine):
    """Requests, answers, deaths, restarts and time, in any order."""

    @initialize(
        scale_from_zero=st.booleans(),
        requests_max=st.integers(0, 6),
        ttl_s=st.sampled_from([0.5, 5.0, 60.0]),
        kv_tokens=st.sampled_from([None, 500, 5000]),
        running_max=st.sampled_from([None, 1, 3]),
    )
    def start(
        self, scale_from_zero: bool, requests_max: int, ttl_s: float, kv_tokens: int | None, running_max: int | None
    ) -> None:
        queue = routes.Queue(requests_max=requests_max, bytes_max=20_000, ttl_s=ttl_s, no_replica_ttl_s=2 * ttl_s)
        service = routes.Service(name="m", served_name="m", queue=queue, scale_from_zero=scale_from_zero)
        self.core = core.ServiceCore(service, random.Random(1))
        self.facts = model.EngineFacts(kv_tokens, running_max)
        self.now = 0.0
        self.uids = 0
        self.clients: list[Client] = []
        self.cancelled = 0
        self.resubmitted = 0
        self.loads: dict[int, object] = {}

    def _live(self) -> list[binding.Binding]:
        return [given for client in self.clients for given in client.bound if not given.released]

    @rule(name=st.sampled_from(NAMES), fresh=st.booleans())
    def add(self, name: str, fresh: bool) -> None:
        self.uids += fresh
        self.core.add_replica(model.Replica(name, f"http://{name}", uid=str(self.uids)), self.now)
        self.core.set_facts(name, self.facts, self.now)
        self.core.set_state(name, model.ReplicaState.ROUTABLE, self.now)
        for load in self.core._pool.loads.values():
            self.loads[id(load)] = load

    @rule(name=st.sampled_from(NAMES))
    def die(self, name: str) -> None:
        self.core.remove_replica(name, self.now)

    @rule(name=st.sampled_from(NAMES), state=st.sampled_from(model.ReplicaState))
    def turn(self, name: str, state: model.ReplicaState) -> None:
        self.core.set_state(name, state, self.now)

    @rule(
        word=st.integers(0, 3),
        size=st.integers(0, 4000),
        stream=st.booleans(),
        tenant=st.sampled_from(["", "t"]),
        timeout_s=st.sampled_from([None, 0.01, 1.0]),
    )
    def submit(self, word: int, size: int, stream: bool, tenant: str, timeout_s: float | None) -> None:
        data = bytes([word]) * size
        request = model.Request(
            prompt=model.Prompt(data),
            chain=chain.chain(data),
            session=model.Session(word, "test"),
            body_bytes=size,
            stream=stream,
            tenant=tenant,
            timeout_s=timeout_s,
        )
        client = Client(request)
        self.clients.append(client)
        self.core.submit(client.ticket, self.now)

    @precondition(lambda self: self.clients)
    @rule(place=st.integers(0, 100))
    def cancel(self, place: int) -> None:
        self.cancelled += self.core.cancel(self.clients[place % len(self.clients)].ticket, self.now)

    @precondition(lambda self: self._live())
    @rule(place=st.integers(0, 100), tokens=st.integers(0, 50))
    def stream(self, place: int, tokens: int) -> None:
        live = self._live()
        given = live[place % len(live)]
        self.core.first_token(given, self.now)
        self.core.tokens(given, tokens, self.now)

    @precondition(lambda self: self._live())
    @rule(place=st.integers(0, 100), cached=st.sampled_from([None, 0, 100]), twice=st.booleans())
    def finish(self, place: int, cached: int | None, twice: bool) -> None:
        live = self._live()
        given = live[place % len(live)]
        self.core.finish(given, model.Usage(given.prompt_tokens, 10, cached), self.now)
        if twice:
            self.core.release(given, self.now)
            self.core.finish(given, None, self.now)

    @precondition(lambda self: self._live())
    @rule(place=st.integers(0, 100), retry=st.booleans())
    def fail(self, place: int, retry: bool) -> None:
        live = self._live()
        given = live[place % len(live)]
        client = next(client for client in self.clients if given in client.bound)
        self.core.release(given, self.now, failed=True)
        if retry and given.first_token_at is None:
            self.resubmitted += 1
            self.core.resubmit(client.ticket, given.replica.name, self.now)

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.3, 3.0, 100.0]))
    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        for at in wakes(self.core, self.now, until):
            self.now = at
            self.core.pump(at)
        self.now = until

    @invariant()
    def every_ticket_is_in_one_place(self) -> None:
        if not hasattr(self, "core"):
            return
        waiting = 0
        for client in self.clients:
            assert len(client.bound) <= client.ticket.attempt + 1
            answers = len(client.bound) + len(client.rejected)
            if client.ticket.phase is ticket.Phase.WAITING:
                waiting += 1
                answers += 1
            elif client.ticket.phase is ticket.Phase.CANCELLED:
                answers += 1
            assert answers == client.ticket.attempt + 1
            assert all(1.0 <= retry_after_s <= 120.0 for _, retry_after_s in client.rejected)
        assert waiting == self.core.waiting
        targets = [client.ticket.target for client in self.clients if client.ticket.target is not None]
        for load in self.loads.values():
            assert load.waiting == sum(target is load for target in targets)
        assert all(
            client.ticket.target is None or client.ticket.phase is ticket.Phase.WAITING for client in self.clients
        )
        rejected = sum(self.core.counters.rejections.values())
        answered = self.core.counters.bindings + rejected + self.core.counters.cancelled + waiting
        assert self.core.counters.requests + self.resubmitted == answered

    @invariant()
    def nothing_is_negative(self) -> None:
        for load in getattr(self, "loads", {}).values():
            assert load.pending_s >= 0.0
            assert load.loose >= 0.0
            assert load.mirror.locked >= -1e-6
            assert load.mirror.used >= -1e-6
            assert set(load.pending) <= set(load.flight)

    @invariant()
    def limits_hold(self) -> None:
        for load in getattr(self, "loads", {}).values():
            if self.facts.running_max is not None and load.facts.running_max is not None:
                assert len(load.flight) <= self.facts.running_max or load.epoch

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        self.core.reject_all(model.Outcome.DRAINING, self.now)
        while self._live():
            for given in self._live():
                self.core.release(given, self.now)
        assert self.core.waiting == 0
        queue = self.core._queue
        assert (queue.bytes, queue.prompt_tokens, queue.uncached_tokens, queue.work_s) == (0, 0, 0, 0.0)
        for load in self.loads.values():
            assert not load.flight
            assert not load.pending
            assert load.pending_s == 0.0
            assert load.loose == 0.0
            assert abs(load.mirror.locked) < 1e-6
            assert load.busy_s(self.now) == 0.0
        entries = sum(len(load.mirror) for load in self.core._pool.loads.values())
        assert self.core._pool.owners.entries == entries
        state = self.core.state(self.now)
        assert state.queue.requests == 0
        assert all(replica.in_flight_requests == 0 for replica in state.replicas)


TestCore = CoreMachine.TestCase
TestCore.settings = hypothesis.settings(max_examples=40, stateful_step_count=40, deadline=None)
