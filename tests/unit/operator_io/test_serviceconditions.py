"""A ModelService's conditions and status: what `kubectl get` says while replicas come and go."""

from dataclasses import replace
from typing import Any

import pytest

from shoal_api.conditions import ConditionType, Reason
from shoal_api.modelservice import ModelServiceStatus
from shoal_operator.domain import checks, fleet, revision, scaling
from shoal_operator.domain.fleet import Phase
from shoal_operator.reconcile import serviceconditions, servicestatus
from shoal_operator.reconcile.conditions import Finding
from shoal_operator.reconcile.resolving import Resolved
from shoal_operator.reconcile.servicestatus import Seen
from shoal_testing import services

CURRENT = revision.Revision("b" * 64, "1")


def one(number: int, **more: Any) -> fleet.Replica:
    fields: dict[str, Any] = {"phase": Phase.READY, "accepted": True, **more}
    return fleet.Replica(f"m-{CURRENT.short}-{number}", number, CURRENT.short, "B200", **fields)


def seen_with(desired: int, plan: fleet.Plan, *replicas: fleet.Replica) -> Seen:
    return Seen(
        item={"metadata": {"name": "m", "namespace": "ns"}, "spec": {}},
        old=ModelServiceStatus(),
        now_s=0.0,
        resolved=Resolved(services.service("quickstart"), checks.Findings()),
        router_exists=True,
        claim=None,
        replicas=replicas,
        current=CURRENT,
        desired=desired,
        plan=plan,
    )


def progressing(desired: int, plan: fleet.Plan, *replicas: fleet.Replica) -> Finding:
    findings = serviceconditions.findings_of(seen_with(desired, plan, *replicas))
    return next(finding for finding in findings if finding.type is ConditionType.PROGRESSING)


@pytest.mark.parametrize(
    ("desired", "steps", "replicas", "want"),
    [
        (1, (fleet.StartDrain("m-bbbbbbbb-1", "ScaleDown"),), (one(0), one(1)), Reason.SCALING_DOWN),
        (1, (fleet.Delete("m-bbbbbbbb-1", "ScaleDown"),), (one(0), one(1, phase=Phase.PENDING)), Reason.SCALING_DOWN),
        (1, (), (one(0), one(1, draining_for_s=1.0)), Reason.SCALING_DOWN),
        (2, (fleet.CancelDrain("m-bbbbbbbb-1", "Wanted"),), (one(0), one(1, draining_for_s=1.0)), Reason.SCALING_UP),
        (2, (fleet.Create("bbbbbbbb", 1, "B200"),), (one(0),), Reason.SCALING_UP),
        (1, (fleet.Create("bbbbbbbb", 0, "B200"),), (), Reason.STARTING),
    ],
)
def test_movement_is_named_from_its_first_moment(
    desired: int, steps: tuple[fleet.Step, ...], replicas: tuple[fleet.Replica, ...], want: Reason
) -> None:
    found = progressing(desired, fleet.Plan(steps), *replicas)
    assert (found.status, found.reason) == ("True", want)
    assert found.message == servicestatus.describe(steps)


def test_wait_says_what_for() -> None:
    hold = fleet.Hold("Draining", "waiting for m-bbbbbbbb-1 to go")
    found = progressing(1, fleet.Plan((), hold), one(0), one(1, draining_for_s=1.0))
    assert (found.status, found.reason, found.message) == ("True", Reason.SCALING_DOWN, hold.message)


def test_nothing_moves_when_the_plan_is_complete() -> None:
    found = progressing(1, fleet.Plan((), None, complete=True), one(0))
    assert (found.status, found.reason) == ("False", Reason.AVAILABLE)


def test_change_whose_reconcile_failed_is_told_by_the_next() -> None:
    """The scaler has moved on; the history and the Events must not lose what it did."""
    changes = tuple(
        scaling.Change(1000.0 + number, number, number + 1, scaling.Reason.BACKLOG, (("backlog", 2.0),))
        for number in reversed(range(12))
    )
    decision = scaling.Decision(12, scaling.Reason.STEADY, ())
    seen = replace(seen_with(12, fleet.Plan()), decision=decision, changes=changes[-1:])
    first = servicestatus.status_of(seen).scaling
    assert first is not None
    assert [(change.from_, change.to) for change in first.history] == [(0, 1)]
    assert len(servicestatus.unreported(seen)) == 1

    stored = ModelServiceStatus(scaling=first)
    seen = replace(seen, old=stored, changes=changes[-3:])
    assert [change.to for change in servicestatus.unreported(seen)] == [3, 2], "newest first"
    seen = replace(seen, changes=changes)
    later = servicestatus.status_of(seen).scaling
    assert later is not None
    assert [change.to for change in later.history] == list(range(12, 2, -1)), "the last ten"
    seen = replace(seen, old=ModelServiceStatus(scaling=later), changes=changes[:10])
    assert servicestatus.unreported(seen) == ()


def test_reason_for_which_a_count_stays_costs_no_write() -> None:
    def status(reason: scaling.Reason, desired: int) -> ModelServiceStatus:
        decision = scaling.Decision(desired, reason, (("needDown", 1.0),))
        return servicestatus.status_of(replace(seen_with(2, fleet.Plan()), decision=decision))

    steady = status(scaling.Reason.STEADY, 2)
    assert servicestatus.unchanged(steady, status(scaling.Reason.WINDOW_NOT_OVER, 2))
    assert not servicestatus.unchanged(steady, status(scaling.Reason.LOAD_FELL, 1))
