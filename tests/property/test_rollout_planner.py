"""The rollout planner over arbitrary fleets and worlds: it ends, keeps its bounds, and never empties a service.

The world is adversarial within reason: room comes and goes, replicas get ready in any order, some fail, routers answer
or not, drains take their time, and the spec changes while a rollout runs.
"""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_operator.domain import fleet, naming, rehearsal, rollout

SERVICE = "m"
REVISIONS = ("aaaaaaaa", "bbbbbbbb", "cccccccc")
GPUS = ("B300", "B200")


def replicas() -> st.SearchStrategy[tuple[fleet.Replica, ...]]:
    one = st.builds(
        fleet.Replica,
        name=st.just(""),
        number=st.integers(0, 40),
        revision=st.sampled_from(REVISIONS),
        gpu=st.sampled_from(GPUS),
        phase=st.sampled_from([*fleet.Phase, fleet.Phase.READY, fleet.Phase.READY]),
        accepted=st.sampled_from([None, True, False]),
        failing=st.sampled_from([None, None, None, "CrashLoopBackOff"]),
        draining_for_s=st.sampled_from([None, None, None, 0.0, 100.0, 4000.0]),
        drain_acked=st.booleans(),
        in_flight_requests=st.sampled_from([None, 0, 3]),
        deleting=st.sampled_from([False, False, False, True]),
        leaving=st.sampled_from([False, False, False, True]),
        stalled=st.sampled_from([False, False, True]),
        age_s=st.floats(0, 5000),
        in_flight_work_s=st.floats(0, 100),
        unique_hot_tokens=st.integers(0, 10**6),
    )
    return st.lists(one, max_size=12, unique_by=lambda r: (r.revision, r.number)).map(
        lambda found: tuple(replace(r, name=naming.replica_name(SERVICE, r.revision, r.number)) for r in found)
    )


def limits() -> st.SearchStrategy[fleet.Limits]:
    return st.builds(
        fleet.Limits,
        max_surge=st.integers(0, 3),
        max_unavailable=st.integers(0, 3),
        drain_timeout_s=st.just(1800.0),
        starts_max=st.integers(1, 8),
        paused=st.booleans(),
    )


def fleets() -> st.SearchStrategy[fleet.Fleet]:
    return st.builds(
        fleet.Fleet,
        target=st.sampled_from(REVISIONS),
        desired=st.integers(0, 8),
        replicas=replicas(),
        room=st.fixed_dictionaries({gpu: st.sampled_from([None, 0, 1, 5]) for gpu in GPUS}),
        limits=limits(),
        creatable=st.sampled_from([frozenset(), frozenset(REVISIONS)]),
        taken=st.frozensets(st.tuples(st.sampled_from(REVISIONS), st.integers(0, 3)), max_size=3),
    )


@given(fleets())
@settings(max_examples=600)
def test_one_plan_keeps_every_bound(world: fleet.Fleet) -> None:
    plan = rollout.plan_steps(world)
    assert plan == rollout.plan_steps(world)
    by_name = {one.name: one for one in world.replicas}
    creates = [step for step in plan.steps if isinstance(step, fleet.Create)]
    others = [step for step in plan.steps if not isinstance(step, fleet.Create)]
    names = [step.name for step in others]
    assert len(names) == len(set(names)), "one step a replica"
    assert set(names) <= set(by_name)

    if creates:
        assert len(world.replicas) + len(creates) <= world.desired + world.limits.max_surge
    for gpu in GPUS:
        room = world.room[gpu]
        assert room is None or sum(step.gpu == gpu for step in creates) <= room
    made = {(step.revision, step.number) for step in creates}
    assert len(made) == len(creates)
    assert not made & ({(one.revision, one.number) for one in world.replicas} | world.taken)
    assert {step.revision for step in creates} <= {world.target} | world.creatable

    gone = {step.name for step in others if not isinstance(step, fleet.CancelDrain)}
    if any(by_name[name].serving for name in gone):
        left = sum(one.proven for one in world.replicas if one.name not in gone)
        assert left >= world.desired - world.limits.max_unavailable
    for step in others:
        one = by_name[step.name]
        if isinstance(step, fleet.Delete):
            empty = one.drain_acked and one.in_flight_requests == 0
            overdue = one.draining_for_s is not None and one.draining_for_s >= world.limits.drain_timeout_s
            never_served = one.phase in (fleet.Phase.PENDING, fleet.Phase.STARTING)
            assert empty or overdue or never_served or one.leaving
        if isinstance(step, fleet.StartDrain):
            assert not one.draining
            assert not one.deleting
    if not plan.steps and not plan.complete:
        assert plan.hold is not None, "a pause always has a reason"


@given(fleets())
@settings(max_examples=300)
def test_last_serving_replica_stays_while_any_is_wanted(world: fleet.Fleet) -> None:
    """Unless delete-first was allowed to take it (max_unavailable >= desired)."""
    if world.desired == 0 or world.limits.max_unavailable >= world.desired:
        return
    by_name = {one.name: one for one in world.replicas}
    plan = rollout.plan_steps(world)
    gone = {step.name for step in plan.steps if isinstance(step, fleet.StartDrain | fleet.Delete)}
    serving = {name for name, one in by_name.items() if one.serving}
    if serving:
        assert serving - gone


