"""Slices through ServiceCore, in virtual time: who goes in slices, in which order, what is reserved, what is told."""

import pytest

from shoal_api import routes
from shoal_router import model
from shoal_router.admission import core, ticket
from shoal_router.policy import binding, slices
from shoal_testing.lanes import PAGE, Lane, Request

LONG = 60_000
"""Tokens: five seconds of prefill."""


def _busy(lane: Lane, streams: int = 1) -> list[Request]:
    """Other sessions' streams run for as long as the test does."""
    return [lane.submit(0.0, 500, 100 + place, decode_s=1000.0) for place in range(streams)]


def _ends(request: Request) -> list[int]:
    return [end for _, end in request.turns]


def test_on_an_idle_replica_nothing_is_sliced() -> None:
    lane = Lane(itl_objective_s=0.2)
    one = lane.submit(0.0, LONG, 1)
    again = lane.submit(20.0, LONG, 1)
    other = lane.submit(60.0, LONG, 2)
    lane.run()
    assert [request.turns for request in (one, again, other)] == [[], [], []]
    assert lane.core.slicing.requests == lane.core.slicing.slices == 0


def test_beside_a_stream_a_long_prompt_goes_in_growing_slices_and_at_last_itself() -> None:
    lane = Lane(itl_objective_s=0.5)
    _busy(lane)
    one = lane.submit(1.0, LONG, 1)
    lane.run(100.0)
    *ends, last = _ends(one)
    assert last == 0
    assert len(ends) >= 5
    assert ends == sorted(set(ends))
    assert all(end % PAGE == 0 for end in ends)
    assert lane.core.slicing.requests == 1
    assert lane.core.slicing.slices == one.sliced.count == len(ends)
    assert lane.core.slicing.failures == 0
    assert lane.core.slicing.added_s == pytest.approx(one.sliced.delayed_s + one.sliced.added_s)
    lane.run()
    lane.assert_empty()


@pytest.mark.parametrize("why", ["off", "several ranks", "not sliceable", "short"])
def test_it_goes_whole_where_slices_are_not_wanted_or_of_no_use(why: str) -> None:
    lane = Lane(itl_objective_s=0.5, slicing="Off" if why == "off" else "Auto")
    if why == "several ranks":
        lane.core.set_facts("a", model.EngineFacts(None, None, PAGE, 2), 0.0)
    _busy(lane)
    one = lane.submit(1.0, 6000 if why == "short" else LONG, 1, sliceable=why != "not sliceable")
    lane.run()
    assert one.binding is not None
    assert one.binding.sliced is None
    assert lane.core.slicing.requests == 0


def test_the_dry_run_says_in_how_many_slices_it_would_go() -> None:
    lane = Lane(itl_objective_s=0.5)
    _busy(lane)
    one = lane.submit(1.0, LONG, 1)
    lane.run(0.9)
    assert one.binding is None
    lane.run(1.0)
    assert one.binding is not None
    request = one.binding.request
    lane.run(100.0)
    fresh = model.Request(request.prompt, (), model.Session(7, "test"), sliceable=True)
    expected = lane.core.slices_expected(fresh, "a", lane.now)
    assert expected == pytest.approx(one.sliced.count, abs=2)
    assert lane.core.slices_expected(model.Request(request.prompt, (), model.Session(7, "test")), "a", lane.now) == 0
    assert lane.core.slices_expected(fresh, "b", lane.now) == 0


def test_short_turns_get_in_between_and_do_not_wait_for_the_rest() -> None:
    """Their first tokens come within a slice and what is in front of them; without slices the last of them would."""
    waits = {}
    for slicing in ("Auto", "Off"):
        lane = Lane(itl_objective_s=0.3, slicing=slicing)
        _busy(lane)
        lane.submit(1.0, LONG, 1)
        shorts = [lane.submit(1.1 + 0.4 * place, 300, 2 + place) for place in range(10)]
        lane.run()
        waits[slicing] = [one.first_at - one.at_s for one in shorts if one.first_at is not None]
        assert len(waits[slicing]) == 10
        lane.assert_empty()
    assert max(waits["Auto"]) < 0.6
    assert sum(waits["Auto"]) < 0.2 * sum(waits["Off"])


