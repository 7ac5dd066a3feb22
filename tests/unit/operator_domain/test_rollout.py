"""The rollout planner, situation by situation: the exact steps and holds that people will see."""

from dataclasses import replace
from typing import Any

from shoal_operator.domain import fleet, naming, rehearsal, rollout, victim
from shoal_operator.domain.fleet import Phase

OLD, NEW = "aaaaaaaa", "bbbbbbbb"


def one(revision: str, number: int, **more: Any) -> fleet.Replica:
    """A replica that serves and is old enough to be no bad victim."""
    name = naming.replica_name("m", revision, number)
    base = fleet.Replica(name, number, revision, "B200", Phase.READY, accepted=True, in_flight_requests=0, age_s=9999)
    return replace(base, **more)


def world(
    desired: int, *replicas: fleet.Replica, target: str = NEW, room: int | None = 9, **limits: Any
) -> fleet.Fleet:
    return fleet.Fleet(target, desired, replicas, {"B200": room}, fleet.Limits(**limits))


def steps(found: fleet.Fleet) -> list[str]:
    """Steps as short words: `+b0` create, `~a1` drain, `-a1` delete, `^a1` stop draining."""
    words = []
    for step in rollout.plan_steps(found).steps:
        if isinstance(step, fleet.Create):
            words.append(f"+{step.revision[0]}{step.number}")
        else:
            sign = {fleet.StartDrain: "~", fleet.Delete: "-", fleet.CancelDrain: "^"}[type(step)]
            words.append(f"{sign}{step.name.split('-')[1][0]}{step.name.split('-')[2]}")
    return words


def gate(found: fleet.Fleet) -> str | None:
    hold = rollout.plan_steps(found).hold
    return hold.gate if hold else None


def test_first_creation_fills_up_at_once() -> None:
    assert steps(world(3)) == ["+b0", "+b1", "+b2"]


def test_number_of_a_pod_that_outlives_its_stateful_set_is_not_taken_again() -> None:
    found = replace(world(2, one(NEW, 1)), taken=frozenset({(NEW, 0), (OLD, 2)}))
    assert steps(found) == ["+b2"]


def test_replica_whose_pod_is_evicted_makes_room_for_another_at_once() -> None:
    leaving = one(NEW, 0, phase=Phase.NOT_READY, leaving=True)
    assert steps(world(2, leaving, one(NEW, 1))) == ["-b0", "+b2"]
    assert steps(world(2, replace(leaving, draining_for_s=3.0), one(NEW, 1))) == ["-b0", "+b2"]
    assert steps(world(2, replace(leaving, deleting=True), one(NEW, 1), room=0)) == []


def test_drains_end_for_a_spec_that_is_not_accepted() -> None:
    replicas = (
        one(NEW, 0),
        one(NEW, 1, draining_for_s=5.0, drain_acked=True),
        one(NEW, 2, draining_for_s=5.0, drain_acked=True, in_flight_requests=1),
        one(NEW, 3, draining_for_s=99.0),
    )
    found = rollout.finish_drains(replicas, 60.0)
    assert [step.name for step in found if isinstance(step, fleet.Delete)] == [replicas[1].name, replicas[3].name]
    assert len(found) == 2


def test_nothing_to_do_is_complete() -> None:
    plan = rollout.plan_steps(world(2, one(NEW, 0), one(NEW, 1)))
    assert plan == fleet.Plan((), None, True)


def test_zero_is_a_count() -> None:
    assert steps(world(0, one(NEW, 0), one(NEW, 1))) == ["~b0", "~b1"]
    assert rollout.plan_steps(world(0)).complete


def test_surge_creates_before_it_drains() -> None:
    assert steps(world(2, one(OLD, 0), one(OLD, 1))) == ["+b0"]
    starting = one(NEW, 0, phase=Phase.STARTING, accepted=None)
    assert steps(world(2, one(OLD, 0), one(OLD, 1), starting)) == []
    assert gate(world(2, one(OLD, 0), one(OLD, 1), starting)) == "Starting"
    assert steps(world(2, one(OLD, 0), one(OLD, 1), one(NEW, 0))) == ["~a0"]


def test_ready_newcomer_counts_only_when_routers_accepted_it() -> None:
    unknown, refused = one(NEW, 0, accepted=None), one(NEW, 0, accepted=False)
    for newcomer in (unknown, refused):
        assert steps(world(2, one(OLD, 0), one(OLD, 1), newcomer)) == []


