"""Deadlines fire once, never early, and move with the float that holds them."""

import asyncio
import math

from shoal_router import timers
from shoal_testing.waiting import until


class _Item:
    def __init__(self) -> None:
        self.deadline_s = math.inf
        self.timer_slot = -1
        self.fired: list[float] = []

    def on_deadline(self, now_s: float) -> None:
        self.fired.append(now_s)


async def test_deadlines() -> None:
    wheel = timers.Wheel(asyncio.get_running_loop())
    wheel.start()
    try:
        now_s = wheel.now()
        soon, moved, sooner, disarmed, far, never = (_Item() for _ in range(6))
        wheel.arm(soon, now_s + 0.1)
        wheel.arm(moved, now_s + 0.1)
        wheel.arm(moved, now_s + 0.4)
        wheel.arm(sooner, now_s + 60)
        wheel.arm(sooner, now_s + 0.2)
        wheel.arm(disarmed, now_s + 0.1)
        wheel.disarm(disarmed)
        wheel.arm(far, now_s + 10_000)
        wheel.arm(never, math.inf)
        await until(lambda: bool(moved.fired))
        assert soon.fired[0] >= now_s + 0.1
        assert moved.fired[0] >= now_s + 0.4
        assert sooner.fired[0] >= now_s + 0.2
        assert [len(item.fired) for item in (soon, moved, sooner, disarmed, far, never)] == [1, 1, 1, 0, 0, 0]
        assert far.timer_slot >= 0
    finally:
        wheel.stop()


async def test_one_that_raises_costs_no_other_its_deadline() -> None:
    class Bad(_Item):
        def on_deadline(self, now_s: float) -> None:
            super().on_deadline(now_s)
            raise RuntimeError("bad")

    loop = asyncio.get_running_loop()
    raised: list[object] = []
    loop.set_exception_handler(lambda _, context: raised.append(context.get("exception")))
    wheel = timers.Wheel(loop)
    wheel.start()
    try:
        items = [Bad() if place % 2 else _Item() for place in range(20)]
        at_s = wheel.now() + 0.1
        for item in items:
            wheel.arm(item, at_s)
        await until(lambda: all(item.fired for item in items))
        assert [len(item.fired) for item in items] == [1] * 20
        assert len(raised) == 10
    finally:
        wheel.stop()