def test_memory_and_place_are_reserved_from_the_start_prefill_a_slice_at_a_time() -> None:
    lane = Lane(itl_objective_s=0.5)
    _busy(lane)
    lane.run(0.9)
    tokens, flight = lane.load.kv_tokens, len(lane.load.flight)
    one = lane.submit(1.0, LONG, 1)
    lane.run(1.0)
    assert len(lane.load.flight) == flight + 1
    assert lane.load.kv_tokens - tokens >= LONG
    assert one.binding is not None
    whole_s = lane.load.timing.prefill_s(LONG, 0)
    assert 0.0 < lane.load.pending_s < 0.3 * whole_s
    assert lane.load.rest_s == pytest.approx(whole_s - lane.load.pending_s, rel=0.1)
    lane.core.release(one.binding, lane.now)
    assert (lane.load.pending_s, lane.load.rest_s, lane.load.kv_tokens) == (0.0, 0.0, tokens)


def test_a_shorter_prompt_overtakes_a_longer_one_that_is_under_way() -> None:
    lane = Lane(itl_objective_s=0.3)
    _busy(lane)
    long, short = lane.submit(1.0, 100_000, 1), lane.submit(2.0, 12_000, 2)
    lane.run()
    assert short.first_at is not None
    assert long.first_at is not None
    assert short.first_at < long.first_at
    assert len(_ends(short)) > 1
    assert long.sliced.delayed_s > 0.0


def test_a_longer_prompt_waits_in_the_queue_for_one_that_is_under_way() -> None:
    """Bound late: until then it may go elsewhere."""
    lane = Lane(itl_objective_s=0.3)
    _busy(lane)
    first, longer = lane.submit(1.0, 30_000, 1), lane.submit(1.5, 100_000, 2)
    lane.run(2.5)
    assert longer.binding is None
    assert lane.core.waiting == 1
    lane.run()
    assert longer.binding is not None
    assert first.first_at is not None
    assert longer.binding.bound_at >= first.first_at - lane.load.timing.prefill_s(30_000, 0)


def test_one_of_two_goes_on_whichever_of_them_is_released() -> None:
    """Which of two sliced prompts goes away must not matter to the other one's turns."""
    for leaves_running in (True, False):
        lane = Lane(itl_objective_s=0.3)
        _busy(lane)
        long, short = lane.submit(1.0, 100_000, 1), lane.submit(2.0, 12_000, 2)
        lane.run(2.0)
        while lane.load.lane.count < 2 or lane.load.lane.running is None:
            lane.run(lane.now + 0.05)
        running = long if long.sliced is lane.load.lane.running else short
        goes, stays = (running, short if running is long else long)
        if not leaves_running:
            goes, stays = stays, goes
        assert goes.binding is not None
        lane.core.release(goes.binding, lane.now)
        lane.run(lane.now + 60.0)
        assert _ends(stays)[-1] == 0
        assert stays.first_at is not None


def test_a_replica_that_is_no_longer_listed_finishes_what_it_has_beside_its_successor() -> None:
    lane = Lane(itl_objective_s=0.3)
    _busy(lane)
    one = lane.submit(1.0, LONG, 1)
    lane.run(2.0)
    assert one.turns
    lane.core.remove_replica("a", lane.now)
    old = lane.load
    lane.core.add_replica(model.Replica("a", "http://other", uid="2"), lane.now)
    lane.core.set_state("a", model.ReplicaState.ROUTABLE, lane.now)
    lane.load = lane.core._pool.loads["a"]
    assert lane.load is not old
    _busy(lane)
    lane.run(lane.now + 0.1)
    second = lane.submit(lane.now, LONG, 2)
    lane.run(lane.now + 60.0)
    for request in (one, second):
        assert _ends(request)[-1] == 0
        assert request.first_at is not None


def test_a_failed_slice_is_counted_and_the_rest_goes_whole_at_its_turn() -> None:
    lane = Lane(itl_objective_s=0.5)
    _busy(lane)
    one = lane.submit(1.0, LONG, 1)
    lane.run(1.0)
    assert len(one.turns) == 1
    assert one.binding is not None
    given: list[int] = []
    lane.core.slices_unwanted(one.binding, given.append, lane.now + 0.1)
    assert given == [0]
    assert (lane.core.slicing.slices, lane.core.slicing.failures) == (1, 1)
    assert lane.load.lane.count == 0
    assert lane.load.pending_s == pytest.approx(lane.load.timing.prefill_s(LONG, 0))


