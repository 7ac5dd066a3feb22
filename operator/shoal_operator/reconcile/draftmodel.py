"""DraftModel: accepted when it can be read; lists who uses it. Whether it suits a ModelService is said there."""

import pydantic

from shoal_api.conditions import ConditionType, Reason
from shoal_api.draftmodel import DraftModelSpec, DraftModelStatus
from shoal_operator.kube import resources
from shoal_operator.kube.resources import Object
from shoal_operator.reconcile import report, resolving
from shoal_operator.reconcile.conditions import Finding
from shoal_operator.reconcile.context import Context
from shoal_operator.reconcile.outcome import Done, Key, Outcome


async def reconcile(context: Context, key: Key) -> Outcome:
    items = await context.world.list_objects(resources.DRAFT_MODELS, key.namespace)
    item = next((one for one in items if one["metadata"]["name"] == key.name), None)
    if item is None:
        return Done()
    services = await context.world.list_objects(resources.MODEL_SERVICES, key.namespace)
    old = report.stored(DraftModelStatus, item)
    status = DraftModelStatus(services=_users(services, key.name))
    status, edges = report.with_conditions(context, item, old, status, [_accepted(item)])
    await report.write(context, item, old, status, edges)
    return Done()


def _users(services: list[Object], draft: str) -> tuple[str, ...]:
    found = [
        one["metadata"]["name"]
        for one in services
        if ((one.get("spec") or {}).get("speculative") or {}).get("draftModel") == draft
    ]
    return tuple(sorted(found))[:1000]


def _accepted(item: Object) -> Finding:
    try:
        DraftModelSpec.model_validate(item.get("spec") or {})
    except pydantic.ValidationError as error:
        return Finding(ConditionType.ACCEPTED, "False", Reason.INVALID_SPEC, ": ".join(resolving.first_error(error)))
    return Finding(ConditionType.ACCEPTED, "True", Reason.ACCEPTED)
