"""The work queue against its promises: no key twice at once, none lost, none early, back-off bounded."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_operator.reconcile.outcome import Done, Failed, Key, Outcome, Requeue
from shoal_operator.reconcile.queue import WorkQueue

KEYS = [Key("ModelService", "ns", name) for name in "abc"]

actions = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(KEYS), st.just(0.0)),
        st.tuples(st.just("after"), st.sampled_from(KEYS), st.floats(0, 20)),
        st.tuples(st.just("take"), st.none(), st.just(0.0)),
        st.tuples(st.just("done"), st.integers(0, 2), st.floats(0, 20)),
        st.tuples(st.just("fail"), st.integers(0, 2), st.just(0.0)),
        st.tuples(st.just("time"), st.none(), st.floats(0.01, 10)),
    ),
    max_size=80,
)


@given(actions)
def test_queue_keeps_its_promises(steps: list[tuple[str, object, float]]) -> None:
    clock = [0.0]
    queue = WorkQueue(clock=lambda: clock[0], jitter=lambda: 0.5, backoff_first_s=0.5, backoff_cap_s=8.0)
    running: list[Key] = []
    wanted: dict[Key, float] = {}  # naive model: earliest time asked for
    failures: dict[Key, int] = {}

    def ask(key: Key, due: float) -> None:
        wanted[key] = min(wanted.get(key, due), due)

    for what, argument, number in steps:
        if what in ("add", "after"):
            assert isinstance(argument, Key)
            queue.add_after(argument, number)
            ask(argument, clock[0] + number)
        elif what == "time":
            clock[0] += number
        elif what == "take":
            key = queue.take()
            due = {one: at for one, at in wanted.items() if at <= clock[0] and one not in running}
            if key is None:
                assert not due
            else:
                assert key not in running, "one key is never worked on twice at once"
                assert wanted[key] <= clock[0], "never early"
                assert wanted[key] == min(due.values()), "the one that waited longest"
                del wanted[key]
                running.append(key)
        elif running:
            assert isinstance(argument, int)
            key = running.pop(argument % len(running))
            outcome: Outcome
            if what == "fail":
                delay = min(8.0, 0.5 * 2 ** failures.get(key, 0))
                failures[key] = failures.get(key, 0) + 1
                ask(key, clock[0] + delay)
                outcome = Failed("x")
            elif number:
                failures.pop(key, None)
                ask(key, clock[0] + number)
                outcome = Requeue(number, "x")
            else:
                failures.pop(key, None)
                outcome = Done()
            queue.done(key, outcome)
    for key in running:
        queue.done(key, Done())
    clock[0] += 1000.0
    left = set()
    while (key := queue.take()) is not None:
        left.add(key)
    assert left == set(wanted), "nothing that was asked for is lost"
    assert len(left) <= len(KEYS)


async def test_waiting_worker_is_woken_by_work_and_by_time() -> None:
    queue = WorkQueue()
    waiting = [asyncio.create_task(queue.wait()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add(KEYS[0])
    queue.add(KEYS[0])
    queue.add_after(KEYS[1], 0.01)
    async with asyncio.timeout(5):
        assert set(await asyncio.gather(*waiting)) == {KEYS[0], KEYS[1]}
    assert queue.take() is None


async def test_key_asked_for_while_it_is_worked_on_comes_again() -> None:
    queue = WorkQueue()
    queue.add(KEYS[0])
    async with asyncio.timeout(5):
        assert await queue.wait() == KEYS[0]
        queue.add(KEYS[0])
        assert queue.take() is None
        queue.done(KEYS[0], Done())
        assert await queue.wait() == KEYS[0]


def test_back_off_is_capped_and_forgotten_at_success() -> None:
    clock = [0.0]
    queue = WorkQueue(clock=lambda: clock[0], jitter=lambda: 0.5, backoff_first_s=0.2, backoff_cap_s=60.0)
    delays = []
    queue.add(KEYS[0])
    for _ in range(2000):
        while (key := queue.take()) is None:
            clock[0] = queue._heap[0][0]
        began = clock[0]
        queue.done(key, Failed("x"))
        delays.append(queue._heap[0][0] - began)
    assert delays[:3] == pytest.approx([0.2, 0.4, 0.8])
    assert max(delays) <= 60.0 + 1e-6
    clock[0] = queue._heap[0][0]
    assert queue.take() == KEYS[0]
    queue.done(KEYS[0], Done())
    queue.add(KEYS[0])
    assert queue.take() == KEYS[0]
    queue.done(KEYS[0], Failed("x"))
    assert queue._heap[0][0] - clock[0] == pytest.approx(0.2)
