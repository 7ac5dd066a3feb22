"""The scaler's decisions, term by term and reason by reason."""

import math
from dataclasses import replace
from typing import Any

import pytest

from shoal_operator.domain import demand, scaling, values
from shoal_operator.domain.scaling import Memory, Reason, Supply, decide
from shoal_testing import loads

QUIET = loads.report()


def after_window(desired: int, report: demand.Report, **more: Any) -> tuple[scaling.Decision, Memory]:
    """The decision after a whole window of the same report."""
    memory = Memory()
    decision = None
    for tick in range(60):
        decision, memory = decide(loads.inputs(tick * 2.0, desired, report, **more), memory)
        if decision.desired != desired:
            break
    assert decision is not None
    return decision, memory


def test_backlog_is_cleared_within_the_objective() -> None:
    """12 s of work, 5 s objective, 1 s of own prefill: three replicas."""
    busy = loads.report(work_s=12.0, work_per_request_s=1.0)
    decision, _ = decide(loads.inputs(0, 1, busy), Memory())
    assert (decision.desired, decision.reason) == (3, Reason.BACKLOG)
    assert dict(decision.figures)["backlog"] == pytest.approx(3.0)


def test_backlog_of_requests_longer_than_the_objective_is_finite() -> None:
    decision, _ = decide(loads.inputs(0, 1, loads.report(work_s=2.0, work_per_request_s=30.0)), Memory())
    assert decision.desired == 4


def test_rate_fills_replicas_to_the_target() -> None:
    decision, _ = decide(loads.inputs(0, 1, loads.report(rate=14.0, work_per_request_s=0.1)), Memory())
    assert (decision.desired, decision.reason) == (2, Reason.ARRIVAL_RATE)


def test_rate_that_has_decayed_to_nothing_changes_nothing() -> None:
    for rate in (0.0, 5e-324, 1e-12):
        decision, _ = decide(loads.inputs(0, 1, loads.report(work_s=15.0, rate=rate)), Memory())
        assert decision.desired == 4, rate


def test_kv_counts_what_waits_too() -> None:
    full = loads.report(in_flight_tokens=1_500_000, queued_tokens=500_000)
    decision, _ = decide(loads.inputs(0, 1, full), Memory())
    assert (decision.desired, decision.reason) == (3, Reason.KV_CACHE)


def test_kv_without_reported_size_uses_the_fit() -> None:
    full = loads.report(in_flight_tokens=1_500_000, kv_tokens_max=None)
    decision, _ = decide(loads.inputs(0, 1, full, kv_per_replica=1_000_000.0), Memory())
    assert decision.desired == 2
    unknown, _ = decide(loads.inputs(0, 1, full), Memory())
    assert "kv" not in dict(unknown.figures)


@pytest.mark.parametrize(("running", "tokens"), [(40, 0), (40, 2_000_000), (1, 5_000_000)])
def test_itl_is_the_least_count_that_keeps_it(running: int, tokens: int) -> None:
    asked = values.Scaling(min=1, max=100, itl_slo_s=0.02, window_s=100.0, starts_max=100)
    load = loads.report(in_flight=running, in_flight_tokens=tokens, kv_tokens_max=10**9)
    decision, _ = decide(loads.inputs(0, 60, load, scaling=asked), Memory())
    count = math.ceil(dict(decision.figures)["itl"])

    def step_s(replicas: int) -> float:
        timing = loads.TIMING
        return timing.alpha_s + timing.beta_s * math.sqrt(running / replicas) + timing.gamma_s * tokens / replicas

    assert step_s(max(1, count)) <= 0.02 + 1e-9
    if count > 1:
        assert step_s(count - 1) > 0.02


def test_itl_that_no_count_reaches_is_no_term() -> None:
    asked = values.Scaling(min=1, max=100, itl_slo_s=0.005, window_s=100.0)
    decision, _ = decide(loads.inputs(0, 2, loads.report(in_flight=10), scaling=asked), Memory())
    assert "itl" not in dict(decision.figures)