def test_draining_replica_blocks_the_next_surge() -> None:
    """It still holds its GPUs: desired + surge counts it."""
    draining = one(OLD, 0, draining_for_s=5.0)
    assert steps(world(2, draining, one(OLD, 1), one(NEW, 0))) == []
    assert gate(world(2, draining, one(OLD, 1), one(NEW, 0))) == "Draining"


def test_delete_waits_for_every_router_and_an_empty_replica() -> None:
    base = one(OLD, 0, draining_for_s=5.0)
    others = (one(NEW, 0), one(NEW, 1))
    for waiting in (
        replace(base, drain_acked=False),
        replace(base, drain_acked=True, in_flight_requests=1),
        replace(base, drain_acked=True, in_flight_requests=None),
    ):
        assert steps(world(2, waiting, *others)) == []
    assert steps(world(2, replace(base, drain_acked=True), *others)) == ["-a0"]
    late = replace(base, draining_for_s=1800.0, in_flight_requests=3)
    plan = rollout.plan_steps(world(2, late, *others))
    assert plan.steps == (fleet.Delete(late.name, "DrainTimeout"),)


def test_delete_first_where_no_gpu_is_free() -> None:
    fleet_ = world(2, one(OLD, 0), one(OLD, 1), room=0, max_unavailable=1)
    assert steps(fleet_) == ["~a0"]


def test_no_free_gpu_and_no_unavailability_is_a_hold() -> None:
    found = world(2, one(OLD, 0), one(OLD, 1), room=0)
    assert steps(found) == []
    plan = rollout.plan_steps(found)
    assert plan.hold is not None
    assert plan.hold.gate == "NoSpareGPU"
    assert "maxUnavailable" in plan.hold.message


def test_no_room_for_a_first_replica_creates_nothing() -> None:
    assert steps(world(1, room=0)) == []
    assert gate(world(1, room=0)) == "NoSpareGPU"


def test_preferred_gpu_first_then_the_next() -> None:
    found = fleet.Fleet(NEW, 3, (), {"B300": 1, "B200": 5})
    plan = rollout.plan_steps(found)
    assert [step.gpu for step in plan.steps if isinstance(step, fleet.Create)] == ["B300", "B200", "B200"]


def test_starts_are_limited() -> None:
    found = world(6, one(NEW, 0, phase=Phase.STARTING), starts_max=3)
    assert steps(found) == ["+b1", "+b2"]
    assert gate(found) == "StartsLimited"


def test_failing_revision_stops_and_the_old_one_serves_on() -> None:
    failing = one(NEW, 0, phase=Phase.NOT_READY, accepted=False, failing="CrashLoopBackOff: exit 137 OOMKilled")
    found = world(2, one(OLD, 0), one(OLD, 1), failing)
    assert steps(found) == []
    plan = rollout.plan_steps(found)
    assert plan.hold is not None
    assert plan.hold.gate == "ReplicaFailed"
    assert "OOMKilled" in plan.hold.message


def test_failing_newcomer_stays_through_a_scale_down() -> None:
    """Without it the rollout would begin again, and fail again."""
    failing = one(NEW, 0, phase=Phase.NOT_READY, accepted=False, failing="CrashLoopBackOff")
    assert steps(world(1, one(OLD, 0), one(OLD, 1), failing)) == ["~a0"]


def test_failing_rollout_can_still_scale_up_what_serves() -> None:
    failing = one(NEW, 0, phase=Phase.NOT_READY, accepted=False, failing="CrashLoopBackOff")
    found = world(4, one(OLD, 0), one(OLD, 1), failing)
    assert steps(found) == []
    assert steps(replace(found, creatable=frozenset({OLD, NEW}))) == ["+a2"]


def test_revert_goes_to_the_revision_that_serves() -> None:
    failing = one(NEW, 0, phase=Phase.NOT_READY, accepted=False, failing="CrashLoopBackOff")
    assert steps(world(2, one(OLD, 0), one(OLD, 1), failing, target=OLD)) == ["~b0"]
    pending = one(NEW, 0, phase=Phase.PENDING, accepted=None)
    assert steps(world(2, one(OLD, 0), one(OLD, 1), pending, target=OLD)) == ["-b0"]


