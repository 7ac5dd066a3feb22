"""ServiceCore with prompts in slices, under any order of events: turns are taken one at a time and grow, none is lost,
and what was reserved comes back."""

import random

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from shoal_api import routes
from shoal_router import model
from shoal_router.admission import core, ticket
from shoal_router.index import chain
from shoal_router.policy import binding, slices
from shoal_router.policy import load as loads
from shoal_testing.corewakes import wakes

NAMES = ("a", "b")
PAGE = 64
DONE_WITHIN = 200
"""Rounds in which all that is left must have had its last turn, when every engine does what it was asked for."""


class Client:
    """One request, the turns that it got, and whether the engine works on one of its slices."""

    def __init__(self, machine: "SliceMachine", request: model.Request, ids: bool) -> None:
        self.machine = machine
        self.ids = ids
        """Given by the client: it asks for turns the moment it is bound."""
        self.bound: list[binding.Binding] = []
        self.rejected: list[model.Outcome] = []
        self.ticket = ticket.Ticket(request, self.on_bound, lambda outcome, _: self.rejected.append(outcome))
        self.begin()

    def begin(self) -> None:
        """Another attempt, or the first."""
        self.asked = False
        """The core knows how to give it turns."""
        self.ends: list[int] = []
        """Of the turns since the last slice that was known to be shorter or lost."""
        self.slice = 0
        self.final = False
        self.exact = True

    def on_bound(self, given: binding.Binding) -> None:
        self.begin()
        self.bound.append(given)
        if given.sliced is None:
            self.final = True
        elif self.ids:
            self.ask(given, given.prompt_tokens)

    def ask(self, given: binding.Binding, tokens: int) -> None:
        self.asked = True
        self.machine.core.slices_ready(given, tokens, self.on_turn, self.machine.now)

    @property
    def live(self) -> binding.Binding | None:
        return self.bound[-1] if self.bound and not self.bound[-1].released else None

    def on_turn(self, end: int) -> None:
        given = self.live
        assert given is not None, "a turn of a request that is not there"
        assert self.asked, "a turn before it asked for one"
        assert not self.final, "a turn after the last"
        assert not self.slice, "a turn while its slice runs"
        assert given.sliced is not None
        if not end:
            self.final = True
            return
        load = given._load
        running = [one for one in self.machine.clients if one.live is not None and one.live._load is load and one.slice]
        assert not running, "two slices at once on a replica"
        assert end % PAGE == 0
        assert end < given.sliced.tokens
        assert end >= given.sliced.done + PAGE, "a slice that brings nothing"
        if self.exact and self.ends:
            assert end > self.ends[-1]
        self.ends.append(end)
        self.slice = end


