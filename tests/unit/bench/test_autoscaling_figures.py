"""Figures of the scaler's picture, from made-up runs and one short real one."""

from pathlib import Path

import pytest

from shoal_bench.autoscaling import __main__ as program
from shoal_bench.autoscaling import figures, loads
from shoal_fleet import results as fleet_results
from shoal_fleet.autoscale import Tick
from shoal_fleet.fleet import Outcome
from shoal_fleet.run import Run
from shoal_operator.domain import values
from shoal_testing import fleets

SPEC = values.Scaling(min=1, max=9, ttft_slo_s=5.0, target_utilization=0.5)
JUMP = loads.Load("jump", "a jump", 100.0, lambda at_s: 4.0 if at_s >= 40.0 else 1.0, (40.0,))


def _tick(at_s: float, wanted: int, ready: int, queued_s: float) -> Tick:
    return Tick(at_s, wanted, "Steady", ready, wanted - ready, 0, queued_s, 0)


def _run(busy_s: float = 50.0) -> Run:
    """One request a second; those of the third minute part wait ten seconds; half a second of prefill each."""
    outcomes = tuple(
        Outcome(fleets.job([1], 5), float(n), n + 20.0, float(n), n + (10.0 if 40 <= n < 60 else 1.0), "r0", 0)
        for n in range(100)
    )
    samples = tuple(
        fleet_results.Sample(at_s, 0, {"r0": fleet_results.ReplicaSample(0, 0, busy_s * at_s / 100.0)})
        for at_s in (0.0, 50.0, 100.0)
    )
    ticks = (
        _tick(20.0, 1, 1, 0.0),
        _tick(42.0, 3, 1, 8.0),
        _tick(60.0, 4, 3, 30.0),
        _tick(70.0, 4, 4, 12.0),
        _tick(80.0, 4, 4, 2.0),
        _tick(96.0, 3, 4, 0.0),
    )
    return Run(outcomes, samples, fleet_results.summarize(outcomes, samples, 300.0), ticks)


def test_what_is_needed_follows_the_rate_and_the_work_of_the_run() -> None:
    made = _run()
    assert figures.work_s(made) == pytest.approx(0.5)
    assert [figures.needed(JUMP, at_s, 0.5, SPEC) for at_s in (0.0, 39.0, 40.0)] == [1, 1, 4]


def test_times_after_the_jump() -> None:
    made = {name: value for name, (value, _) in figures.measures(JUMP, _run(), SPEC).items()}
    assert made["seconds_to_first_decision"] == 2.0
    assert made["seconds_to_enough_replicas"] == 30.0
    assert made["seconds_to_empty_queue"] == 40.0
    assert made["queued_s_max"] == 30.0
    assert made["step_ttft_s_p99"] == 10.0
    assert made["seconds_until_slo_held"] == 20.0  # windows of 30 s: the one from 30 on is the last that is late
    assert (made["failed"], made["requests"]) == (0.0, 100.0)
    assert made["slo_share"] == pytest.approx(0.8)
    assert (made["changes"], made["reversals"]) == (3.0, 1.0)
    assert made["replica_hours"] == pytest.approx(300.0 / 3600.0)


def test_a_load_without_a_jump_has_no_times_after_one() -> None:
    wave = loads.shortened(loads.WAVE, 100.0)
    assert not any(name.startswith(("seconds", "step")) for name in figures.measures(wave, _run(), SPEC))


def test_the_load_has_the_rate_that_it_says() -> None:
    load = loads.shortened(loads.STEP, 1200.0)
    arrivals = loads.workload(load).arrivals
    assert arrivals == loads.workload(load).arrivals
    before = sum(one.at_s < 600.0 for one in arrivals)
    after = len(arrivals) - before
    assert before == pytest.approx(600.0 * loads.BASE_PER_S, rel=0.15)
    assert after == pytest.approx(600.0 * loads.BASE_PER_S * loads.FACTOR, rel=0.05)
    scopes = {one.job.scope for one in arrivals}
    assert len(scopes) > 1  # the trace's prompts come again as others


def test_a_short_run_and_its_picture(tmp_path: Path) -> None:
    load = loads.Load("short", "a short load", 60.0, lambda at_s: 1.0)
    made = program.simulate(load, program.SPEC)
    assert made.summary.failed == 0
    program.picture(tmp_path / "short.svg", load, figures.curves(load, made, program.SPEC))
    assert (tmp_path / "short.svg").read_text().startswith("<?xml")
