"""Timing follows the engine, whatever the constants said; outliers do not move it far."""

import random

import pytest

from shoal_api import routes
from shoal_router.policy import timing

INITIAL = routes.Timing()


def _true_s(uncached: int, cached: int, factor: float) -> float:
    exact = timing.Timing(INITIAL)
    return exact.prefill_s(uncached, cached) * factor


@pytest.mark.parametrize("factor", [0.02, 0.05, 0.5, 1.0, 4.0, 20.0])
def test_prefill_converges_to_an_engine_that_is_so_much_slower(factor: float) -> None:
    rng = random.Random(1)
    learned = timing.Timing(INITIAL)
    for _ in range(150):
        uncached, cached = int(10 ** rng.uniform(1, 4.7)), rng.choice([0, 1000, 50_000])
        predicted = learned.prefill_s(uncached, cached)
        learned.observe_prefill(predicted, 1, _true_s(uncached, cached, factor) * rng.lognormvariate(0, 0.2))
    for uncached, cached in ((50, 50_000), (2000, 0), (40_000, 1000)):
        assert learned.prefill_s(uncached, cached) == pytest.approx(_true_s(uncached, cached, factor), rel=0.35)


@pytest.mark.parametrize("factor", [0.05, 1.0, 10.0])
def test_decode_converges(factor: float) -> None:
    learned = timing.Timing(INITIAL)
    exact = timing.Timing(INITIAL).decode_step_s(8, 1e5) * factor
    for _ in range(100):
        learned.observe_decode(learned.decode_step_s(8, 1e5), exact)
    assert learned.decode_step_s(8, 1e5) == pytest.approx(exact, rel=0.05)


def test_one_outlier_moves_an_estimate_by_at_most_a_twentieth_once_it_is_settled() -> None:
    learned = timing.Timing(INITIAL)
    for _ in range(500):
        learned.observe_prefill(learned.prefill_s(5000, 0), 1, _true_s(5000, 0, 1.0))
    before = learned.prefill_s(5000, 0)
    learned.observe_prefill(before, 1, 3600.0)
    assert before < learned.prefill_s(5000, 0) < 1.06 * before


@pytest.mark.parametrize(("predicted_s", "observed_s"), [(0.0, 1.0), (1.0, -1.0)])
def test_impossible_observations_teach_nothing(predicted_s: float, observed_s: float) -> None:
    learned = timing.Timing(INITIAL)
    learned.observe_prefill(predicted_s, 1, observed_s)
    assert (learned.a_s, learned.b_s, learned.prefill_samples) == (INITIAL.a_s, INITIAL.b_s, 0)


def test_estimates_stay_within_bounds() -> None:
    learned = timing.Timing(INITIAL)
    for _ in range(2000):
        learned.observe_prefill(learned.prefill_s(5000, 0), 1, 0.0)
    assert learned.b_s >= INITIAL.b_s / 1000
    assert learned.a_s >= INITIAL.a_s / 1000