class SliceMachine(RuleBasedStateMachine):
    """Long and short prompts, turns, answers, failures, restarts, changes of the table and time, in any order."""

    @initialize(
        itl_s=st.sampled_from([None, 0.2, 0.2, 1.0]),
        kv_tokens=st.sampled_from([None, None, 150_000]),
        running_max=st.sampled_from([None, None, 4]),
    )
    def start(self, itl_s: float | None, kv_tokens: int | None, running_max: int | None) -> None:
        self.table = routes.Service(name="m", served_name="m", itl_objective_s=itl_s)
        self.core = core.ServiceCore(self.table, random.Random(1))
        self.facts = model.EngineFacts(kv_tokens, running_max, PAGE)
        self.now = 0.0
        self.uids = 0
        self.clients: list[Client] = []
        self.loads: dict[int, loads.Load] = {}
        for name in NAMES:
            self.add(name, True)
            self.submit(0, 10, False, True, 9)  # others are there
            self.core.first_token(self.clients[-1].bound[-1], self.now)

    def _live(self) -> list[Client]:
        return [client for client in self.clients if client.live is not None]

    def _pick(self, place: int, clients: list[Client]) -> tuple[Client, binding.Binding] | None:
        if not clients:
            return None
        client = clients[place % len(clients)]
        given = client.live
        assert given is not None
        return client, given

    # Replicas

    def add(self, name: str, fresh: bool) -> None:
        self.uids += fresh
        self.core.add_replica(model.Replica(name, f"http://{name}", uid=str(self.uids)), self.now)
        self.core.set_facts(name, self.facts, self.now)
        self.core.set_state(name, model.ReplicaState.ROUTABLE, self.now)
        for load in self.core._pool.loads.values():
            self.loads[id(load)] = load

    @rule(name=st.sampled_from(NAMES), what=st.sampled_from([*model.ReplicaState, "gone", "back", "restarted", "", ""]))
    def change(self, name: str, what: model.ReplicaState | str) -> None:
        """`gone`: it is no longer listed; what it has goes on. Whatever it is, it is back soon."""
        if what == "gone":
            self.core.remove_replica(name, self.now)
        elif isinstance(what, model.ReplicaState):
            self.core.set_state(name, what, self.now)
        for other in NAMES:
            if other != name or what in ("back", "restarted"):
                self.add(other, what == "restarted")

    @rule(slicing=st.sampled_from(["Auto", "Auto", "Off"]), slower=st.booleans())
    def configure(self, slicing: str, slower: bool) -> None:
        timing = {"": routes.Timing(b_s=2e-4)} if slower else {}
        self.table = self.table.model_copy(update={"slicing": slicing, "timing": timing})
        self.core.configure(self.table, self.now)

    # Requests

    @rule(
        word=st.integers(0, 20),
        tokens=st.integers(6_000, 60_000),
        long=st.sampled_from([True, True, False]),
        stream=st.booleans(),
        session=st.integers(0, 3),
        ids=st.booleans(),
    )
    def submit(self, word: int, tokens: int, long: bool, stream: bool, session: int, ids: bool = False) -> None:
        tokens = tokens if long else tokens % 1000 + 1
        data = bytes([word]) * min(8000, tokens)
        request = model.Request(
            prompt=model.Prompt(data, tokens=tokens),
            chain=chain.chain(data),
            session=model.Session(session, "test"),
            body_bytes=len(data),
            stream=stream,
            sliceable=long,
        )
        client = Client(self, request, ids)
        self.clients.append(client)
        self.core.submit(client.ticket, self.now)

    @rule(place=st.integers(0, 100), share=st.sampled_from([0.3, 1.0, 1.0, 2.0]))
    def ready(self, place: int, share: float) -> None:
        found = self._pick(place, [one for one in self._live() if not one.asked and not one.final])
        if found is not None:
            client, given = found
            client.ask(given, max(1, int(share * given.prompt_tokens)))

    @rule(place=st.integers(0, 100))
    def unwanted(self, place: int) -> None:
        """No ids; or the slice that runs has failed."""
        found = self._pick(place, [one for one in self._live() if not one.final])
        if found is not None:
            client, given = found
            client.asked, client.slice = True, 0
            self.core.slices_unwanted(given, client.on_turn, self.now)

    @rule(
        place=st.integers(0, 100),
        cached=st.sampled_from([None, "all", "all", "none"]),
        length=st.sampled_from([1.0, 1.0, 0.7, 3.0]),
    )
    def slice_done(self, place: int, cached: str | None, length: float) -> None:
        found = self._pick(place, [one for one in self._live() if one.slice])
        if found is not None:
            client, given = found
            self._slice_done(client, given, cached, length)

    def _slice_done(self, client: Client, given: binding.Binding, cached: str | None, length: float) -> None:
        assert given.sliced is not None
        before = {None: None, "none": 0, "all": given.sliced.done}[cached]
        tokens, client.slice = max(1, int(client.slice * length)), 0
        client.exact = client.exact and length == 1.0
        self.core.slice_done(given, tokens, before, self.now)

    @rule(seconds=st.sampled_from([0.1, 0.6]))
    def work(self, seconds: float) -> None:
        """The engines do the next thing that they were asked for."""
        for load in list(self.loads.values()):
            for client in self._live():
                given = client.live
                if given is not None and given._load is load:
                    if client.slice:
                        self._slice_done(client, given, "all", 1.0)
                        break
                    if client.final and given.first_token_at is None:
                        self.core.first_token(given, self.now)
                        break
        self.wait(seconds)

    @rule(place=st.integers(0, 100), tokens=st.integers(0, 50))
    def stream(self, place: int, tokens: int) -> None:
        found = self._pick(place, [one for one in self._live() if one.final])
        if found is not None:
            self.core.first_token(found[1], self.now)
            self.core.tokens(found[1], tokens, self.now)

    @rule(place=st.integers(0, 100), cached=st.sampled_from([None, 0, 100]))
    def finish(self, place: int, cached: int | None) -> None:
        found = self._pick(place, [one for one in self._live() if one.final])
        if found is not None:
            given = found[1]
            self.core.finish(given, model.Usage(given.prompt_tokens, 10, cached), self.now)

    @rule(place=st.integers(0, 100), retry=st.booleans())
    def fail(self, place: int, retry: bool) -> None:
        """At any time: its client went away, or its replica died."""
        found = self._pick(place, self._live())
        if found is None:
            return
        client, given = found
        client.slice = 0
        self.core.release(given, self.now, failed=True)
        # Late word of what was cancelled changes nothing.
        self.core.slices_ready(given, 10_000, client.on_turn, self.now)
        self.core.slice_done(given, 64, 0, self.now)
        self.core.slices_unwanted(given, client.on_turn, self.now)
        if retry and given.first_token_at is None:
            self.core.resubmit(client.ticket, given.replica.name, self.now)

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.3, 3.0]))
    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        for at in wakes(self.core, self.now, until):
            self.now = at
            self.core.pump(at)
        self.now = until

    # What must hold

    @invariant()
    def loads_count_what_is_there(self) -> None:
        for load in getattr(self, "loads", {}).values():
            here = [one for one in self._live() if one.live is not None and one.live._load is load]
            sliced = [one.live for one in here if not one.final]
            assert load.lane.count == len(sliced)
            assert {id(one) for one in sliced} >= set(load.lane.waiting)
            assert (load.lane.running is not None) == any(one.slice for one in here)
            assert set(load.pending) <= set(load.flight)
            for place in load.lane.waiting:
                assert place not in load.pending
            assert load.pending_s >= 0.0
            assert load.rest_s >= 0.0
            if not load.lane.count:
                assert load.rest_s == 0.0
                assert load.next_s == float("inf")

    @invariant()
    def totals_make_sense(self) -> None:
        if hasattr(self, "core"):
            totals = self.core.slicing
            assert totals.slices >= totals.failures >= 0
            assert totals.added_s >= 0.0
            assert totals.saved_s >= 0.0

    @invariant()
    def no_turn_is_forgotten(self) -> None:
        """Where nothing is owed and no slice runs, whoever is ready has had a turn, or the core knows when to look."""
        if not hasattr(self, "core"):
            return
        for client in self._live():
            given = client.live
            assert given is not None
            load = given._load
            if client.final or not client.asked or client.slice:
                continue
            if load.lane.running is None and not load.pending:
                wake = self.core.next_wake()
                assert wake is not None, "nobody will ever look again"
                assert wake < self.now + slices.OWED_WAIT_S + 1e-6

    def teardown(self) -> None:
        """Every engine does what it was asked for: every request gets its last turn. Then all are done."""
        if not hasattr(self, "core"):
            return
        self.core.reject_all(model.Outcome.DRAINING, self.now)
        for _ in range(DONE_WITHIN):
            left = [one for one in self._live() if not one.final]
            if not left:
                break
            for client in self._live():
                given = client.live
                assert given is not None
                if client.final:
                    self.core.first_token(given, self.now)
                elif client.slice:
                    self._slice_done(client, given, "all", 1.0)
                elif not client.asked:
                    client.ask(given, given.prompt_tokens)
            self.wait(0.6)
        else:
            raise AssertionError(f"{len(left)} requests got no last turn")
        for client in self._live():
            given = client.live
            assert given is not None
            self.core.finish(given, model.Usage(given.prompt_tokens, 1, 0), self.now)
        for load in self.loads.values():
            assert not load.flight
            assert not load.pending
            assert load.pending_s == 0.0
            assert (load.rest_s, load.next_s, load.lane.count) == (0.0, float("inf"), 0)
            assert load.loose == 0.0
            assert abs(load.mirror.locked) < 1e-6
            assert load.price == 1.0
        assert not self.core._pool.slicing.lanes
        assert all(one.in_flight_requests == 0 for one in self.core.state(self.now).replicas)


TestSlices = SliceMachine.TestCase
TestSlices.settings = hypothesis.settings(max_examples=150, stateful_step_count=60, deadline=None)