def test_routers_are_summed() -> None:
    half = {"work_s": 6.0, "work_per_request_s": 1.0}
    reports = (loads.report(**half), loads.report(**half, instance="router-1"))
    decision, _ = decide(loads.inputs(0, 1, *reports), Memory())
    assert decision.desired == 3


def test_step_up_is_bounded_by_size_and_by_starts() -> None:
    flood = loads.report(work_s=1000.0)
    wide = values.Scaling(min=1, max=100, window_s=100.0, starts_max=50)
    decision, _ = decide(loads.inputs(0, 2, flood, scaling=wide), Memory())
    assert (decision.desired, decision.reason) == (6, Reason.STEP_LIMITED)
    decision, _ = decide(loads.inputs(0, 20, flood, scaling=wide), Memory())
    assert decision.desired == 40
    decision, _ = decide(loads.inputs(0, 2, flood, scaling=replace(wide, starts_max=1)), Memory())
    assert (decision.desired, decision.reason) == (3, Reason.STARTS_LIMITED)


def test_max_is_named_when_it_cuts() -> None:
    decision, _ = decide(loads.inputs(0, 8, loads.report(work_s=1000.0)), Memory())
    assert (decision.desired, decision.reason, decision.limited_by_max) == (10, Reason.MAX_REPLICAS, True)


def test_bounds_of_the_spec_apply_at_once() -> None:
    assert decide(loads.inputs(0, 0, QUIET), Memory())[0].desired == 1
    assert decide(loads.inputs(0, 14, QUIET), Memory())[0].desired == 10
    assert decide(loads.inputs(0, 0), Memory())[0].reason is Reason.MIN_REPLICAS


def test_pending_counts_as_supply_until_it_stalls() -> None:
    busy = loads.report(work_s=12.0, work_per_request_s=1.0)
    pending, _ = decide(loads.inputs(0, 3, busy, supply=Supply(ready=1, pending=2)), Memory())
    assert pending.desired == 3
    supply = Supply(ready=1, pending=2, stalled=("m-1",))
    stalled, _ = decide(loads.inputs(0, 3, busy, supply=supply), Memory())
    assert (stalled.desired, stalled.stalled) == (4, ("m-1",))
    assert not scaling.stalled(90.0, 60.0)
    assert scaling.stalled(90.1, 60.0)


def test_down_needs_a_whole_window() -> None:
    memory = Memory()
    for now in range(0, 100, 2):
        decision, memory = decide(loads.inputs(float(now), 3, QUIET), memory)
        assert (decision.desired, decision.reason) == (3, Reason.FIRST_WINDOW)
    decision, memory = decide(loads.inputs(100.0, 3, QUIET), memory)
    assert (decision.desired, decision.reason) == (2, Reason.LOAD_FELL)
    assert memory.history[0].before == 3
    decision, memory = decide(loads.inputs(102.0, 2, QUIET), memory)
    assert (decision.desired, decision.reason) == (2, Reason.STILL_SETTLING)
    decision, memory = decide(loads.inputs(126.0, 2, QUIET), memory)
    assert decision.desired == 1
    decision, memory = decide(loads.inputs(160.0, 1, QUIET), memory)
    assert (decision.desired, decision.reason) == (1, Reason.MIN_REPLICAS)


def test_down_waits_while_a_victim_drains_or_a_replica_starts() -> None:
    for supply in (Supply(ready=3, draining=1), Supply(ready=2, pending=1)):
        decision, _ = after_window(3, QUIET, supply=supply)
        assert (decision.desired, decision.reason) == (3, Reason.STILL_SETTLING)


def test_down_keeps_the_margin() -> None:
    """1.7 replicas' worth of arrivals: two would carry them, but not with the margin."""
    near = loads.report(rate=11.9, work_per_request_s=0.1)
    decision, _ = after_window(3, near)
    assert (decision.desired, decision.reason) == (3, Reason.WINDOW_NOT_OVER)
    decision, _ = after_window(3, loads.report(rate=11.0, work_per_request_s=0.1))
    assert decision.desired == 2


