"""The Lease elector against an API kept in memory with real resourceVersion rules and a clock that the test turns."""

import asyncio
import copy
from typing import Any

import pytest

from shoal_operator.kube import errors
from shoal_operator.kube.lease import Elector, Terms

TERMS = Terms(duration_s=15.0, renew_deadline_s=10.0, retry_s=2.0)


class Store:
    """One Lease. Writes need the stored resourceVersion; `down` makes every request fail."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.down = False

    def _up(self) -> None:
        if self.down:
            raise errors.UnavailableError("down")

    async def get(self, resource: Any, name: str, namespace: str | None = None) -> dict[str, Any]:
        self._up()
        if self.lease is None:
            raise errors.NotFoundError("none", status=404)
        return copy.deepcopy(self.lease)

    async def create(self, resource: Any, manifest: dict[str, Any]) -> dict[str, Any]:
        self._up()
        if self.lease is not None:
            raise errors.ConflictError("exists", status=409)
        return self._store(manifest)

    async def replace(self, resource: Any, manifest: dict[str, Any]) -> dict[str, Any]:
        self._up()
        assert self.lease is not None
        if manifest["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise errors.ConflictError("changed", status=409)
        return self._store(manifest)

    def _store(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        self.lease = copy.deepcopy(manifest)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return self.lease


class Candidate:
    def __init__(self, store: Store, identity: str, clock: list[float]) -> None:
        self.heard: list[bool] = []
        self.led = asyncio.Event()

        async def on_change(leading: bool) -> None:
            self.heard.append(leading)
            if leading:
                self.led.set()

        self.elector = Elector(
            store,  # type: ignore[arg-type]
            name="operator",
            namespace="shoal",
            identity=identity,
            terms=TERMS,
            on_change=on_change,
            clock=lambda: clock[0],
        )

    async def turn(self) -> None:
        """One pass of the loop in `run`."""
        await self.elector._try_once()
        await self.elector._announce()


async def test_first_candidate_creates_the_lease_and_leads() -> None:
    store, clock = Store(), [100.0]
    one = Candidate(store, "one", clock)
    await one.turn()
    assert one.elector.leading
    assert one.heard == [True]
    one.elector.require()


async def test_second_waits_while_the_first_renews() -> None:
    store, clock = Store(), [0.0]
    one, two = Candidate(store, "one", clock), Candidate(store, "two", clock)
    for _ in range(30):
        await one.turn()
        await two.turn()
        assert one.elector.leading
        assert not two.elector.leading
        clock[0] += 2.0


async def test_frozen_leader_stops_before_the_next_one_may_begin() -> None:
    store, clock = Store(), [0.0]
    one, two = Candidate(store, "one", clock), Candidate(store, "two", clock)
    await one.turn()
    led_until = None
    for _ in range(12):  # `one` is frozen: it renews no more
        await two.turn()
        if not one.elector.leading and led_until is None:
            led_until = clock[0]
        if two.elector.leading:
            break
        clock[0] += 2.0
    assert two.elector.leading
    assert led_until is not None
    assert led_until < clock[0]
    with pytest.raises(errors.NotLeadingError):
        one.elector.require()


async def test_woken_leader_does_not_win_back_what_another_holds() -> None:
    store, clock = Store(), [0.0]
    one, two = Candidate(store, "one", clock), Candidate(store, "two", clock)
    await one.turn()
    await two.turn()
    clock[0] = 20.0
    await two.turn()
    assert two.elector.leading
    await one.turn()
    assert not one.elector.leading
    assert one.heard == [True, False]
    assert store.lease is not None
    assert store.lease["spec"]["holderIdentity"] == "two"
    assert store.lease["spec"]["leaseTransitions"] == 1


async def test_unreachable_api_ends_leadership_by_the_holders_own_clock() -> None:
    store, clock = Store(), [0.0]
    one = Candidate(store, "one", clock)
    await one.turn()
    store.down = True
    clock[0] = 9.9
    await one.turn()
    assert one.elector.leading
    clock[0] = 10.0
    await one.turn()
    assert not one.elector.leading
    assert one.heard == [True, False]
    store.down = False
    await one.turn()
    assert one.elector.leading


async def test_two_candidates_at_the_same_instant_one_wins() -> None:
    store, clock = Store(), [0.0]
    candidates = [Candidate(store, f"c{n}", clock) for n in range(5)]
    await asyncio.gather(*(candidate.turn() for candidate in candidates))
    assert sum(candidate.elector.leading for candidate in candidates) == 1


async def test_stop_gives_the_lease_back_at_once() -> None:
    store, clock = Store(), [0.0]
    one, two = Candidate(store, "one", clock), Candidate(store, "two", clock)
    stop = asyncio.Event()
    running = asyncio.create_task(one.elector.run(stop))
    async with asyncio.timeout(5):
        await one.led.wait()
        stop.set()
        await running
    assert one.heard == [True, False]
    await two.turn()
    assert two.elector.leading, "no waiting for the old Lease to expire"
