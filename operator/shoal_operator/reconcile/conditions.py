"""Conditions: how new findings change the ones in a status, and which changes are edges worth an Event. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from shoal_api.conditions import ConditionType, Reason
from shoal_api.meta import Condition

Status = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one reconcile found out about one condition. `good` is the status that nobody needs to look at."""

    type: ConditionType
    status: Status
    reason: Reason
    message: str = ""
    good: Status = "True"

    @property
    def warning(self) -> bool:
        return self.status != self.good


@dataclass(frozen=True, slots=True)
class Edge:
    """A condition whose status or reason is not what it was."""

    finding: Finding
    before: Condition | None


def merge(
    old: Iterable[Condition], findings: Iterable[Finding], *, generation: int, now: str
) -> tuple[tuple[Condition, ...], tuple[Edge, ...]]:
    """The conditions of the new status, in the order of the findings, and the edges.

    `lastTransitionTime` moves only with the status. Conditions that no finding speaks of are dropped: they were about
    something that the spec no longer has.
    """
    known = {condition.type: condition for condition in old}
    merged, edges = [], []
    for finding in findings:
        before = known.get(finding.type.value)
        changed = before is None or before.status != finding.status
        merged.append(
            Condition(
                type=finding.type.value,
                status=finding.status,
                reason=finding.reason.value,
                message=finding.message[:4096],
                last_transition_time=now if changed or before is None else before.last_transition_time,
                observed_generation=generation,
            )
        )
        if before is None:
            # The first word on a condition is an edge only when it is bad, or says that the object is taken up.
            edge = finding.warning or finding.type is ConditionType.ACCEPTED
        else:
            edge = changed or before.reason != finding.reason.value
        if edge:
            edges.append(Edge(finding, before))
    return tuple(merged), tuple(edges)
