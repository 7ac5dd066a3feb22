"""Circuits open after consecutive failures, try one request, and retries stay a share of traffic."""

import pytest

from shoal_router.dispatch.breaker import FAILURES_MAX, OPEN_FIRST_S, Breaker, Circuit, RetryBudget, may_eject


def _open(breaker: Breaker, now_s: float = 0.0) -> None:
    opened = [breaker.on_failure(now_s, True) for _ in range(FAILURES_MAX)]
    assert opened == [False] * (FAILURES_MAX - 1) + [True]


def test_success_between_failures_keeps_it_closed() -> None:
    breaker = Breaker()
    for _ in range(10):
        for _ in range(FAILURES_MAX - 1):
            assert not breaker.on_failure(0.0, True)
        breaker.on_success()
    assert breaker.circuit is Circuit.CLOSED


def test_one_failure_in_the_trial_opens_it_for_twice_as_long() -> None:
    breaker = Breaker()
    _open(breaker)
    assert breaker.open_until_s == OPEN_FIRST_S
    breaker.half_open()
    assert breaker.on_failure(10.0, True)
    assert (breaker.circuit, breaker.open_until_s) == (Circuit.OPEN, 10.0 + 2 * OPEN_FIRST_S)


def test_success_in_the_trial_closes_it_and_forgets_the_pause() -> None:
    breaker = Breaker()
    _open(breaker)
    breaker.half_open()
    breaker.on_success()
    assert breaker.circuit is Circuit.CLOSED
    _open(breaker, 100.0)
    assert breaker.open_until_s == 100.0 + OPEN_FIRST_S


def test_late_success_of_an_older_request_does_not_close_an_open_circuit() -> None:
    breaker = Breaker()
    _open(breaker)
    breaker.on_success()
    assert breaker.circuit is Circuit.OPEN


@pytest.mark.parametrize(
    ("routable", "ejected", "want"),
    [(1, 0, False), (2, 0, True), (1, 1, False), (3, 0, True), (2, 1, False), (3, 1, True)],
)
def test_at_most_half_may_be_ejected(routable: int, ejected: int, want: bool) -> None:
    assert may_eject(routable, ejected) is want


def test_retries_are_a_share_of_requests_beyond_a_floor() -> None:
    budget = RetryBudget(0.0)
    floor = sum(budget.take(0.0) for _ in range(100))
    assert floor == RetryBudget.FLOOR
    taken = 0
    for _ in range(1000):
        budget.on_request()
        taken += budget.take(0.0)
    assert 1000 * RetryBudget.SHARE - 1 <= taken <= 1000 * RetryBudget.SHARE


def test_quiet_service_regains_its_floor_and_no_more() -> None:
    budget = RetryBudget(0.0)
    while budget.take(0.0):
        pass
    assert [budget.take(now_s) for now_s in (0.5, 1.0, 1.5, 2.0)] == [False, True, False, True]
    assert sum(budget.take(1000.0) for _ in range(100)) == RetryBudget.FLOOR
