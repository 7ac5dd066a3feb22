"""The production scaler in a closed loop with production routing: it goes up, serves everybody, and comes down."""

import itertools
import math
import random

import pytest

from shoal_fleet import model, run
from shoal_fleet.autoscale import Scaling
from shoal_fleet.workload import Arrival, Workload
from shoal_operator.domain import values
from shoal_testing import fleets

ENGINE = model.EngineModel(model.study(8000, 500_000, 512).profile, 500_000, 512, load_s=20.0, fluid=True)
SPEC = values.Scaling(min=2, max=12, ttft_slo_s=3.0, window_s=60.0)
WORK_S = 0.02 + 2048 / 8000 * (1 + 2048 / 200_000)


def _step(low_per_s: float, high_per_s: float) -> Workload:
    """Two minutes low, five high, eight low; prompts that share nothing."""
    rng = random.Random(4)
    arrivals, at_s = [], 0.0
    while at_s < 900.0:
        at_s += rng.expovariate(high_per_s if 120.0 <= at_s < 420.0 else low_per_s)
        number = len(arrivals)
        arrivals.append(Arrival(at_s, fleets.job(range(4 * number, 4 * number + 4), 50, number)))
    return Workload(tuple(arrivals))


@pytest.fixture(scope="module")
def stepped() -> run.Run:
    return run.run(run.Scenario(_step(2.0, 16.0), ENGINE, scaling=Scaling(SPEC)))


def test_everybody_is_served(stepped: run.Run) -> None:
    assert stepped.summary.failed == 0
    assert stepped.summary.refused == 0


def test_there_are_as_many_replicas_as_the_load_needs(stepped: run.Run) -> None:
    need = math.ceil(16.0 * WORK_S / SPEC.target_utilization)
    high = [tick for tick in stepped.ticks if 300.0 < tick.at_s < 420.0]
    assert high
    assert all(need - 1 <= tick.ready <= need + 3 for tick in high)


def test_it_comes_down_again_one_by_one_and_stays_down(stepped: run.Run) -> None:
    assert stepped.ticks[-1].wanted <= 3
    wanted = [tick.wanted for tick in stepped.ticks if tick.at_s > 420.0]
    assert all(before - after in (0, 1) for before, after in itertools.pairwise(wanted))
    assert stepped.ticks[-1].draining == 0


def test_a_new_replica_serves_only_after_its_cold_start(stepped: run.Run) -> None:
    asked_s = next(tick.at_s for tick in stepped.ticks if tick.wanted > SPEC.min)
    more_s = next(tick.at_s for tick in stepped.ticks if tick.ready > SPEC.min)
    assert more_s >= asked_s + ENGINE.load_s


def test_replica_seconds_are_those_of_all_that_were_there(stepped: run.Run) -> None:
    counted = sum(tick.ready + tick.starting + tick.draining for tick in stepped.ticks) * 2.0
    assert stepped.summary.replica_s == pytest.approx(counted, rel=0.03)


def test_never_more_than_fit(stepped: run.Run) -> None:
    made = run.run(run.Scenario(_step(2.0, 6.0), ENGINE, scaling=Scaling(SPEC, room=3)))
    assert max(tick.ready + tick.starting for tick in made.ticks) == 3
    assert max(tick.ready for tick in stepped.ticks) > 3


def test_a_policy_without_state_cannot_be_scaled_by() -> None:
    with pytest.raises(ValueError, match="cache_aware"):
        run.run(run.Scenario(Workload(), ENGINE, "cache_aware", scaling=Scaling(SPEC)))
