"""policy.slices by itself: how long a slice is, where it ends, whose turn it is, when none are cut."""

import math

import hypothesis
import pytest
from hypothesis import strategies as st

from shoal_api import routes
from shoal_router.index import chain as chains
from shoal_router.policy import slices, timing

PAGE = 64


def _time(c_s: float = 2e-10) -> timing.Timing:
    return timing.Timing(routes.Timing(a_s=0.02, b_s=1e-4, c_s=c_s))


def _compute_s(time: timing.Timing, tokens: float, cached: float) -> float:
    return time.prefill_s(tokens, cached) - time.a_s


def _sliced(
    tokens: int, cached: int = 0, now: float = 0.0, key: int = 1, total_s: float | None = None
) -> slices.Sliced:
    total_s = _time().prefill_s(tokens - cached, cached) if total_s is None else total_s
    return slices.Sliced(key, (), 0.25, tokens, cached, total_s, now)


def _lane(shorts: int, now: float, overhead_s: float = 0.06) -> slices.Lane:
    """A replica that got so many short requests a second for long enough."""
    lane = slices.Lane()
    lane.overhead_s = overhead_s
    for place in range(shorts * 120):
        lane.note(place, True, now - 120 + place / shorts)
    return lane


# How long a slice is


def test_the_quantum_weighs_overhead_against_those_who_wait() -> None:
    time, now = _time(), 500.0
    lane = _lane(4, now)
    rate = lane.shorts.value(now)
    assert rate is not None
    assert rate == pytest.approx(4.0, rel=0.2)
    for cold in (0, 3):
        expected = math.sqrt(2 * 0.06 * (1 + cold) / rate)
        assert lane.quantum_s(time, cold, 0, None, now, 0) == pytest.approx(max(expected, _compute_s(time, 2048, 0)))
    assert lane.quantum_s(time, 15, 0, None, now, 0) == pytest.approx(math.sqrt(2 * 0.06 * 16 / rate))


def test_the_quantum_has_bounds_in_tokens_wherever_the_prompt_has_got_to() -> None:
    time, now = _time(), 500.0
    busy, quiet = _lane(50, now, overhead_s=0.002), slices.Lane()
    for cached in (0, 100_000):
        least, most = (_compute_s(time, tokens, cached) for tokens in (slices.TOKENS_MIN, slices.TOKENS_MAX))
        assert busy.quantum_s(time, 0, 0, None, now, cached) == pytest.approx(least)
        assert quiet.quantum_s(time, 0, 0, None, now, cached) == pytest.approx(most)


def test_running_streams_hold_the_quantum_to_the_objective_between_tokens() -> None:
    time, now, lane = _time(), 500.0, slices.Lane()
    assert lane.quantum_s(time, 0, 1, 0.5, now, 0) == pytest.approx(0.5)
    assert lane.quantum_s(time, 0, 0, 0.5, now, 0) == pytest.approx(_compute_s(time, slices.TOKENS_MAX, 0))
    assert lane.quantum_s(time, 0, 3, None, now, 0) == pytest.approx(_compute_s(time, slices.TOKENS_MAX, 0))
    assert lane.quantum_s(time, 0, 1, 0.001, now, 0) == pytest.approx(_compute_s(time, slices.TOKENS_MIN, 0))


# Where it ends


