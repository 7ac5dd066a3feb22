"""Single decisions of the core: affinity, room, retries, calibration, what `/state` says."""

import math
import random

import pytest

from shoal_api import routes
from shoal_router import model
from shoal_router.admission import core, ticket
from shoal_router.index import chain, mirror, owners
from shoal_router.policy import binding


class Fleet:
    """A core with routable replicas, and what its tickets were told."""

    def __init__(self, replicas: int = 2, kv_tokens: int | None = 1_000_000, **fields: object) -> None:
        self.core = core.ServiceCore(
            routes.Service.model_validate({"name": "m", "served_name": "m", **fields}), random.Random(1)
        )
        self.rejected: list[tuple[model.Outcome, float]] = []
        for number in range(replicas):
            self.core.add_replica(model.Replica(f"r{number}", f"http://r{number}", uid="1"), 0.0)
            self.core.set_facts(f"r{number}", model.EngineFacts(kv_tokens, 64), 0.0)
            self.core.set_state(f"r{number}", model.ReplicaState.ROUTABLE, 0.0)

    def submit(self, data: bytes, now: float, session: int = 0, **fields: object) -> list[binding.Binding]:
        got: list[binding.Binding] = []
        self.ticket = ticket.Ticket(
            request(data, session, **fields), got.append, lambda *answer: self.rejected.append(answer)
        )
        self.core.submit(self.ticket, now)
        return got

    def serve(self, data: bytes, now: float, session: int = 0, cached: int = 0, reply: int = 10) -> binding.Binding:
        """One request from arrival to its end a second later."""
        [given] = self.submit(data, now, session)
        self.core.first_token(given, now + 0.1)
        self.core.tokens(given, reply, now + 0.5)
        self.core.finish(given, model.Usage(len(data) // 4, reply, cached), now + 1.0)
        return given


def request(data: bytes, session: int, **fields: object) -> model.Request:
    given = {"prompt": model.Prompt(data), "chain": chain.chain(data), "session": model.Session(session, "t")}
    return model.Request(**given | {"body_bytes": len(data)} | fields)  # type: ignore[arg-type]


TEXT = random.Random(3).randbytes(40_000)


def test_next_turn_goes_home_and_is_credited_with_the_end_of_the_last_prompt() -> None:
    fleet = Fleet()
    first = fleet.serve(TEXT[:30_500], 0.0)
    second = fleet.serve(TEXT[:31_000], 10.0, cached=7625)
    assert second.replica == first.replica
    assert 7625 <= second.matched_tokens <= 7625 + 10  # the last chunk ended 292 bytes before the prompt did
    assert chain.length_bytes(chain.depth(30_500)) // 4 < 7625


def test_no_credit_for_a_prompt_that_does_not_go_on_from_the_last_one() -> None:
    fleet = Fleet()
    fleet.serve(TEXT[:30_500], 0.0)
    other = fleet.serve(TEXT[:20_000] + bytes(11_000), 10.0)
    assert other.matched_tokens <= 20_000 // 4


def test_without_affinity_only_the_mirror_counts() -> None:
    fleet = Fleet(affinity="Off")
    fleet.serve(TEXT[:30_500], 0.0)
    second = fleet.serve(TEXT[:31_000], 10.0)
    assert second.matched_tokens == chain.length_bytes(chain.depth(30_500)) // 4


def test_a_sub_agent_starts_where_its_parent_is() -> None:
    fleet = Fleet(replicas=8)
    home = fleet.serve(TEXT[:1000], 0.0, session=1).replica
    for session in range(2, 12):
        [given] = fleet.submit(bytes([session]) * 3000, 10.0 * session, session, parent=1)
        assert given.replica == home
        fleet.core.release(given, 10.0 * session)


def test_a_restarted_engine_is_taken_to_be_empty() -> None:
    fleet = Fleet(replicas=1)
    fleet.serve(TEXT, 0.0)
    fleet.core.add_replica(model.Replica("r0", "http://r0", uid="2"), 5.0)
    assert fleet.serve(TEXT, 10.0).matched_tokens == 0


def test_explain_names_the_terms_that_the_choice_is_made_of() -> None:
    fleet = Fleet(replicas=4)
    for session in range(6):
        fleet.serve(TEXT[: 5000 * (session + 1)], 2.0 * session, session)
    held = [fleet.submit(TEXT[:9000], 20.0, 50 + turn) for turn in range(3)]
    wanted = request(TEXT[:26_000], 4)
    terms = fleet.core.explain(wanted, 20.05)
    [given] = fleet.submit(TEXT[:26_000], 20.05, 4)
    assert terms[0].replica == given.replica.name
    assert terms[0].cost_s == pytest.approx(given.cost_s, abs=2e-4)
    for term in terms:
        total = term.busy_s + term.work_s * term.price + term.interference_s + term.kv_pressure_s
        assert term.cost_s == pytest.approx(total)
    assert sum(map(len, held)) == 3


def test_a_replica_holds_half_a_second_of_prefill_beyond_what_it_does() -> None:
    fleet = Fleet(replicas=1)
    second_of_work = bytes(48_000)  # 12,000 tokens
    [first] = fleet.submit(second_of_work, 0.0)
    assert not fleet.submit(TEXT, 0.0, 1)
    short = fleet.submit(b"short" * 20, 0.0, 2)
    assert len(short) == 1  # it fits, and goes before the long one
    assert [term.room for term in fleet.core.explain(request(bytes(TEXT[::-1]), 3), 0.0)] == ["prefill"]
    fleet.core.first_token(first, 1.0)
    assert fleet.core.waiting == 1  # the short one is being done now
    fleet.core.first_token(short[0], 1.1)
    assert fleet.core.waiting == 0


def test_a_limit_for_now_holds_requests_and_leaves_what_the_engine_said() -> None:
    fleet = Fleet(replicas=1)
    fleet.core.set_limit("r0", 0, 0.0)
    assert not fleet.submit(b"a" * 64, 0.0)
    assert fleet.core.state(0.0).replicas[0].running_max == 64
    fleet.core.set_limit("r0", math.inf, 1.0)
    assert fleet.core.state(1.0).replicas[0].in_flight_requests == 1


def test_a_retry_that_has_to_wait_is_bound_once() -> None:
    fleet = Fleet(replicas=2)
    given = fleet.submit(TEXT, 0.0)
    tried = fleet.ticket
    fleet.submit(TEXT[::-1], 0.0, 1)  # keeps the other replica busy
    fleet.core.release(given[0], 0.1)
    fleet.core.resubmit(tried, given[0].replica.name, 0.1)
    assert (len(given), fleet.core.waiting) == (1, 1)
    busy = next(load for load in fleet.core._pool.loads.values() if load.flight)
    fleet.core.first_token(next(iter(busy.flight.values())), 1.0)
    assert (len(given), fleet.core.waiting) == (2, 0)
    assert given[0].replica != given[1].replica
    assert given[1].attempt == 1


def test_when_every_replica_was_tried_it_is_refused() -> None:
    fleet = Fleet(replicas=1)
    [given] = fleet.submit(TEXT, 0.0)
    fleet.core.release(given, 0.1)
    fleet.core.resubmit(fleet.ticket, "r0", 0.1)
    assert fleet.rejected[0][0] is model.Outcome.NO_REPLICA


@pytest.mark.parametrize("from_zero", [False, True])
def test_without_replicas_only_a_service_that_scales_from_zero_lets_requests_wait(from_zero: bool) -> None:
    fleet = Fleet(replicas=0, scale_from_zero=from_zero)
    got = fleet.submit(TEXT, 0.0)
    assert [outcome for outcome, _ in fleet.rejected] == ([] if from_zero else [model.Outcome.NO_REPLICA])
    assert fleet.core.state(1.0).queue.no_replica_requests == from_zero
    fleet.core.add_replica(model.Replica("r", "http://r"), 200.0)
    fleet.core.set_state("r", model.ReplicaState.ROUTABLE, 200.0)
    assert len(got) == from_zero


def test_a_full_queue_says_when_to_come_back() -> None:
    fleet = Fleet(replicas=1, queue={"requests_max": 1})
    for session in range(3):
        fleet.submit(bytes([session]) * 40_000, 0.0, session)
    [(outcome, retry_after_s)] = fleet.rejected
    assert (outcome, outcome.http_status) == (model.Outcome.QUEUE_FULL, 503)
    assert retry_after_s >= 1.0


def test_a_request_is_dropped_when_its_own_deadline_cannot_be_met() -> None:
    fleet = Fleet(replicas=1)
    [first] = fleet.submit(TEXT, 0.0)
    fleet.submit(bytes(400_000), 0.0, 1, timeout_s=2.0)  # 100,000 tokens take longer than that
    fleet.core.first_token(first, 1.0)
    assert [outcome for outcome, _ in fleet.rejected] == [model.Outcome.EXPIRED]


def test_a_mirror_that_predicts_too_much_shrinks_and_grows_back() -> None:
    fleet = Fleet(replicas=1, kv_tokens=20_000)
    load = fleet.core._pool.loads["r0"]
    fleet.serve(TEXT, 0.0)
    fleet.serve(TEXT, 10.0, cached=0)
    assert load.cached_error > 9000
    shrunk = load.mirror.capacity
    assert shrunk <= 0.9 * 10_100
    for turn in range(3, 9):
        fleet.serve(TEXT, 10.0 * turn, cached=load.mirror.match(chain.chain(TEXT)) and 10_000)
    assert load.mirror.capacity > shrunk


def test_a_parent_is_as_young_as_the_last_child_it_lost() -> None:
    """Its eviction order is that of an engine in which every use of a prompt is a use of its prefixes."""
    held = mirror.Mirror(owners.Owners(), 1)
    held.set_kv_max(6)
    for now, path in enumerate([(1, 2), (1, 2, 3), (7, 8), (1, 2, 4)]):
        held.unlock(held.insert(path, held.match(path), 1 / 256, 0.0, float(now)))
    held.evict_entries(3)  # 3 is the oldest end, then 8 and 7; 2 was used after them, with 4
    assert set(held._nodes) == {1, 2, 4}
    held.evict_entries(1)
    held.unlock(held.insert((9,), 0, 1 / 256, 0.0, 10.0))
    held.unlock(held.insert((1, 2), 2, 1 / 256, 0.0, 11.0))
    held.evict_entries(1)
    assert set(held._nodes) == {1, 2}


def test_state_counts_what_only_one_replica_holds() -> None:
    fleet = Fleet(replicas=1)
    fleet.serve(TEXT, 0.0)
    state = fleet.core.state(1.0)
    assert state.replicas[0].unique_hot_tokens == pytest.approx(10_000, rel=0.05)
    assert (state.requests_total, state.ttft.samples, state.sessions_active) == (1, 1, 1)
    assert state.ttft.p50_s == pytest.approx(0.1, rel=0.1)
    assert fleet.core.state(1000.0).replicas[0].unique_hot_tokens == 0
    assert fleet.core.state(1000.0).ttft.p50_s is None
