"""Which routing runs are made, in what order, and what is left of them."""

import pytest

from shoal_bench.routing import __main__ as command
from shoal_bench.routing import plan, play, routers, workloads
from shoal_cli.replay import trace

REPEATS = {"a": {"shoal": 2, "smg": 1}, "b": {"shoal": 2}}


def test_first_runs_of_all_come_before_second_runs_of_any() -> None:
    assert [job.name for job in plan.jobs(REPEATS)] == ["a/shoal/1", "a/smg/1", "b/shoal/1", "a/shoal/2", "b/shoal/2"]


@pytest.mark.parametrize(
    ("only", "names"),
    [
        (["a"], ["a/shoal/1", "a/smg/1", "a/shoal/2"]),
        (["a/shoal"], ["a/shoal/1", "a/shoal/2"]),
        (["a/shoal/2", "b/shoal/1"], ["b/shoal/1", "a/shoal/2"]),
        (["a/sho"], []),
    ],
)
def test_only_names_parts_of_jobs(only: list[str], names: list[str]) -> None:
    assert [job.name for job in plan.jobs(REPEATS, only)] == names


def test_time_left_uses_what_runs_took_and_estimates_where_none_was_made() -> None:
    known = {name: workloads.FULL[name] for name in ("mooncake-x1.0", "agents-80")}
    todo = plan.jobs({"mooncake-x1.0": {"shoal": 2}, "agents-80": {"shoal": 1}})
    assert plan.left_s(todo, known, {"mooncake-x1.0": [10.0, 20.0]}) == pytest.approx(30.0 + known["agents-80"].wall_s)


def test_the_planned_runs_are_of_known_workloads_and_routers_and_fit_the_budget() -> None:
    for repeats, known in ((command.FULL, workloads.FULL), (command.QUICK, command.QUICK_WORKLOADS)):
        assert set(repeats) <= set(known)
        assert {router for counts in repeats.values() for router in counts} <= set(routers.ROUTERS)
    full_s = plan.left_s(plan.jobs(command.FULL), workloads.FULL, {})
    assert full_s <= command.BUDGET_MIN * 60
    assert plan.left_s(plan.jobs(command.QUICK), command.QUICK_WORKLOADS, {}) <= 300


def test_traces_of_all_workloads_are_in_the_repository() -> None:
    assert all(one.trace.is_file() for one in workloads.FULL.values())


def test_a_run_always_ends() -> None:
    read = {one.trace: trace.read(one.trace, limit=40) for one in workloads.FULL.values()}
    for one in (*workloads.FULL.values(), *command.QUICK_WORKLOADS.values()):
        assert 0 < play.sending_s(one, read[one.trace]) < 3600
