"""The scaler over arbitrary figures: bounds, monotony, and no flapping on loads that swing."""

import itertools
import math
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_operator.domain import demand, values
from shoal_operator.domain.scaling import Memory, Supply, decide
from shoal_testing import loads

TICK_S = 5
"""Coarser than the operator's 2 s, to keep the plays short."""
figures = st.one_of(st.floats(0, 1e4), st.sampled_from([math.nan, math.inf, -1.0]))


@st.composite
def reports(draw: st.DrawFn) -> tuple[demand.Report, ...]:
    made = []
    for number in range(draw(st.integers(0, 3))):
        instance = f"router-{number}"
        if draw(st.booleans()) and draw(st.booleans()):
            made.append(demand.Report(instance, None))
            continue
        made.append(
            loads.report(
                work_s=draw(figures),
                queued_tokens=draw(st.integers(0, 10**7)),
                rate=draw(st.one_of(st.none(), figures)),
                work_per_request_s=draw(st.one_of(st.none(), figures)),
                in_flight=draw(st.integers(0, 1000)),
                in_flight_tokens=draw(st.integers(0, 10**8)),
                kv_tokens_max=draw(st.sampled_from([None, 10**5, 10**7])),
                requests_total=draw(st.sampled_from([0, 7])),
                instance=instance,
                uptime_s=draw(st.floats(0, 1e4)),
                age_s=draw(st.sampled_from([0.0, 1.0, 100.0])),
            )
        )
    return tuple(made)


limits = st.tuples(st.integers(1, 20), st.integers(0, 30)).flatmap(
    lambda pair: st.builds(
        values.Scaling,
        min=st.just(pair[0]),
        max=st.just(pair[0] + pair[1]),
        ttft_slo_s=st.floats(0.1, 60),
        itl_slo_s=st.one_of(st.none(), st.floats(0.001, 1)),
        target_utilization=st.floats(0.1, 0.95),
        window_s=st.just(100.0),
        starts_max=st.integers(1, 10),
    )
)
supplies = st.integers(0, 20).flatmap(
    lambda pending: st.builds(
        Supply,
        ready=st.integers(0, 30),
        pending=st.just(pending),
        draining=st.integers(0, 3),
        stalled=st.integers(0, pending).map(lambda count: tuple(f"m-{number}" for number in range(count))),
    )
)


@given(st.lists(reports(), min_size=1, max_size=6), limits, supplies, st.integers(0, 60))
@settings(max_examples=150)
def test_decision_is_bounded_and_repeatable(
    ticks: list[tuple[demand.Report, ...]], limit: values.Scaling, supply: Supply, desired: int
) -> None:
    memory = Memory()
    for number, found in enumerate(ticks):
        inputs = loads.inputs(number * 2.0, desired, *found, scaling=limit, supply=supply)
        decision, after = decide(inputs, memory)
        assert (decision, after) == decide(inputs, memory)
        assert limit.min <= decision.desired <= limit.max
        within = limit.min <= desired <= limit.max
        if within:
            assert decision.desired >= desired - 1
            reach = max(2 * supply.counted, supply.counted + 4, desired)
            assert decision.desired <= reach
        if not any(report.state is not None and report.age_s < 6 for report in found) and within:
            assert decision.desired == desired
        assert all(math.isfinite(value) for _, value in decision.figures)
        assert len(after.history) <= 10
        memory, desired = after, decision.desired


@given(
    st.floats(0, 500),
    st.floats(0, 500),
    st.floats(0, 50),
    st.floats(0, 50),
    st.integers(0, 10**7),
    st.integers(0, 10**7),
)
def test_more_work_never_asks_for_fewer(
    work: float, more_work: float, rate: float, more_rate: float, tokens: int, more_tokens: int
) -> None:
    low = loads.report(work_s=work, rate=rate, in_flight_tokens=tokens)
    high = loads.report(work_s=work + more_work, rate=rate + more_rate, in_flight_tokens=tokens + more_tokens)
    wide = values.Scaling(min=1, max=10_000, window_s=100.0, starts_max=10_000)
    want = [
        decide(loads.inputs(0, 1, report, scaling=wide, supply=Supply(ready=5000)), Memory())[0].desired
        for report in (low, high)
    ]
    assert want[0] <= want[1]


def play(load: Callable[[float], float], seconds: int, window_s: float = 100.0) -> list[tuple[float, int]]:
    """(time, count) at every change: arrivals of `load(t)` requests a second at 0.1 s each, cold starts of 20 s."""
    limit = values.Scaling(min=1, max=20, window_s=window_s, starts_max=20)
    memory, desired = Memory(), 1
    ready: list[float] = [-100.0]
    changes = [(0.0, 1)]
    for tick in range(seconds // TICK_S):
        now = float(tick * TICK_S)
        serving = sum(at <= now for at in ready)
        report = loads.report(rate=load(now), work_per_request_s=0.1, replicas=max(1, serving))
        supply = Supply(ready=serving, pending=len(ready) - serving)
        inputs = loads.inputs(now, desired, report, scaling=limit, supply=supply, cold_start_s=20.0)
        decision, memory = decide(inputs, memory)
        if decision.desired != desired:
            changes.append((now, decision.desired))
            ready = ready[: decision.desired] + [now + 20.0] * (decision.desired - len(ready))
            desired = decision.desired
    return changes


def reversals(changes: list[tuple[float, int]], window_s: float) -> int:
    """The most steps down that were taken back by a step up, within any window."""
    turns = [
        after[0]
        for before, at, after in zip(changes, changes[1:], changes[2:], strict=False)
        if at[1] < before[1] and after[1] > at[1]
    ]
    return max((sum(start <= turn < start + window_s for turn in turns) for start in turns), default=0)


@given(period=st.integers(20, 1200), low=st.floats(0, 20), swing=st.floats(0, 100), square=st.booleans())
@settings(max_examples=20)
def test_swinging_load_reverses_at_most_once_a_window(period: int, low: float, swing: float, square: bool) -> None:
    def load(now: float) -> float:
        wave = math.sin(2 * math.pi * now / period)
        return low + swing * ((wave > 0) if square else (wave + 1) / 2)

    assert reversals(play(load, 1500), 100.0) <= 1


@given(st.floats(0.5, 60.0))
@settings(max_examples=20)
def test_steady_load_never_flaps(rate: float) -> None:
    """2 -> 1 -> 2: what one replica fewer could not carry with margin is not taken away."""
    changes = play(lambda _: rate, 800)
    counts = [count for _, count in changes]
    assert counts == sorted(counts)


def test_load_that_ends_is_followed_down_to_min() -> None:
    changes = play(lambda now: 60.0 if now < 300 else 0.0, 3000)
    assert max(count for _, count in changes) == 9
    assert changes[-1][1] == 1
    downs = [pair for pair, before in zip(changes[1:], changes, strict=False) if pair[1] < before[1]]
    assert all(after[1] == before[1] - 1 for before, after in itertools.pairwise(downs))
