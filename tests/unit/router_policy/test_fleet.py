"""The policy against a simulated fleet: what routing is for, kept as tests over the production code.

Workload of the first: many questions about a few long documents, more than the fleet can do for a while. A copy of a
document costs seconds of prefill and pushes another out of a cache.
"""

import functools
import random

import pytest

from shoal_api import routes
from shoal_fleet import model
from shoal_fleet.fleet import Fleet, Outcome
from shoal_fleet.policies import production
from shoal_testing import fleets

DOCUMENT = range(40)


def _nothing(outcome: Outcome) -> None:
    return


def _documents(policy: str) -> Fleet:
    fleet = fleets.fleet(model.study(8000, 300_000, fleets.BLOCK_TOKENS), 8, policy)
    for at_s, job in fleets.documents(800, 20.0):
        fleet.clock.at(at_s, functools.partial(fleet.submit, job, _nothing))
    fleet.run()
    assert len(fleet.outcomes) == 800
    return fleet


def test_greedy_copies_hot_prefixes_everywhere_price_and_late_binding_do_not() -> None:
    greedy, ours = _documents("greedy").outcomes, _documents("price_and_hold").outcomes
    assert 1 - fleets.hit_rate(ours) < 0.95 * (1 - fleets.hit_rate(greedy))
    assert fleets.mean(fleets.ttfts(ours)) < 0.6 * fleets.mean(fleets.ttfts(greedy))


def test_a_prefix_too_hot_for_one_replica_is_copied_to_idle_ones() -> None:
    """All ask about one document, more than one replica can answer: the others take part."""
    fleet = fleets.fleet(model.study(8000, 300_000, fleets.BLOCK_TOKENS), 4)
    for number in range(400):
        blocks = (*DOCUMENT, 10_000 + 3 * number, 10_001 + 3 * number, 10_002 + 3 * number)
        fleet.clock.at(number / 12.0, functools.partial(fleet.submit, fleets.job(blocks, 20, number), _nothing))
    fleet.run()
    whole = len(DOCUMENT) * fleets.BLOCK_TOKENS
    holders = {one.replica for one in fleet.outcomes if (one.cached_tokens or 0) >= whole}
    assert len(holders) >= 3  # what so many questions need
    assert fleets.mean(fleets.ttfts(fleet.outcomes)[200:]) < 3.0  # alone, one replica would be a minute behind


def _agents(speedup: float, timing: routes.Timing | None = None) -> Fleet:
    """Sessions of growing prompts, closed loop, on four replicas that hold them all but not everywhere."""
    rng = random.Random(3)
    engine = model.study(15_000, 1_500_000, fleets.BLOCK_TOKENS)
    fleet = fleets.fleet(model.faster(engine, speedup), 4, timing=timing or engine.router_timing())

    def session(number: int) -> None:
        blocks = [number * 10_000 + place for place in range(rng.randrange(40, 160))]
        left = 25

        def turn(_: Outcome | None = None) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                return
            blocks.extend(number * 10_000 + 5000 + len(blocks) + place for place in range(rng.randrange(1, 3)))
            job = fleets.job(blocks, rng.randrange(20, 300), number)
            fleet.clock.after(rng.expovariate(0.5) / speedup, lambda: fleet.submit(job, turn))

        turn()

    for number in range(24):
        session(number)
    fleet.run()
    return fleet


@pytest.mark.parametrize("speedup", [1.0, 20.0])
def test_sessions_stay_where_their_prefix_is_whatever_the_speed_of_the_engines(speedup: float) -> None:
    fleet = _agents(speedup)
    assert len(fleet.outcomes) == 24 * 25
    turns = 25
    bound = 1 - 1 / turns  # all but the first turn of each session could be cached, but for what is new in each
    assert fleets.hit_rate(fleet.outcomes) > bound - 0.03
    wrong = sum(abs((one.cached_predicted or 0) - (one.cached_tokens or 0)) for one in fleet.outcomes)
    assert wrong < 0.01 * sum(one.job.input_tokens for one in fleet.outcomes)
    assert isinstance(fleet.policy, production.PriceAndHold)
    learned = fleet.policy.core.replica_reports(fleet.clock.now_s)[0]
    assert learned.prefill_b_s == pytest.approx(1 / 15_000 / speedup, rel=0.3)


def test_nothing_stays_reserved() -> None:
    fleet = _agents(20.0)
    state = fleet.policy.state(fleet.clock.now_s)
    assert state is not None
    assert len(state.replicas) == 4
    for replica in state.replicas:
        assert (replica.in_flight_requests, replica.in_flight_work_s, replica.in_flight_tokens) == (0, 0.0, 0)


def test_a_long_prompt_is_not_starved_by_short_ones() -> None:
    """One replica, short prompts all the time: the long one claims the replica when its turn comes."""
    fleet = fleets.fleet(model.study(10_000, 1_000_000, fleets.BLOCK_TOKENS), 1)
    rng = random.Random(5)
    at_s = 0.0
    for number in range(800):
        at_s += rng.expovariate(9.0)  # short prompts alone fill most of the replica
        job = fleets.job((number * 10, number * 10 + 1), 5, number, tokens=700)
        fleet.clock.at(at_s, functools.partial(fleet.submit, job, _nothing))
    ended: list[Outcome] = []
    long = fleets.job(range(10**9, 10**9 + 80), 5, 10**6, tokens=40_000)
    fleet.clock.at(2.0, lambda: fleet.submit(long, ended.append))
    fleet.run()
    assert ended[0].ended_s < 60.0
