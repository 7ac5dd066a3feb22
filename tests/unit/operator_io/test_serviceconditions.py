"""Reasons of a ModelService's conditions: what `kubectl get` says while replicas come and go."""

from typing import Any

import pytest

from shoal_api.conditions import ConditionType, Reason
from shoal_api.modelservice import ModelServiceStatus
from shoal_operator.domain import checks, fleet, revision
from shoal_operator.domain.fleet import Phase
from shoal_operator.reconcile import serviceconditions
from shoal_operator.reconcile.resolving import Resolved
from shoal_operator.reconcile.servicestatus import Seen
from shoal_testing import services

CURRENT = revision.Revision("b" * 64, "1")


def one(number: int, **more: Any) -> fleet.Replica:
    fields: dict[str, Any] = {"phase": Phase.READY, "accepted": True, **more}
    return fleet.Replica(f"m-{CURRENT.short}-{number}", number, CURRENT.short, "B200", **fields)


def reason(desired: int, plan: fleet.Plan, *replicas: fleet.Replica) -> tuple[str, Reason]:
    seen = Seen(
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
    findings = serviceconditions.findings_of(seen)
    found = next(finding for finding in findings if finding.type is ConditionType.PROGRESSING)
    return found.status, found.reason


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
    assert reason(desired, fleet.Plan(steps), *replicas) == ("True", want)


def test_nothing_moves_when_the_plan_is_complete() -> None:
    assert reason(1, fleet.Plan((), None, complete=True), one(0)) == ("False", Reason.AVAILABLE)