@hypothesis.given(
    tokens=st.integers(1, 300_000),
    cached_share=st.floats(0, 0.99),
    quantum_s=st.floats(0.05, 5.0),
    page=st.sampled_from([1, 16, 64, 256]),
    c_s=st.sampled_from([0.0, 2e-10, 5e-9]),
)
def test_slices_are_even_end_at_pages_and_leave_no_crumb(
    tokens: int, cached_share: float, quantum_s: float, page: int, c_s: float
) -> None:
    time = _time(c_s)
    one = _sliced(tokens, int(tokens * cached_share))
    parts, expected = [], slices.parts(one, quantum_s, time)
    while end := slices.cut(one, quantum_s, time, page):
        assert end % page == 0
        assert one.done < end < one.tokens - page
        parts.append(_compute_s(time, end - one.done, one.done))
        one.done = end
        assert len(parts) <= 10_000
    parts.append(_compute_s(time, tokens - one.done, one.done))
    page_s = _compute_s(time, page, tokens)
    if len(parts) > 1:
        assert max(parts) <= 1.5 * quantum_s + 2 * page_s
        assert parts[-1] >= 0.5 * min(parts[:-1]) - 2 * page_s
        assert max(parts) - min(parts) <= 0.5 * quantum_s + 2 * page_s
    assert abs(len(parts) - expected) <= 1 + (len(parts) * page_s) / quantum_s


def test_what_is_shorter_than_a_slice_and_a_half_goes_whole() -> None:
    time = _time(0.0)
    assert slices.cut(_sliced(14_000), 1.0, time, PAGE) == 0
    assert slices.cut(_sliced(16_000), 1.0, time, PAGE) == 8000
    assert slices.cut(_sliced(100_000, cached=90_000), 1.0, time, PAGE) == 0
    assert slices.cut(_sliced(100_000, cached=60_000), 1.0, time, PAGE) // PAGE == 70_000 // PAGE


def test_a_prompt_that_failed_in_slices_goes_whole() -> None:
    one = _sliced(100_000)
    assert slices.parts(one, 1.0, _time()) > 5
    one.whole = True
    assert slices.cut(one, 1.0, _time(), PAGE) == 0
    assert slices.parts(one, 1.0, _time()) == 1


# Whether to cut at all


def test_nothing_is_cut_on_a_replica_that_is_the_sessions_own() -> None:
    lane = slices.Lane()
    assert not lane.worth(1, 0, 0.0)
    lane.note(1, True, 0.0)
    assert not lane.worth(1, 0, 1.0)
    assert lane.worth(2, 0, 1.0)
    lane.note(2, True, 2.0)
    assert lane.worth(1, 0, 3.0)
    assert lane.worth(2, 0, 3.0)
    assert not lane.worth(2, 0, 0.0 + slices.OTHERS_S)  # session 1 was last there at 0
    assert lane.worth(1, 0, 1.9 + slices.OTHERS_S)
    assert not lane.worth(1, 0, 2.0 + slices.OTHERS_S)


def test_running_streams_and_other_sliced_prompts_are_others() -> None:
    lane = slices.Lane()
    assert lane.worth(1, 1, 0.0)
    lane.waiting[1] = _sliced(50_000)
    assert lane.worth(1, 0, 0.0)
    lane.running = lane.waiting.pop(1)
    assert lane.worth(1, 0, 0.0)


def test_slices_that_are_not_found_again_stop_being_cut_longer_each_time() -> None:
    lane, now = slices.Lane(), 100.0
    assert lane.useful(10_000, 9_500, PAGE, now)  # within 5 %
    assert lane.useful(1_000, 744, PAGE, now)  # within 256 tokens
    assert lane.worth(1, 1, now)
    waits = []
    for _ in range(9):
        assert not lane.useful(10_000, 0, PAGE, now)
        assert not lane.worth(1, 1, now)
        step = 0.0
        while not lane.worth(1, 1, now + step):
            step += 10.0
        waits.append(step)
        now += step
    assert waits == [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0, 3600.0]
    assert lane.useful(10_000, 10_000, PAGE, now)
    assert not lane.useful(10_000, 0, PAGE, now)
    assert lane.worth(1, 1, now + 60.0)


# Whose turn it is


def _waits(lane: slices.Lane, key: int, total_s: float, now: float = 0.0) -> slices.Sliced:
    one = _sliced(50_000, key=key, total_s=total_s, now=now)
    one.on_turn = lambda end: None
    lane.waiting[key] = one
    return one


