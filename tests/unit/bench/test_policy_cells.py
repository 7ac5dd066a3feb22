"""The policy's sweep: which runs it makes, how a constant is set, and what its tables say. One tiny real run."""

from pathlib import Path

import pytest

from shoal_bench import results
from shoal_bench.policy import __main__ as program
from shoal_bench.policy import cells, constants, report, scenarios
from shoal_bench.routing import workloads
from shoal_router.policy import cost


def test_every_constant_is_where_it_says_and_its_default_is_among_the_values() -> None:
    for one in constants.CONSTANTS:
        assert one.default in one.values, one.name
        assert list(one.values) == sorted(one.values)


def test_a_constant_is_set_for_a_while_and_put_back() -> None:
    beta = constants.by_name("beta: price of one that waits")
    before = cost.price(4)
    with constants.set_to(beta, 0.0):
        assert cost.price(4) == 1.0
    assert cost.price(4) == before
    with constants.set_to(beta, None):
        assert cost.price(4) == before


def test_the_sweep_tries_every_other_value_of_every_constant_and_the_defaults_once() -> None:
    made = cells.sweep((("agents-80", (1, 2)),), "price_and_hold")
    defaults = [one for one in made if not one.constant]
    assert [one.seed for one in defaults] == [1, 2]
    tried = {(one.constant, one.setting) for one in made if one.constant}
    assert tried == {(one.name, v) for one in constants.CONSTANTS for v in one.values if v != one.default}
    assert len(made) == 2 * (1 + len(tried))


def test_a_simulated_workload_is_the_one_of_the_benchmark_with_processes() -> None:
    workload = workloads.FULL["agents-80"]
    made = scenarios.of_routing(workload, "price_and_hold")
    assert (made.replicas, made.model.kv_tokens, made.model.page_tokens) == (8, 2_000_000, 64)
    assert made.model.profile.name == workload.engines.profile
    assert made.model.running_max == workload.engines.running_max
    assert (made.pace.sessions, made.pace.duration_s) == (workload.sessions, workload.duration_s)


def test_a_run_under_another_constant_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    short = workloads.mooncake(1.6, 8.0, duration_s=40.0)
    monkeypatch.setitem(workloads.FULL, short.name, short)
    plain = cells.made(cells.Cell("sweep", short.name, "price_and_hold"), None)
    other = cells.made(cells.Cell("sweep", short.name, "price_and_hold", "hold, s", 2.0), None)
    assert plain["requests"] == other["requests"]
    assert plain["failed"] == 0
    assert plain["ttft_s_mean"] != other["ttft_s_mean"]


def test_without_the_whole_traces_there_is_no_study(tmp_path: Path) -> None:
    assert not program.planned(["study"], None, quick=False)
    assert not program.planned(["study"], tmp_path, quick=False)
    for one in scenarios.STUDIES:
        (tmp_path / one.trace).write_text("")
    made = program.planned(["study"], tmp_path, quick=True)
    assert {one.workload for one in made} == {one.name for one in scenarios.STUDIES}


def _rows() -> list[results.Row]:
    beta = constants.by_name("beta: price of one that waits")
    made = [
        results.row([mean], "s", measure=measure, part="sweep", workload="agents-80", policy=report.OURS, **more)
        for measure, mean, more in (
            ("ttft_s_mean", 2.0, {}),
            ("ttft_s_p99", 20.0, {}),
            ("ttft_s_mean", 3.0, {"constant": beta.name, "setting": 0.0}),
        )
    ]
    made += [
        results.row([mean], "s", measure="ttft_s_mean", part=part, workload=workload, policy=policy)
        for part, workload, policy, mean in (
            ("study", "study-agents-80", "cache_aware", 4.0),
            ("study", "study-agents-80", report.OURS, 2.0),
            ("check", "agents-80", report.OURS, 1.2),
        )
    ]
    return made


def test_the_document_shows_the_study_the_sweep_and_how_far_apart_both_kinds_of_run_are(tmp_path: Path) -> None:
    real = [
        {"workload": "agents-80", "router": "shoal", "measure": "ttft_s_mean", "value": value, "unit": "s", "run": n}
        for n, value in enumerate((0.9, 1.0, 1.1))
    ]
    text = report.text(_rows(), real, {"cores": "2"})
    assert "| price_and_hold | 2 | – | – | – | – | 0.50 | 0.94 / - / 13.2 |" in text
    assert "| beta: price of one that waits | 0 | 3 | – |" in text
    assert "| beta: price of one that waits | **1** | 2 | 20 |" in text
    assert "| agents-80 | shoal | ttft_s_mean | 1 | 1.2 | +20% |" in text
    assert "No run with processes" in report.text(_rows(), [], {"cores": "2"})
    report.picture(tmp_path / "constants.svg", _rows())
    assert (tmp_path / "constants.svg").read_text().startswith("<?xml")