def test_edit_in_mid_rollout_drops_the_newcomers_that_do_not_serve() -> None:
    middle = one(NEW, 0, phase=Phase.STARTING, accepted=None)
    third = "cccccccc"
    assert steps(world(2, one(OLD, 0), one(OLD, 1), middle, target=third)) == ["-b0"]
    assert steps(world(2, one(OLD, 0), one(OLD, 1), target=third)) == ["+c0"]


def test_paused_rollout_keeps_everything_and_still_scales() -> None:
    found = world(2, one(OLD, 0), one(OLD, 1), one(NEW, 0), paused=True)
    assert steps(found) == []
    assert gate(found) == "Paused"
    assert steps(replace(found, desired=1)) == ["~a0"]


def test_scale_down_takes_what_gives_least() -> None:
    cold = one(NEW, 0, in_flight_work_s=1.0)
    warm = one(NEW, 1, unique_hot_tokens=100_000, reuse_per_s=1.0, prefill_b_s=1e-4)
    busy = one(NEW, 2, in_flight_work_s=20.0)
    young = one(NEW, 3, age_s=10.0)
    broken = one(NEW, 4, phase=Phase.NOT_READY, accepted=False)
    everyone = (warm, busy, young, cold, broken)
    order = [replica.number for replica in victim.order(everyone, NEW, 600.0)]
    assert order == [4, 0, 1, 2, 3]
    assert steps(world(3, *everyone)) == ["~b4", "~b0"]


def test_scale_down_takes_old_revisions_before_cold_newcomers() -> None:
    old = one(OLD, 0, unique_hot_tokens=100_000, reuse_per_s=1.0, prefill_b_s=1e-4)
    assert [replica.revision for replica in victim.order((one(NEW, 0), old), NEW, 600.0)] == [OLD, NEW]


def test_scale_down_prefers_dear_gpus_among_equals() -> None:
    cheap, dear = one(NEW, 0, cost_per_hour=16.0), one(NEW, 1, cost_per_hour=32.0)
    assert steps(world(1, cheap, dear)) == ["~b1"]


def test_prefixes_that_others_hold_do_not_protect() -> None:
    shared = one(NEW, 0, unique_hot_tokens=0, reuse_per_s=9.0, prefill_b_s=1e-4)
    unique = one(NEW, 1, unique_hot_tokens=50_000, reuse_per_s=9.0, prefill_b_s=1e-4)
    assert steps(world(1, unique, shared)) == ["~b0"]


def test_nothing_that_serves_is_drained_while_no_router_answers() -> None:
    unknown = [one(NEW, number, accepted=None) for number in range(3)]
    assert steps(world(1, *unknown)) == []
    assert gate(world(1, *unknown)) == "RoutersNotAcknowledged"


def test_drain_is_taken_back_when_demand_returns() -> None:
    draining = one(NEW, 1, draining_for_s=30.0, in_flight_requests=4)
    assert steps(world(2, one(NEW, 0), draining)) == ["^b1"]
    assert steps(world(2, one(NEW, 0), replace(draining, revision=OLD), max_surge=1)) == ["+b1"]


def test_number_of_a_terminating_replica_is_not_used_again() -> None:
    gone = one(NEW, 0, deleting=True)
    assert steps(world(1, gone, max_surge=1)) == ["+b1"]


def test_stalled_replica_gives_way_where_another_gpu_has_room() -> None:
    stalled = one(NEW, 0, phase=Phase.PENDING, accepted=None, stalled=True)
    found = fleet.Fleet(NEW, 1, (stalled,), {"B200": 0, "H200": 2})
    assert rollout.plan_steps(found).steps == (
        fleet.Delete(stalled.name, "StartTimeout"),
        fleet.Create(NEW, 1, "H200"),
    )
    alone = fleet.Fleet(NEW, 1, (stalled,), {"B200": 0})
    assert rollout.plan_steps(alone).steps == ()
    assert gate(alone) == "StartTimeout"


def test_rehearsal_prints_the_whole_way() -> None:
    rounds = list(rehearsal.rehearse("m", world(2, one(OLD, 0), one(OLD, 1))))
    assert rounds[-1].plan.complete
    assert [len(found.world.replicas) for found in rounds] == [2, 3, 3, 3, 3, 2, 3, 3, 3, 3, 2]
