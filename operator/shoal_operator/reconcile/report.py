"""The last step of every reconcile: the status, written once and only when it says something new; Events on edges."""

import logging
from collections.abc import Iterable
from typing import TypeVar

import pydantic

from shoal_api.conditions import Reason
from shoal_api.meta import StatusModel
from shoal_operator.kube.resources import Object
from shoal_operator.reconcile import observe
from shoal_operator.reconcile.conditions import Edge, Finding, merge
from shoal_operator.reconcile.context import Context
from shoal_operator.reconcile.index import resource_of

log = logging.getLogger(__name__)

S = TypeVar("S", bound=StatusModel)


def stored(model: type[S], item: Object) -> S:
    """The status as stored; an empty one where it cannot be read (a newer operator's, say), which is written anew."""
    try:
        return model.model_validate(item.get("status") or {})
    except pydantic.ValidationError as error:
        log.warning("Stored status is not readable", extra={"key": item["metadata"]["name"], "error": str(error)})
        return model()


def with_conditions(
    context: Context, item: Object, old: StatusModel, new: S, findings: Iterable[Finding]
) -> tuple[S, tuple[Edge, ...]]:
    """The new status with its conditions and observedGeneration, and the edges."""
    generation = item["metadata"].get("generation", 0)
    now = observe.rfc3339(context.wall_clock())
    conditions, edges = merge(getattr(old, "conditions", ()), findings, generation=generation, now=now)
    return new.model_copy(update={"conditions": conditions, "observed_generation": generation}), edges


async def write(context: Context, item: Object, old: StatusModel, new: StatusModel, edges: Iterable[Edge]) -> Object:
    """Write the status if it differs from the stored one; returns the object as it is stored now."""
    if new != old:
        status = new.as_object()
        resource = resource_of(item["kind"])
        item = await context.client.replace_status(resource, item, status)
        context.world.touch_list(resource, item["metadata"].get("namespace") or "")
        context.metrics.writes.labels(item["kind"], "status").inc()
    told = {Reason.NOT_ACCEPTED}  # follows from Accepted=False, which has an Event of its own
    for edge in edges:
        finding = edge.finding
        if finding.reason in told:
            continue
        told.add(finding.reason)
        await context.recorder.record(
            item, reason=finding.reason.value, message=finding.message or finding.type.value, warning=finding.warning
        )
    return item