def test_the_shortest_rest_goes_first_and_age_counts() -> None:
    lane = slices.Lane()
    long, short = _waits(lane, 1, 10.0), _waits(lane, 2, 4.0)
    assert lane.next_turn(False, 0.0) is short
    assert lane.next_s(0.0) == 4.0
    assert long.rank(10.0) == pytest.approx(10.0 / (1.0 + 10.0 * slices.AGEING_PER_S))
    fresh = _waits(lane, 3, 5.0, now=60.0)
    long.delayed_s = -1000.0  # not exhausted: only its age speaks for it
    short.delayed_s = -1000.0
    del lane.waiting[2]
    assert long.rank(60.0) < fresh.rank(60.0)
    assert lane.next_turn(False, 60.0) is long


def test_one_that_has_waited_long_enough_goes_before_all_others_even_if_it_never_had_a_turn() -> None:
    lane = slices.Lane()
    long = _waits(lane, 1, 10.0)
    _waits(lane, 2, 1.0, now=14.9)
    assert lane.next_turn(False, 14.9) is not long
    assert lane.next_turn(False, 15.0) is long
    assert long.exhausted(15.0)
    long.delayed_s, long.free_since = 14.0, 100.0
    assert not long.exhausted(100.9)
    assert long.exhausted(101.0)
    long.end = 64  # while a slice of it runs it does not wait
    assert not long.exhausted(200.0)


def test_no_turn_while_a_slice_runs_or_before_anybody_can_send() -> None:
    lane = slices.Lane()
    one = _waits(lane, 1, 10.0)
    lane.running = _sliced(50_000)
    assert lane.next_turn(False, 0.0) is None
    lane.running = None
    one.on_turn = None
    assert lane.next_turn(False, 0.0) is None
    assert lane.turn_at == math.inf


def test_first_tokens_that_are_owed_go_first_for_half_a_second_at_most() -> None:
    lane = slices.Lane()
    one = _waits(lane, 1, 10.0)
    one.free_since = 1.0
    assert lane.next_turn(True, 1.2) is None
    assert lane.turn_at == pytest.approx(1.0 + slices.OWED_WAIT_S)
    assert lane.next_turn(False, 1.2) is one
    assert lane.next_turn(True, 1.5) is one
    one.delayed_s = 14.9  # of 15 that it may wait
    assert lane.next_turn(True, 1.05) is None
    assert lane.turn_at == pytest.approx(1.1)
    assert lane.next_turn(True, 1.1) is one


# What it does to others


def test_what_a_request_has_in_common_with_a_sliced_prompt_is_to_be_waited_for() -> None:
    lane, time = slices.Lane(), _time(0.0)
    data = bytes(range(256)) * 400
    chain = chains.chain(data)
    one = slices.Sliced(1, chain, 1.0, len(data), 4096, 10.0, 0.0)
    lane.waiting[1] = one
    half = chains.chain(data[:50_000])
    covered = chains.length_bytes(len(half))
    assert lane.missing_s(half, time) == pytest.approx((covered - 4096) * 1e-4)
    assert lane.missing_s(chains.chain(b"x" + data), time) == 0.0
    one.done = covered
    assert lane.missing_s(half, time) == 0.0
    assert lane.missing_s(chain, time) > 0.0
    lane.waiting.clear()
    lane.running = one
    assert lane.missing_s(chain, time) > 0.0
    assert lane.missing_s((), time) == 0.0


def test_overhead_is_learned_within_bounds() -> None:
    lane = slices.Lane()
    for _ in range(200):
        lane.learn_overhead(1.1, 1.0)
    assert lane.overhead_s == pytest.approx(0.1, rel=0.01)
    for _ in range(200):
        lane.learn_overhead(0.5, 1.0)
    assert 0.0 < lane.overhead_s < 0.01
    for _ in range(200):
        lane.learn_overhead(100.0, 1.0)
    assert lane.overhead_s <= 0.5
