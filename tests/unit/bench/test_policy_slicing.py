"""The part `slices` of the policy's benchmark: what is cold, what saturates, which runs there are, what tables say."""

from dataclasses import replace

import pytest

from shoal_bench import results
from shoal_bench.policy import bound, cells, report, report_slices, slicing
from shoal_bench.routing import workloads
from shoal_fleet.fleet import Outcome
from shoal_fleet.workload import Arrival, Conversation, SubAgent, Turn, Workload
from shoal_testing import fleets


def test_new_tokens_are_those_that_no_earlier_prompt_has_whoever_routes() -> None:
    first, again = fleets.job(range(40), 1), fleets.job([*range(40), 50, 51], 1)
    other = fleets.job(range(100, 150), 1)
    arrivals = tuple(Arrival(float(place), job) for place, job in enumerate((first, again, other)))
    assert slicing.new_tokens(Workload(arrivals)) == {id(first): 40 * 512, id(again): 2 * 512, id(other): 50 * 512}


def test_sub_agents_come_after_the_turn_that_started_them() -> None:
    turns = [fleets.job(range(10 * (number + 1)), 1, number) for number in range(2)]
    early, late = fleets.job([*range(5), 77], 1, 7), fleets.job([*range(20), 99], 1, 8)
    agents = (SubAgent(-1, None, 0.0, (Turn(early, 0.0),)), SubAgent(1, None, 0.0, (Turn(late, 0.0),)))
    told = Conversation("one", tuple(Turn(job, 0.0) for job in turns), agents)
    found = slicing.new_tokens(Workload(conversations=(told,)))
    assert [found[id(job)] // 512 for job in (early, *turns, late)] == [6, 5, 10, 1]


def _outcome(arrived_s: float, ended_s: float, blocks: range = range(2), failure: str = "") -> Outcome:
    job = fleets.job(blocks, 1, int(arrived_s * 10))
    return Outcome(job, arrived_s, ended_s, first_s=ended_s, failure=failure)


def test_throughput_counts_what_was_completed_until_the_last_request_came() -> None:
    outcomes = [_outcome(0.0, 4.0), _outcome(1.0, 12.0), _outcome(2.0, 5.0, failure="queue_full"), _outcome(10.0, 11.0)]
    assert slicing.requests_per_s(outcomes) == pytest.approx(0.1)
    assert slicing.requests_per_s([]) is None


def test_cold_and_warm_prompts_are_told_apart() -> None:
    outcomes = [_outcome(0.0, 4.0, range(100)), _outcome(10.0, 10.5, range(101)), _outcome(20.0, 20.1, range(102))]
    arrivals = tuple(Arrival(one.arrived_s, one.job) for one in outcomes)
    scenario = slicing.scenario("mooncake-x1.0", slicing.WHOLE, 1)
    found = slicing.measured(replace(scenario, workload=Workload(arrivals)), outcomes)
    assert (found["cold_requests"], found["cold_ttft_s_mean"]) == (1, 4.0)
    assert found["warm_ttft_s_mean"] == pytest.approx(0.3)
    only_cold = slicing.measured(replace(scenario, workload=Workload(arrivals[:1])), outcomes[:1])
    assert "warm_ttft_s_mean" not in only_cold


def test_every_workload_is_there_for_every_router_and_seed() -> None:
    made = cells.slices(slicing.COMPARED)
    assert len(made) == len(slicing.ROUTERS) * sum(len(seeds) for seeds in slicing.COMPARED.values())
    for cell in made:
        scenario = slicing.scenario(cell.workload, cell.policy, cell.seed)
        assert (scenario.policy, scenario.seed, scenario.replicas) == (cell.policy, cell.seed, 8)
        if cell.workload in slicing.SATURATED:
            assert scenario.pace.sessions is not None
            assert not scenario.workload.arrivals
    assert set(slicing.QUICK) <= set(slicing.COMPARED)


def test_a_run_of_each_kind_gives_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    short = workloads.mooncake(1.6, 8.0, duration_s=30.0)
    monkeypatch.setitem(workloads.FULL, "short", short)
    found = {policy: cells.made(cells.Cell(slicing.PART, "short", policy), None) for policy in slicing.ROUTERS}
    assert len({one["requests"] for one in found.values()}) == 1
    assert len({one["cold_requests"] for one in found.values()}) == 1
    assert all(one["failed"] == 0 for one in found.values())
    assert found[slicing.WHOLE]["slices"] == found[slicing.PEER]["slices"] == 0
    assert found[slicing.SLICED]["slices"] > 0
    assert found[bound.WAITING]["ttft_s_mean"] < found[slicing.WHOLE]["ttft_s_mean"]


def _rows() -> list[results.Row]:
    given = {
        ("agents-80", slicing.SLICED): (1.1, 10.0),
        ("agents-80", slicing.WHOLE): (1.5, 8.0),
        ("agents-80", bound.WAITING): (1.0, 7.0),
        ("mooncake-x1.5", slicing.SLICED): (2.0, 10.5),
        ("mooncake-x1.5", slicing.WHOLE): (2.5, 10.0),
    }
    return [
        results.row([value], "s", measure=measure, part=slicing.PART, workload=workload, policy=policy)
        for (workload, policy), values in given.items()
        for measure, value in zip(("ttft_s_mean", "ttft_s_p99"), values, strict=True)
    ]


def test_the_document_says_which_aims_are_met() -> None:
    text = "\n".join(report_slices.text(_rows()))
    assert "| Shoal | 1.10 | 1.1 | – | 10 |" in text
    assert "| agents-80: mean TTFT / bound's | 1.10 | at most 1.25 | yes |" in text
    assert "| agents-80: p99 / whole | 1.25 | at most 1 | no |" in text
    assert "| mooncake-x1.5: mean TTFT / whole | 0.80 | at most 1 | yes |" in text
    assert "| mooncake-x1.5: p99 / whole | 1.05 | at most 1.1 | yes |" in text
    assert "### Slices and the bound" in report.text(_rows(), [], {"cores": "2"})


def test_less_throughput_than_asked_is_a_miss() -> None:
    rows = [
        results.row([value], "1/s", measure="requests_per_s", part=slicing.PART, workload=workload, policy=policy)
        for workload, sliced in zip(slicing.SATURATED, (0.96, 0.98), strict=True)
        for policy, value in ((slicing.SLICED, sliced), (slicing.WHOLE, 1.0))
    ]
    text = report_slices.text(rows)[-1]
    assert "| mooncake-always-160: throughput / whole | 0.96 | at least 0.97 | no |" in text
    assert "| agents-120-no-think: throughput / whole | 0.98 | at least 0.97 | yes |" in text
