"""Models of peers decide as their routers do."""

import random

from shoal_fleet.policies import peers
from shoal_fleet.policies.protocol import Placed
from shoal_fleet.workload import Job
from shoal_testing import fleets

REPLICAS = ("a", "b", "c")


def _place(policy: peers.RoundRobin | peers.LeastLoaded | peers.CacheAware, job: Job) -> Placed:
    placed: list[Placed] = []
    policy.submit(job, placed.append, lambda reason, after_s: None, 0.0)
    return placed[0]


def _cache_aware(**options: float) -> peers.CacheAware:
    made = peers.CacheAware(random.Random(1), **options)  # type: ignore[arg-type]
    for name in REPLICAS:
        made.add(name, 10_000, 8, 64, 0.0)
    return made


def test_round_robin_takes_turns_and_skips_who_drains() -> None:
    made = peers.RoundRobin(random.Random(1))
    for name in REPLICAS:
        made.add(name, 10_000, 8, 64, 0.0)
    job = fleets.job([1], 1)
    assert [_place(made, job).replica for _ in range(4)] == ["a", "b", "c", "a"]
    made.drain("b", True, 0.0)
    assert {_place(made, job).replica for _ in range(4)} == {"a", "c"}
    made.drain("b", False, 0.0)
    assert {_place(made, job).replica for _ in range(3)} == {"a", "b", "c"}


def test_least_loaded_counts_what_is_in_flight() -> None:
    made = peers.LeastLoaded(random.Random(1))
    for name in REPLICAS:
        made.add(name, 10_000, 8, 64, 0.0)
    placed = [_place(made, fleets.job([1], 1)) for _ in range(3)]
    assert {one.replica for one in placed} == set(REPLICAS)
    placed[1].finish(512, 1, 0, 1.0)
    assert _place(made, fleets.job([1], 1)).replica == placed[1].replica


def test_cache_aware_follows_what_it_sent_above_the_threshold() -> None:
    made = _cache_aware()
    home = _place(made, fleets.job(range(10), 1)).replica
    for number in range(20):
        near = _place(made, fleets.job([*range(4), *range(100 * number + 100, 100 * number + 108)], 1))
        assert near.replica == home  # a third matches
        assert near.cached_predicted == 4 * fleets.BLOCK_TOKENS
    far = {_place(made, fleets.job([0, *range(5000 + 10 * n, 5009 + 10 * n)], 1)).replica for n in range(4)}
    assert home not in far  # a tenth matches: the least loaded


def test_cache_aware_throws_affinity_away_where_counts_are_apart() -> None:
    made = _cache_aware(absolute=4)
    home = _place(made, fleets.job(range(10), 1)).replica
    replicas = [_place(made, fleets.job(range(10), 1)).replica for _ in range(6)]
    assert replicas[:4] == [home] * 4
    assert replicas[4] != home  # five against none: apart by more than four, and by more than half


def test_a_miss_goes_to_the_smallest_tree_where_asked_for() -> None:
    made = peers.CacheAware(random.Random(1), miss="smallest_tree")
    for name in REPLICAS:
        made.add(name, 10_000, 8, 64, 0.0)
    sizes = {"a": 3, "b": 2, "c": 1}
    assert [
        _place(made, fleets.job(range(100 * n, 100 * n + size), 1)).replica for n, size in enumerate(sizes.values())
    ] == [
        "a",
        "b",
        "c",
    ]
    assert _place(made, fleets.job(range(900, 902), 1)).replica == "c"


def test_trees_are_cut_back_on_the_timer_oldest_ends_first() -> None:
    made = _cache_aware(chars_max=4 * 5 * fleets.BLOCK_TOKENS)
    job = fleets.job(range(10), 1)
    assert _place(made, job).cached_predicted == 0
    assert _place(made, job).cached_predicted == 10 * fleets.BLOCK_TOKENS
    placed: list[Placed] = []
    made.submit(job, placed.append, lambda reason, after_s: None, 121.0)
    assert placed[0].cached_predicted == 5 * fleets.BLOCK_TOKENS


def test_without_replicas_the_client_is_told_to_come_back() -> None:
    refused: list[tuple[str, float]] = []
    made = peers.LeastLoaded(random.Random(1))
    made.submit(fleets.job([1], 1), lambda placed: None, lambda *told: refused.append(told), 0.0)
    assert refused == [("no_replica", peers.RETRY_AFTER_S)]