def test_down_never_during_a_rollout() -> None:
    decision, _ = after_window(3, QUIET, rolling_out=True)
    assert (decision.desired, decision.reason) == (3, Reason.ROLLOUT_HOLDS)


def test_window_grows_with_what_taking_it_back_costs() -> None:
    warm = loads.report(hot_tokens=1_000_000)
    decision, _ = after_window(3, warm)
    assert dict(decision.figures)["windowSeconds"] == pytest.approx(160.0)
    assert decision.desired == 3


def test_silent_routers_hold() -> None:
    silent = demand.Report("router-0", None)
    stale = loads.report(age_s=60.0)
    for report in (silent, stale):
        decision, memory = after_window(3, report)
        assert (decision.desired, decision.reason) == (3, Reason.METRICS_MISSING)
        assert memory.covered_since_s is None


def test_one_silent_router_stops_the_way_down_and_not_the_way_up() -> None:
    silent = demand.Report("router-1", None)
    memory = Memory()
    for tick in range(120):
        decision, memory = decide(loads.inputs(tick * 2.0, 2, QUIET, silent), memory)
    assert (decision.desired, decision.reason) == (2, Reason.METRICS_PARTIAL)
    busy = loads.report(work_s=12.0, work_per_request_s=1.0)
    decision, _ = decide(loads.inputs(0, 1, busy, silent), Memory())
    assert decision.desired == 3


def test_null_is_not_zero() -> None:
    """A young router without a request does not know the rate; an old one that never had any does."""
    young = loads.report(rate=None, requests_total=0, uptime_s=10.0)
    decision, _ = after_window(3, young)
    assert (decision.desired, decision.reason) == (3, Reason.METRICS_MISSING)
    old = loads.report(rate=None, requests_total=0, uptime_s=10_000.0)
    assert after_window(3, old)[0].desired == 2


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_figures_that_are_no_figures_are_missing(bad: float) -> None:
    broken = loads.report(work_s=0.0)
    assert broken.state is not None
    queue = broken.state.queue.model_copy(update={"work_s": bad})
    report = replace(broken, state=broken.state.model_copy(update={"queue": queue}))
    decision, _ = after_window(3, report)
    assert (decision.desired, decision.reason) == (3, Reason.METRICS_MISSING)


def test_gap_in_the_figures_starts_the_window_anew() -> None:
    _, memory = after_window(3, QUIET, rolling_out=True)
    assert memory.covered_since_s == 0.0
    decision, memory = decide(loads.inputs(118.0 + 31.0, 3, QUIET), memory)
    assert (decision.desired, decision.reason) == (3, Reason.WINDOW_NOT_OVER)


def test_moment_without_figures_starts_the_window_anew() -> None:
    _, memory = after_window(3, QUIET, rolling_out=True)
    silent = demand.Report("router-0", None)
    decision, memory = decide(loads.inputs(120.0, 3, silent), memory)
    assert (decision.desired, decision.reason) == (3, Reason.METRICS_MISSING)
    decision, memory = decide(loads.inputs(122.0, 3, QUIET), memory)
    assert (decision.desired, decision.reason) == (3, Reason.WINDOW_NOT_OVER)


def test_history_keeps_the_last_ten() -> None:
    memory = Memory()
    desired = 1
    for step in range(30):
        load = loads.report(work_s=12.0 if step % 2 else 0.0, work_per_request_s=1.0)
        limits = values.Scaling(min=3 if step % 2 else 1, max=3 if step % 2 else 1, window_s=100.0)
        decision, memory = decide(loads.inputs(step * 2.0, desired, load, scaling=limits), memory)
        desired = decision.desired
    assert len(memory.history) == 10
    assert memory.history[0].at_s > memory.history[-1].at_s