class World:
    """A cluster that goes forward: what the planner asks for happens, in a random order and time."""

    def __init__(self, seed: int, world: fleet.Fleet, gpus: int) -> None:
        self.random = random.Random(seed)
        self.fleet = world
        self.gpus = gpus
        self.most = len(world.replicas)

    def observe(self) -> fleet.Fleet:
        free = max(0, self.gpus - len(self.fleet.replicas))
        self.fleet = replace(self.fleet, room=dict.fromkeys(GPUS, 0) | {"B200": free})
        return self.fleet

    def step(self) -> fleet.Plan:
        world = self.observe()
        plan = rollout.plan_steps(world)
        room = world.room
        self.fleet = replace(rehearsal.advance(SERVICE, replace(world, replicas=()), fleet.Plan()), room=room)
        kept = {one.name: one for one in world.replicas}
        for step in plan.steps:
            if isinstance(step, fleet.Create):
                name = naming.replica_name(SERVICE, step.revision, step.number)
                kept[name] = fleet.Replica(name, step.number, step.revision, step.gpu)
            elif isinstance(step, fleet.Delete):
                del kept[step.name]
            else:
                since = 0.0 if isinstance(step, fleet.StartDrain) else None
                kept[step.name] = replace(kept[step.name], draining_for_s=since)
        self.fleet = replace(world, replicas=tuple(self._move(one) for one in kept.values()))
        self.most = max(self.most, len(self.fleet.replicas))
        return plan

    def _move(self, one: fleet.Replica) -> fleet.Replica:
        if self.random.random() < 0.5:
            return replace(one, draining_for_s=one.draining_for_s + 100) if one.draining_for_s is not None else one
        if one.draining_for_s is not None:
            return replace(one, drain_acked=True, in_flight_requests=0)
        if one.phase in (fleet.Phase.PENDING, fleet.Phase.STARTING):
            return replace(one, phase=fleet.Phase.READY, accepted=self.random.choice([None, False]))
        return replace(one, phase=fleet.Phase.READY, accepted=True, failing=None, stalled=False)


def running(count: int, revision: str) -> tuple[fleet.Replica, ...]:
    names = [naming.replica_name(SERVICE, revision, number) for number in range(count)]
    return tuple(
        fleet.Replica(name, number, revision, "B200", fleet.Phase.READY, True, age_s=1000)
        for number, name in enumerate(names)
    )


@given(
    seed=st.integers(0, 10**6),
    before=st.integers(0, 5),
    desired=st.integers(0, 6),
    surge=st.integers(0, 2),
    unavailable=st.integers(0, 2),
    spare=st.integers(0, 2),
    edits=st.lists(st.tuples(st.integers(0, 30), st.sampled_from(REVISIONS), st.integers(0, 6)), max_size=3),
)
@settings(max_examples=300)
def test_rollout_ends_at_the_wanted_fleet(
    seed: int,
    before: int,
    desired: int,
    surge: int,
    unavailable: int,
    spare: int,
    edits: list[tuple[int, str, int]],
) -> None:
    """Whatever the order of events and edits, where surge with a spare GPU, or unavailability, is allowed."""
    if unavailable == 0 and (surge == 0 or spare == 0):
        surge, spare = max(1, surge), max(1, spare)
    wanted_max = max([before, desired, *(count for _, _, count in edits)])
    start = fleet.Fleet(
        target=REVISIONS[1],
        desired=desired,
        replicas=running(before, REVISIONS[0]),
        room={},
        limits=fleet.Limits(max_surge=surge, max_unavailable=unavailable, starts_max=3),
    )
    world = World(seed, start, gpus=wanted_max + spare)
    for round_number in range(400):
        for at, revision, count in edits:
            if at == round_number:
                world.fleet = replace(world.fleet, target=revision, desired=count)
        plan = world.step()
        assert len(world.fleet.replicas) <= max(wanted_max + surge, before)
        if plan.complete and all(at <= round_number for at, _, _ in edits):
            break
    else:
        pytest.fail(f"did not end: {world.fleet} {plan}")
    assert {one.revision for one in world.fleet.replicas} <= {world.fleet.target}
    assert len(world.fleet.replicas) == world.fleet.desired


@given(seed=st.integers(0, 10**6), count=st.integers(1, 6), surge=st.integers(1, 2))
def test_serving_count_never_falls_in_a_surge_rollout(seed: int, count: int, surge: int) -> None:
    start = fleet.Fleet(
        target=REVISIONS[1],
        desired=count,
        replicas=running(count, REVISIONS[0]),
        room={},
        limits=fleet.Limits(max_surge=surge, max_unavailable=0),
    )
    world = World(seed, start, gpus=count + surge)
    for _ in range(400):
        plan = world.step()
        assert sum(one.serving and one.accepted is True for one in world.fleet.replicas) >= count
        if plan.complete:
            return
    pytest.fail("did not end")
