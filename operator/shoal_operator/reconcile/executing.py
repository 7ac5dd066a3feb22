"""Carries out what the planner said, one step after the other. Every step may be repeated without harm."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal_api import keys
from shoal_operator.domain import fleet, revision, values
from shoal_operator.kube import resources
from shoal_operator.kube.resources import Object
from shoal_operator.reconcile import observe
from shoal_operator.reconcile.context import Context
from shoal_operator.reconcile.observe import Group
from shoal_operator.reconcile.outcome import Key
from shoal_operator.reconcile.revisions import Recorded
from shoal_operator.render import bundle, engine

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Work:
    """What steps are carried out for."""

    key: Key
    service: values.Service
    current: revision.Revision
    owner: values.Owner
    groups: Mapping[str, Group]
    recorded: Mapping[str, Recorded]
    now_s: float


async def ensure_standing(context: Context, work: Work) -> None:
    """What a service has whatever the plan says: its budget, and its current replicas as they are rendered now."""
    for manifest in bundle.render_service(work.service, work.owner):
        await context.applier.ensure(manifest)
    profiles = {profile.gpu: profile for profile in work.service.profiles}
    for group in work.groups.values():
        profile = profiles.get(group.gpu)
        if group.revision != work.current.short or group.deleting or profile is None:
            continue
        pinned = revision.Revision(work.current.hash, group.render_version or work.current.render_version)
        if pinned.render_version in revision.RENDER_VERSIONS:
            await _apply_replica(context, work.service, pinned, group.number, profile, work.owner, group.manifest)


async def execute(context: Context, work: Work, steps: tuple[fleet.Step, ...]) -> None:
    """In the planner's order. After it, what was read about the service is old."""
    router = Key(resources.ROUTERS.kind, work.key.namespace, work.service.router)
    try:
        for step in steps:
            log.info("Step", extra={"key": str(work.key), "step": repr(step)})
            match step:
                case fleet.Create():
                    await _create(context, work, step)
                case fleet.StartDrain():
                    since: dict[str, str | None] = {keys.ANNOTATION_DRAIN_SINCE: observe.rfc3339(work.now_s)}
                    await _annotate(context, work, step.name, since)
                    context.queue.add(router)
                case fleet.CancelDrain():
                    await _annotate(context, work, step.name, {keys.ANNOTATION_DRAIN_SINCE: None})
                    context.queue.add(router)
                case fleet.Delete():
                    await _delete(context, work.groups[step.name].manifest)
    finally:
        if steps:
            context.world.touch_service(work.key)
            context.world.touch_gpus()


async def end_drains(
    context: Context, key: Key, groups: Sequence[Group], steps: tuple[fleet.Step, ...]
) -> tuple[fleet.Step, ...]:
    """Deletes alone, for which no service is needed; the steps given back are those that were carried out."""
    stored = {group.name: group.manifest for group in groups}
    try:
        for step in steps:
            if isinstance(step, fleet.Delete):
                log.info("Step", extra={"key": str(key), "step": repr(step)})
                await _delete(context, stored[step.name])
    finally:
        if steps:
            context.world.touch_service(key)
            context.world.touch_gpus()
    return steps


async def _delete(context: Context, stateful_set: Object) -> None:
    await context.client.delete(resources.STATEFUL_SETS, stateful_set)
    context.metrics.writes.labels(resources.STATEFUL_SETS.kind, "delete").inc()


async def _annotate(context: Context, work: Work, name: str, annotations: dict[str, str | None]) -> None:
    await context.client.annotate(resources.STATEFUL_SETS, work.groups[name].manifest, annotations)
    context.metrics.writes.labels(resources.STATEFUL_SETS.kind, "annotate").inc()
    draining = set(context.drains.get(work.key, ()))
    if annotations[keys.ANNOTATION_DRAIN_SINCE] is None:
        draining.discard(name)
    else:
        draining.add(name)
    context.drains[work.key] = tuple(sorted(draining))


async def _create(context: Context, work: Work, step: fleet.Create) -> None:
    service, wanted = work.service, work.current
    if step.revision != work.current.short:
        old = work.recorded[step.revision]
        service, wanted = old.service, old.revision
    profile = next((one for one in service.profiles if one.gpu == step.gpu), None)
    if profile is None:
        log.warning("An old revision has no such hardware", extra={"key": str(work.key), "step": repr(step)})
        return
    item = await _apply_replica(context, service, wanted, step.number, profile, work.owner, None)
    context.reservations.add(work.key.namespace, item["metadata"]["name"], profile)


async def _apply_replica(
    context: Context,
    service: values.Service,
    wanted: revision.Revision,
    number: int,
    profile: values.Profile,
    owner: values.Owner,
    observed: Object | None,
) -> Object:
    """The StatefulSet, then its Service, which the StatefulSet owns: it goes with it, whoever deletes it and when."""
    headless, stateful_set = engine.render_replica(service, wanted, number, profile, owner)
    applied = await context.applier.apply(stateful_set, observed)
    item = applied.item if applied.item is not None else stateful_set
    if "uid" in item["metadata"]:
        reference: dict[str, Any] = values.Owner(
            stateful_set["apiVersion"], stateful_set["kind"], item["metadata"]["name"], item["metadata"]["uid"]
        ).reference()
        metadata = {**headless["metadata"], "ownerReferences": [reference]}
        await context.applier.ensure({**headless, "metadata": metadata})
    return item