def test_slices_without_effect_end_slicing_and_are_told_from_the_clients_usage() -> None:
    """The cache was lost between slices: what is left goes whole, and no more are cut there for a while."""
    lane = Lane(itl_objective_s=0.5)
    _busy(lane)
    one = lane.submit(1.0, LONG, 1)
    lane.run(1.0)
    bound, turns = one.binding, one.turns
    assert bound is not None
    lane.core.slice_done(bound, turns[0][1], 0, lane.now + 0.5)
    assert len(turns) == 2
    lane.core.slice_done(bound, turns[1][1], 0, lane.now + 1.0)
    assert turns[2][1] == 0
    other = lane.submit(lane.now + 20.0, LONG, 3)
    lane.run(lane.now + 19.0 + 20.0)
    assert other.binding is not None
    assert other.binding.sliced is None


def test_what_slices_computed_does_not_count_as_found_in_the_cache() -> None:
    lane = Lane(itl_objective_s=0.5)
    _busy(lane)
    one = lane.submit(1.0, LONG, 1, decode_s=1.0)
    lane.run(60.0)
    assert one.sliced.count > 2
    assert one.binding is not None
    assert one.binding.released
    load = lane.load
    assert load.cached_actual == 0
    assert load.cached_error == load.cached_predicted == 0


def test_a_turn_that_is_not_seen_to_end_is_presumed_to() -> None:
    """Not streamed: the first token of the last part is not seen, and the next sliced prompt must not wait for it."""
    service = routes.Service(name="m", served_name="m", itl_objective_s=0.3)
    one = core.ServiceCore(service)
    one.add_replica(model.Replica("a", "http://a", uid="1"), 0.0)
    one.set_state("a", model.ReplicaState.ROUTABLE, 0.0)
    bindings: list[binding.Binding] = []

    def submit(tokens: int, session: int, now: float) -> None:
        request = model.Request(
            model.Prompt(b"", tokens=tokens), (), model.Session(session, "test"), stream=False, sliceable=True
        )
        one.submit(ticket.Ticket(request, bindings.append, lambda *_: None), now)

    submit(10, 9, 0.0)
    one.pump(1.0)
    submit(50_000, 1, 1.0)
    submit(20_000, 2, 1.0)
    turns: list[list[int]] = [[], []]
    now = 1.0
    one.slices_ready(bindings[1], 50_000, turns[0].append, now)
    one.slices_ready(bindings[2], 20_000, turns[1].append, now)
    for _ in range(100):
        if all(given and given[-1] == 0 for given in turns):
            break
        now += 0.3
        for given, each in zip(turns, bindings[1:], strict=True):
            if given and given[-1] and each.sliced is not None and each.sliced.end:
                one.slice_done(each, given[-1], None, now)
        wake = one.next_wake()
        if wake is not None and wake <= now:
            one.pump(now)
    assert [given[-1] for given in turns] == [0, 0]


def test_the_quantum_changes_with_the_route_table_and_what_is_under_way_goes_on() -> None:
    lane = Lane(itl_objective_s=0.3)
    _busy(lane)
    one = lane.submit(1.0, LONG, 1)
    lane.run(3.0)
    lane.core.configure(lane.core.service.model_copy(update={"slicing": "Off"}), lane.now)
    lane.run(60.0)
    assert _ends(one)[-1] == 0
    assert one.sliced.count > 2
    after = lane.submit(61.0, LONG, 2)
    lane.run(100.0)
    assert after.binding is not None
    assert after.binding.sliced is None


def test_owed_first_tokens_hold_the_next_slice_for_half_a_second_at_most() -> None:
    """A request whose first token does not come, on a replica that does nothing else."""
    lane = Lane(itl_objective_s=0.3)
    _busy(lane)
    one = lane.submit(1.0, LONG, 1)
    lane.run(2.0)
    stuck: list[binding.Binding] = []
    request = model.Request(model.Prompt(b"", tokens=100), (), model.Session(5, "test"))
    lane.core.submit(ticket.Ticket(request, stuck.append, lambda *_: None), lane.now)
    assert stuck
    lane.run(30.0)
    assert _ends(one)[-1] == 0
    gaps = [after - before for (before, _), (after, _) in zip(one.turns[4:], one.turns[5:], strict=False)]
    assert max(gaps) <= slices.OWED_WAIT_S + 0.3 * 1.5 + lane.overhead_s + 0.02
    assert min(gaps[:-1]) >= slices.OWED_WAIT_S
