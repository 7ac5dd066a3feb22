"""The policy against a simulated fleet: what routing is for, kept as tests over the production code.

Workload of the first: many questions about a few long documents, more than the fleet can do for a while. A copy of a
document costs seconds of prefill and pushes another out of a cache.
"""

import random

import pytest

from shoal_api import routes
from shoal_testing import routersim

DOCUMENTS = 48
DOCUMENT_BLOCKS = 40


def _documents(policy: str, requests: int = 800, per_s: float = 20.0) -> routersim.Fleet:
    rng = random.Random(7)
    fleet = routersim.Fleet(replicas=8, kv_tokens=300_000, prefill_tokens_per_s=8000)
    submit = getattr(fleet, policy)
    at = 0.0
    for number in range(requests):
        at += rng.expovariate(per_s)
        document = min(DOCUMENTS - 1, int(rng.paretovariate(0.7)) - 1)
        blocks = tuple(document * 1000 + place for place in range(DOCUMENT_BLOCKS)) + tuple(
            1_000_000 + number * 10 + place for place in range(3)
        )
        job = routersim.Job(blocks, len(blocks) * routersim.BLOCK_TOKENS, 40 + rng.randrange(200), number)
        fleet.at(at, lambda job=job: submit(job))
    fleet.run()
    assert fleet.done == requests
    return fleet


def test_greedy_copies_hot_prefixes_everywhere_price_and_late_binding_do_not() -> None:
    greedy, ours = _documents("submit_greedy"), _documents("submit")
    assert 1 - ours.hit_rate < 0.95 * (1 - greedy.hit_rate)
    assert routersim.mean(ours.ttfts) < 0.6 * routersim.mean(greedy.ttfts)


def test_a_prefix_too_hot_for_one_replica_is_copied_to_idle_ones() -> None:
    """All ask about one document, more than one replica can answer: the others take part."""
    fleet = routersim.Fleet(replicas=4, kv_tokens=300_000, prefill_tokens_per_s=8000)
    document = tuple(range(DOCUMENT_BLOCKS))
    for number in range(400):
        blocks = (*document, 10_000 + 3 * number, 10_001 + 3 * number, 10_002 + 3 * number)
        job = routersim.Job(blocks, len(blocks) * routersim.BLOCK_TOKENS, 20, number)
        fleet.at(number / 12.0, lambda job=job: fleet.submit(job))
    fleet.run()
    holders = [engine for engine in fleet.engines.values() if engine.match(document) == DOCUMENT_BLOCKS]
    assert len(holders) >= 3  # what so many questions need
    assert routersim.mean(fleet.ttfts[200:]) < 3.0  # alone, one replica would be a minute behind


def _agents(speedup: float, timing: routes.Timing | None = None) -> routersim.Fleet:
    """Sessions of growing prompts, closed loop, on four replicas that hold them all but not everywhere."""
    rng = random.Random(3)
    fleet = routersim.Fleet(4, 1_500_000, 15_000, speedup=speedup, timing=timing)

    def session(number: int) -> None:
        blocks = [number * 10_000 + place for place in range(rng.randrange(40, 160))]
        left = 25

        def turn() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                return
            blocks.extend(number * 10_000 + 5000 + len(blocks) + place for place in range(rng.randrange(1, 3)))
            tokens = len(blocks) * routersim.BLOCK_TOKENS
            job = routersim.Job(tuple(blocks), tokens, rng.randrange(20, 300), number)
            fleet.at(fleet.now + rng.expovariate(0.5) / speedup, lambda: fleet.submit(job, turn))

        turn()

    for number in range(24):
        session(number)
    fleet.run()
    return fleet


@pytest.mark.parametrize("speedup", [1.0, 20.0])
def test_sessions_stay_where_their_prefix_is_whatever_the_speed_of_the_engines(speedup: float) -> None:
    fleet = _agents(speedup)
    assert fleet.done == 24 * 25
    turns = 25
    bound = 1 - 1 / turns  # all but the first turn of each session could be cached, but for what is new in each
    assert fleet.hit_rate > bound - 0.03
    assert fleet.predicted_error < 0.01 * fleet.prompt_tokens
    learned = next(iter(fleet.core._pool._timings.values()))
    assert learned.prefill_factor == pytest.approx(1 / speedup, rel=0.3)


def test_nothing_stays_reserved() -> None:
    fleet = _agents(20.0)
    for load in fleet.core._pool.loads.values():
        assert (len(load.flight), load.pending_s, load.loose) == (0, 0.0, 0.0)
        assert load.mirror.locked == pytest.approx(0.0, abs=1e-3)
    assert not routersim.given_cached


def test_a_long_prompt_is_not_starved_by_short_ones() -> None:
    """One replica, short prompts all the time: the long one claims the replica when its turn comes."""
    fleet = routersim.Fleet(1, 1_000_000, 10_000)
    rng = random.Random(5)
    at = 0.0
    for number in range(800):
        at += rng.expovariate(9.0)  # short prompts alone fill most of the replica
        job = routersim.Job((number * 10, number * 10 + 1), 700, 5, number)
        fleet.at(at, lambda job=job: fleet.submit(job))
    ended: list[float] = []
    long = routersim.Job(tuple(range(10**9, 10**9 + 80)), 40_000, 5, -1)
    fleet.at(2.0, lambda: fleet.submit(long, lambda: ended.append(fleet.now)))
    fleet.run()
    assert ended[0] < 60.0
