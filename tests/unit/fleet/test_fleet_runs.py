"""Whole runs: repeatable, in the order that policies are known to have, with replicas that go and slices of prompts."""

from dataclasses import replace

import pytest

from shoal_api import routes
from shoal_fleet import model, run
from shoal_fleet.fleet import Outcome, Patience
from shoal_fleet.policies import registry
from shoal_fleet.workload import Arrival, Workload
from shoal_testing import fleets


def _scenario(policy: str = registry.PRODUCTION, seed: int = 1) -> run.Scenario:
    arrivals = tuple(Arrival(at_s, job) for at_s, job in fleets.documents(400, 12.0))
    return run.Scenario(Workload(arrivals), model.simulated("study-8k", 300_000, 512), policy, seed=seed)


@pytest.mark.parametrize("policy", registry.NAMES)
def test_the_same_seed_gives_the_same_run(policy: str) -> None:
    first, again = (run.run(_scenario(policy)) for _ in range(2))
    assert first.outcomes == again.outcomes
    assert first.summary == again.summary
    assert first.samples == again.samples


def test_another_seed_gives_another_run() -> None:
    assert run.run(_scenario(seed=1)).summary != run.run(_scenario(seed=2)).summary


def test_policies_are_in_the_order_that_is_known() -> None:
    means, hits = {}, {}
    for policy in registry.NAMES:
        summary = run.run(_scenario(policy)).summary
        assert summary.failed == 0
        means[policy], hits[policy] = summary.ttft_s.mean, summary.hit_rate
    assert means["price_and_hold"] < means["cache_aware"] < means["least_loaded"]
    assert means["price_and_hold"] < means["greedy"]
    assert hits["cache_aware"] > hits["least_loaded"]
    assert hits["cache_aware"] > hits["round_robin"]


def test_the_router_expects_what_engines_do() -> None:
    summary = run.run(_scenario()).summary
    assert summary.cached_error is not None
    assert summary.cached_error < 0.05
    assert summary.ttft_ratio.p50 == pytest.approx(1.0, rel=0.3)


def test_figures_add_up() -> None:
    made = run.run(_scenario())
    summary = made.summary
    assert summary.requests == len(made.outcomes) == 400
    assert sum(summary.by_replica.values()) == 400
    assert summary.prompt_tokens == sum(one.job.input_tokens for one in made.outcomes)
    assert summary.output_tokens == sum(one.job.output_tokens for one in made.outcomes)
    assert summary.prefill_share is not None
    assert 0.0 < summary.prefill_share <= 1.0


def test_what_a_lost_replica_held_fails_and_the_rest_is_served() -> None:
    fleet = fleets.fleet(model.simulated("study-8k", 300_000), 2)
    ended: list[Outcome] = []
    for number in range(8):
        fleet.submit(fleets.job(range(20 * number, 20 * number + 20), 50, number), ended.append)
    fleet.clock.at(1.0, lambda: fleet.remove_replica("r0"))
    fleet.run()
    assert len(ended) == 8
    lost = [one for one in ended if one.failure]
    assert {(one.failure, one.replica) for one in lost} == {("replica_gone", "r0")}
    assert all(one.replica == "r1" for one in ended if not one.failure and one.ended_s > 1.0)


def test_a_refused_request_comes_back_and_its_wait_counts() -> None:
    queue = routes.Queue(requests_max=1 << 20, ttl_s=3.0)
    engine = model.study(1000, 300_000, 512)
    fleet = fleets.fleet(engine, 1, queue=queue)
    ended: list[Outcome] = []
    for number in range(4):  # five seconds each, one after the other
        fleet.submit(fleets.job(range(10 * number, 10 * number + 10), 2, number), ended.append)
    fleet.run()
    assert not any(one.failure for one in ended)
    assert max(one.refusals for one in ended) > 0
    assert max(one.ttft_s or 0.0 for one in ended) > 15.0
    impatient = fleets.fleet(engine, 1, queue=queue)
    impatient.patience = Patience(retries_max=0)
    for number in range(4):
        impatient.submit(fleets.job(range(10 * number, 10 * number + 10), 2, number), ended.append)
    impatient.run()
    assert {one.failure for one in impatient.outcomes} == {"", "expired"}


def test_a_prompt_that_no_engine_can_hold_fails_at_once() -> None:
    for engine in (model.simulated("study-8k", 8192), model.study(8000, 8192, 512)):
        fleet = fleets.fleet(engine, 2)
        fleet.submit(fleets.job(range(40), 5), lambda outcome: None)
        fleet.run()
        assert [one.failure for one in fleet.outcomes] == ["too_long"]


def test_a_long_prompt_in_slices_lets_a_short_one_in_between() -> None:
    """What slicing will send: growing prefixes, each a hit for the next, the last one the request itself."""
    whole = fleets.job(range(100), 20, 1)
    short = fleets.job([7000], 20, 2)

    def waits(sliced: bool) -> tuple[float, int]:
        fleet = fleets.fleet(model.simulated("study-8k", 300_000), 1)
        last: list[Outcome] = []
        parts = [whole.prefix(8192 * (n + 1)) for n in range(6)] + [whole] if sliced else [whole]

        def send(outcome: Outcome | None = None) -> None:
            if parts:
                fleet.submit(parts.pop(0), send)
            else:
                assert outcome is not None
                last.append(outcome)

        send()
        found: list[Outcome] = []
        fleet.clock.at(0.5, lambda: fleet.submit(short, found.append))
        fleet.run()
        return found[0].ttft_s or 0.0, last[0].cached_tokens or 0

    whole_s, _ = waits(sliced=False)
    sliced_s, cached = waits(sliced=True)
    assert sliced_s < 0.4 * whole_s
    assert cached == 6 * 8192


def test_a_router_may_start_from_other_timing_than_the_engines_have() -> None:
    scenario = replace(_scenario(), timing=routes.Timing())
    assert run.service_of(scenario).timing == {"sim": routes.Timing()}
    last = run.run(scenario).outcomes[-100:]
    ratios = [(one.first_s - one.placed_s) / one.ttft_predicted_s for one in last]  # type: ignore[operator]
    assert sorted(ratios)[50] == pytest.approx(1.0, rel=0.2)
