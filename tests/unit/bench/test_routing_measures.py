"""Figures of a routing run from its outcomes and samples, in seconds of the model."""

import pytest

from shoal_bench.routing import measures, samples
from shoal_cli.replay.outcome import Ending, Outcome, Usage


def outcome(ttft_s: float | None, ending: Ending = Ending.COMPLETED, **fields: object) -> Outcome:
    usage = Usage(prompt_tokens=100, completion_tokens=11, cached_tokens=25) if ending is Ending.COMPLETED else None
    defaults = {"started_s": 0.0, "decode_s": 0.5, "total_s": 3.0, "usage": usage, "ttft_s": ttft_s}
    return Outcome(ending, "s", 100, 50, 11, **{**defaults, **fields})  # type: ignore[arg-type]


def load(requests: int = 0, waiting_tokens: int = 0, prefill_s: float = 0.0) -> samples.Load:
    return samples.Load(requests, waiting_tokens, prefill_s)


def test_seconds_are_those_of_the_model() -> None:
    found = measures.figures(
        [outcome(0.1), outcome(0.3, started_s=3.0)], [], compression=10.0, engines=2, until_s=30.0
    ).measures
    assert found["ttft_s_mean"] == pytest.approx(2.0)
    assert found["ttft_s_p50"] == pytest.approx(1.0)
    assert found["ttft_s_p99"] == found["ttft_s_max"] == pytest.approx(3.0)
    assert found["decode_tokens_per_s_per_user"] == pytest.approx(10 / 5.0)
    assert found["model_s"] == pytest.approx(60.0)
    assert found["tokens_per_gpu_minute"] == pytest.approx(222 / 2)
    assert found["hit_rate"] == pytest.approx(0.25)
    assert found["hit_rate_bound"] == pytest.approx(0.5)


def test_what_did_not_complete_has_no_time_but_is_counted() -> None:
    broken = [outcome(None, Ending.FAILED, error="http_503"), outcome(0.1, Ending.ERROR_EVENT, error="event_lost")]
    given_up = outcome(None, Ending.CANCELLED)
    made = measures.figures([outcome(0.2), *broken, given_up], [], compression=1.0, engines=1, until_s=0.0)
    assert made.measures["ttft_s_max"] == pytest.approx(0.2)
    assert (made.measures["requests"], made.measures["failed"], made.measures["cancelled"]) == (3, 2, 1)
    assert made.errors == {"http_503": 1, "event_lost": 1}


def test_nothing_measured_is_nothing_reported() -> None:
    made = measures.figures([outcome(None, Ending.FAILED)], [], compression=1.0, engines=1, until_s=0.0)
    assert set(made.measures) == {"requests", "failed", "cancelled", "retried"}
    assert made.ttft_curve == []


def test_every_measure_has_a_unit() -> None:
    taken = [samples.Sample(at, (load(prefill_s=at), load(prefill_s=at / 2))) for at in (0.0, 30.0)]
    made = measures.figures([outcome(0.1)], taken, compression=1.0, engines=2, until_s=60.0)
    assert set(made.measures) == set(measures.UNITS)


def test_the_curve_runs_from_the_least_to_the_greatest() -> None:
    outcomes = [outcome(float(value)) for value in range(1, 1001)]
    curve = measures.figures(outcomes, [], compression=1.0, engines=1, until_s=0.0).ttft_curve
    assert (curve[0], curve[-1], len(curve)) == (1.0, 1000.0, measures.CURVE_POINTS + 1)
    assert curve == sorted(curve)


def test_spread_between_engines() -> None:
    taken = [
        samples.Sample(0.0, (load(requests=3, waiting_tokens=100), load(requests=1))),
        samples.Sample(30.0, (load(requests=2, prefill_s=30.0), load(requests=2, prefill_s=10.0))),
        samples.Sample(90.0, (load(requests=9, prefill_s=99.0), load(prefill_s=99.0))),
    ]
    found = samples.spread(taken, until_s=60.0)
    assert found == samples.Spread(requests=1.0, waiting_tokens=50.0, prefill_cv=0.5, prefill_share=40.0 / 60.0)


@pytest.mark.parametrize("taken", [[], [samples.Sample(0.0, (load(),))]])
def test_no_spread_without_samples(taken: list[samples.Sample]) -> None:
    assert samples.spread(taken, until_s=60.0) is None


def test_idle_windows_have_no_coefficient_of_variation() -> None:
    taken = [samples.Sample(at, (load(), load())) for at in (0.0, 30.0, 60.0)]
    assert samples.prefill_cvs(taken) == []
    assert samples.spread(taken, until_s=60.0) is None


def test_a_page_of_loads_is_read() -> None:
    entry = {
        "num_running_reqs": 2,
        "num_waiting_reqs": 3,
        "num_waiting_uncached_tokens": 400,
        "total_prefill_busy_us": 1_500_000,
    }
    assert samples.parse({"loads": [entry]}) == load(5, 400, 1.5)
