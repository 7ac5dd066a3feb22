"""Rows, medians, targets, tables and plots of routing runs; and the records that they come from."""

from pathlib import Path

import pytest

from shoal_bench.routing import measures, pictures, report, routers, runs, targets, workloads

CPU = {"router": 0.2, "engines": 0.6, "client": 0.3, "machine": 0.5}


def record(workload: str, router: str, run: int, **figures: float) -> runs.Record:
    values = {"requests": 10.0, "failed": 0.0, **figures}
    curve = [values.get("ttft_s_mean", 1.0)] * (measures.CURVE_POINTS + 1)
    found = measures.Figures(values, curve, {})
    return runs.Record("key", workload, router, run, found, CPU, 60.0, [0.0, 2.5], [1.0, 3.0])


RECORDS = [
    record("mooncake-x1.0", "shoal", 1, ttft_s_mean=1.0, ttft_s_p99=9.0, hit_rate=0.20),
    record("mooncake-x1.0", "shoal", 2, ttft_s_mean=1.4, ttft_s_p99=9.0, hit_rate=0.20),
    record("mooncake-x1.0", "sglang-router", 1, ttft_s_mean=2.4, ttft_s_p99=8.0, hit_rate=0.23),
    record("agents-80", "shoal", 1, ttft_s_mean=1.0, ttft_s_p99=5.0),
    record("agents-80", "sglang-router", 1, ttft_s_mean=2.0, ttft_s_p99=20.0),
    record("agents-80", "smg", 1, ttft_s_mean=1.2, ttft_s_p99=30.0),
]


def verdicts() -> dict[tuple[str, str], targets.Verdict]:
    found = targets.judge(report.medians(report.samples(report.rows(RECORDS))))
    return {(one.target.workload, one.target.measure): one for one in found}


def test_rows_have_the_published_form() -> None:
    row = report.rows(RECORDS)[0]
    assert row == {
        "workload": "mooncake-x1.0",
        "router": "shoal",
        "measure": "ttft_s_mean",
        "value": 1.0,
        "unit": "s",
        "run": 1,
    }


def test_targets_compare_medians() -> None:
    mean = verdicts()["mooncake-x1.0", "ttft_s_mean"]
    assert (mean.ours, mean.theirs, mean.hit) == (1.2, 2.4, True)
    assert mean.figure == pytest.approx(0.5)


def test_a_target_is_missed_where_the_ratio_is_above_it() -> None:
    tail = verdicts()["mooncake-x1.0", "ttft_s_p99"]
    assert (tail.figure, tail.hit) == (pytest.approx(1.125), False)


def test_hit_rates_are_compared_by_difference() -> None:
    rate = verdicts()["mooncake-x1.0", "hit_rate"]
    assert (rate.figure, rate.hit) == (pytest.approx(0.03), True)


def test_the_best_peer_is_the_best_of_each_measure() -> None:
    found = verdicts()
    assert found["agents-80", "ttft_s_mean"].peer == "smg"
    assert found["agents-80", "ttft_s_p99"].peer == "sglang-router"
    assert not found["agents-80", "ttft_s_mean"].hit


def test_a_target_without_figures_has_no_verdict() -> None:
    assert ("mooncake-x1.5", "ttft_s_mean") not in verdicts()


def test_every_target_is_of_a_planned_workload_and_a_measure() -> None:
    for target in targets.TARGETS:
        assert target.workload in workloads.FULL
        assert target.measure in measures.UNITS
        assert (target.ratio_max is None) != (target.below_max is None)


def test_tables_show_medians_and_spread_and_misses() -> None:
    text = report.text(RECORDS, workloads.FULL, {"cores": "2"})
    assert "1.20 (1.00 to 1.40)" in text
    assert "**missed**" in text
    assert "mooncake-x1.5" not in text


def test_strained_runs_are_said() -> None:
    busy = RECORDS[0].to_json() | {"cpu": {**CPU, "client": 0.9}}
    strained = runs.Record(**{**busy, "figures": RECORDS[0].figures})
    assert "shoal †" in report.text([strained, *RECORDS[2:]], workloads.FULL, {})
    assert "†" not in report.text(RECORDS, workloads.FULL, {})


def test_the_typical_run_is_the_median_one() -> None:
    three = [record("w", "shoal", run, ttft_s_mean=mean) for run, mean in enumerate((3.0, 1.0, 2.0), start=1)]
    found = pictures.typical(three, "w", "shoal")
    assert found is not None
    assert found.run == 3
    assert pictures.typical(three, "w", "smg") is None


def test_smoothing_is_a_mean_of_the_last_values() -> None:
    assert pictures.smooth([1.0, 3.0, 5.0], 2) == [1.0, 2.0, 4.0]


def test_plots_are_written(tmp_path: Path) -> None:
    made = pictures.write(tmp_path, RECORDS, {name: one.title for name, one in workloads.FULL.items()})
    assert all(path.read_text().lstrip().startswith("<?xml") for path in made)
    assert len(made) == 3
    assert pictures.write(tmp_path, [], {}) == []


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    path = runs.path_of(tmp_path, workloads.FULL["mooncake-x1.0"], routers.ROUTERS["shoal"], 1)
    assert runs.read(path) is None
    runs.write(path, RECORDS[0])
    assert runs.read(path) == RECORDS[0]


def test_a_record_belongs_to_one_workload_router_and_state_of_the_code() -> None:
    known = [runs.key(workload, router) for workload in workloads.FULL.values() for router in routers.ROUTERS.values()]
    assert len(set(known)) == len(known)
