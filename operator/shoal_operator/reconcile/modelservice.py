"""ModelService: observe, resolve, check, decide how many, plan, apply, report. All but the reads and writes is pure."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from shoal_api.conditions import ConditionType, Reason
from shoal_api.modelservice import ModelServiceStatus
from shoal_api.router import RouterStatus
from shoal_operator.domain import fleet, revision, rollout, scaling, values
from shoal_operator.kube import errors, resources
from shoal_operator.kube.resources import Object
from shoal_operator.reconcile import (
    executing,
    fleetview,
    observe,
    report,
    routetable,
    serviceconditions,
    servicestatus,
)
from shoal_operator.reconcile.conditions import Edge, Finding
from shoal_operator.reconcile.context import Context
from shoal_operator.reconcile.observe import Group
from shoal_operator.reconcile.outcome import Done, Failed, Key, Outcome, Requeue
from shoal_operator.reconcile.scaler import reports_of
from shoal_operator.reconcile.servicestatus import Seen
from shoal_operator.reconcile.world import Snapshot
from shoal_operator.render import engine

log = logging.getLogger(__name__)

IDLE_LOOK_S = 15.0
"""How often figures of a service that nothing else happens to are refreshed."""
STARTS_MAX = 8
"""Replicas of one service that may be starting at once, where no scaler says otherwise."""


async def reconcile(context: Context, key: Key) -> Outcome:
    try:
        snapshot = await context.world.snapshot(key)
    except errors.NotFoundError:
        _forget(context, key)
        return Done()
    if "deletionTimestamp" in snapshot.item["metadata"]:
        return Done()  # garbage collection does the rest; nothing is made for what is going
    seen = await _observe(context, key, snapshot)
    _publish_drains(context, key, seen)
    (context.refused.add if seen.claim is not None else context.refused.discard)(key)
    failure: errors.KubeError | None = None
    service = seen.service
    if seen.accepted and service is not None:
        seen = await _decide(context, key, seen, service)
        try:
            await _apply(context, key, seen, service)
        except (errors.ForbiddenError, errors.InvalidError) as error:
            failure = error  # said in the status, then tried again with back-off
    elif await executing.end_drains(context, key, seen.groups, _ended_drains(seen)):
        return Requeue(context.settings.tick_s, "drains of a spec that is not accepted")
    await _report(context, key, snapshot, seen, failure)
    if failure is not None:
        return Failed(failure.message)
    return _next_look(context, seen)


async def _observe(context: Context, key: Key, snapshot: Snapshot) -> Seen:
    item = snapshot.item
    namespace = key.namespace
    router = str((item.get("spec") or {}).get("router") or "default")
    routers = await context.world.list_objects(resources.ROUTERS, namespace)
    router_item = next((one for one in routers if one["metadata"]["name"] == router), None)
    services = await context.world.list_objects(resources.MODEL_SERVICES, namespace)
    resolved = context.resolver.resolve(item, await context.world.catalog(namespace))
    groups = observe.groups_of(snapshot.sets, snapshot.pods, item["metadata"]["uid"])
    said = context.routers.of(namespace, router)
    figures = {group.name: fleetview.figures_of(key.name, group, said) for group in groups}
    if not context.routers.known:  # no round of questions yet: nobody has said anything, good or bad
        figures = {
            name: replace(one, accepted=None, drain_acked=False, in_flight_requests=None)
            for name, one in figures.items()
        }
    now_s = context.wall_clock()
    costs = {profile.gpu: profile.pool.cost_per_hour or 0.0 for profile in _profiles(resolved.service)}
    budget_s = _start_budget_s(resolved.service)
    context.starts.note(key, groups, budget_s=budget_s, now_s=now_s)
    cold_s = context.starts.cold_start_s(key, budget_s=budget_s)
    replicas = tuple(
        fleetview.replica_of(
            group,
            figures[group.name],
            now_s=now_s,
            begun_s=context.starts.begun_s(key, group),
            cold_start_s=cold_s,
            cost_per_hour=costs.get(group.gpu, 0.0),
        )
        for group in groups
    )
    return Seen(
        item=item,
        old=report.stored(ModelServiceStatus, item),
        now_s=now_s,
        resolved=resolved,
        router_exists=router_item is not None,
        url=None if router_item is None else report.stored(RouterStatus, router_item).url,
        claim=context.claims.of(services, router).get(key.name),
        groups=groups,
        taken=observe.lingering(snapshot.pods, groups),
        cold_start_s=cold_s,
        figures=figures,
        replicas=replicas,
        routers=said,
        flow=context.routers.flow(namespace, router, key.name),
        desired=sum(not one.deleting and not one.draining for one in replicas),
    )


def _profiles(service: values.Service | None) -> tuple[values.Profile, ...]:
    return service.profiles if service is not None else ()


def _start_budget_s(service: values.Service | None) -> float:
    """The longest that a start may take on any of the service's hardware."""
    return max((engine.startup_budget_s(service, one) for one in _profiles(service) if service), default=0.0)


def _ended_drains(seen: Seen) -> tuple[fleet.Step, ...]:
    """What had begun to drain before the spec was refused is empty some day: it need not keep its GPUs until then."""
    limits = seen.service.rollout if seen.service is not None else values.Rollout()
    return rollout.finish_drains(seen.replicas, limits.drain_timeout_s)


def _publish_drains(context: Context, key: Key, seen: Seen) -> None:
    """What the route table must name as draining, for the Router's reconciler."""
    draining = tuple(sorted(group.name for group in seen.groups if group.drain_since_s is not None))
    if context.drains.get(key) != draining:
        context.drains[key] = draining
        _wake_router(context, key, seen)


def _wake_router(context: Context, key: Key, seen: Seen) -> None:
    router = str((seen.item.get("spec") or {}).get("router") or "default")
    context.queue.add(Key(resources.ROUTERS.kind, key.namespace, router))


async def _decide(context: Context, key: Key, seen: Seen, service: values.Service) -> Seen:
    current = revision.current(service, seen.old.current_revision, seen.old.render_version)
    seen = replace(seen, current=current)
    starts_max = STARTS_MAX
    if service.scaling is None:
        context.scaler.forget(key)
        seen = replace(seen, desired=1 if service.replicas is None else service.replicas)
    else:
        starts_max = service.scaling.starts_max
        seen = _scale(context, key, seen, service, service.scaling)
    world = await context.world.gpus()
    limits = service.rollout
    planned = fleet.Fleet(
        target=current.short,
        desired=seen.desired,
        replicas=seen.replicas,
        room={profile.gpu: context.reservations.room(profile, world) for profile in service.profiles},
        limits=fleet.Limits(
            max_surge=limits.max_surge,
            max_unavailable=limits.max_unavailable,
            drain_timeout_s=limits.drain_timeout_s,
            starts_max=starts_max,
            paused=limits.paused,
        ),
        creatable=frozenset({current.short, *await _creatable(context, key, seen)}),
        cold_start_s=seen.cold_start_s,
        taken=seen.taken,
    )
    return replace(seen, plan=rollout.plan_steps(planned))


async def _creatable(context: Context, key: Key, seen: Seen) -> frozenset[str]:
    """Old revisions that can be rendered again; asked for only while there are old replicas."""
    if seen.current is None or all(one.revision == seen.current.short for one in seen.replicas):
        return frozenset()
    return frozenset(await context.revisions.known(key, seen.item["metadata"]["uid"]))


def _scale(context: Context, key: Key, seen: Seen, service: values.Service, wanted: values.Scaling) -> Seen:
    before = context.scaler.in_force(key, seen.old, seen.desired, wanted.min)
    if not context.routers.known:
        return replace(seen, desired=before)
    fit = next((one for one in seen.resolved.findings.fits if one is not None), None)
    pending = [one for one in seen.replicas if not one.serving and not one.draining and not one.deleting]
    old = any(seen.current is not None and one.revision != seen.current.short for one in seen.replicas)
    inputs = scaling.Inputs(
        now_s=seen.now_s,
        scaling=wanted,
        reports=reports_of(key.name, seen.routers, seen.now_s),
        supply=scaling.Supply(
            ready=len(seen.serving),
            pending=len(pending),
            draining=sum(one.draining or one.deleting for one in seen.replicas),
            stalled=tuple(one.name for one in pending if one.stalled),
        ),
        desired=before,
        timing=service.profiles[0].pool.timing,
        kv_per_replica=float(fit.kv_tokens) if fit is not None else None,
        cold_start_s=seen.cold_start_s,
        rolling_out=old,
    )
    decision = context.scaler.decide(key, inputs)
    direction = "up" if decision.desired > before else "down" if decision.desired < before else "hold"
    context.metrics.scale_decisions.labels(direction, decision.reason.value).inc()
    ages = [one.age_s for one in seen.routers if one.answer is not None]
    if ages:
        context.metrics.signal_age_seconds.labels(key.namespace, key.name).set(max(ages))
    return replace(seen, desired=decision.desired, decision=decision, changes=context.scaler.changes(key))


async def _apply(context: Context, key: Key, seen: Seen, service: values.Service) -> None:
    if seen.current is None or seen.plan is None:
        return
    meta = seen.item["metadata"]
    owner = values.Owner(seen.item["apiVersion"], seen.item["kind"], key.name, meta["uid"])
    creates = any(isinstance(step, fleet.Create) for step in seen.plan.steps)
    if creates:
        await context.revisions.record(key, service, seen.current, owner, number=int(seen.now_s))
    recorded = await context.revisions.known(key, owner.uid) if creates else {}
    groups: dict[str, Group] = {group.name: group for group in seen.groups}
    work = executing.Work(key, service, seen.current, owner, groups, recorded, seen.now_s)
    await executing.ensure_standing(context, work)
    await executing.execute(context, work, seen.plan.steps)
    if seen.plan.complete and seen.old.serving_revision != seen.current.short:
        await context.revisions.prune(key, owner.uid, {seen.current.short, *(one.revision for one in seen.replicas)})


async def _report(context: Context, key: Key, snapshot: Snapshot, seen: Seen, failure: errors.KubeError | None) -> None:
    status = servicestatus.status_of(seen)
    findings = serviceconditions.findings_of(seen)
    if failure is not None:
        refused = Finding(ConditionType.PROGRESSING, "False", Reason.APPLY_FAILED, failure.message)
        findings = [refused if one.type is ConditionType.PROGRESSING else one for one in findings]
    status, edges = report.with_conditions(context, seen.item, seen.old, status, findings)
    _count(context, key, seen)
    refreshed_s = context.refreshed.get(key, 0.0)
    if servicestatus.unchanged(seen.old, status) and seen.now_s - refreshed_s < IDLE_LOOK_S:
        status = seen.old
    if status != seen.old:
        context.refreshed[key] = seen.now_s
    item = await report.write(context, seen.item, seen.old, status, edges)
    if item is not seen.item:
        context.world.wrote_status(key, snapshot, item)
    if routetable.first_on_its_way(seen.old) != routetable.first_on_its_way(status):
        _wake_router(context, key, seen)
    if failure is None:
        await _tell(context, item, seen, edges)


async def _tell(context: Context, item: Object, seen: Seen, edges: Sequence[Edge]) -> None:
    """Events about what was done, beside those about conditions."""
    for change in reversed(servicestatus.unreported(seen)):
        figures = ", ".join(f"{name} {value:g}" for name, value in list(change.inputs.items())[:8])
        message = f"from {change.from_} to {change.to} replicas: {figures}"
        await context.recorder.record(item, reason=change.reason, message=message, warning=False)
    moved = any(edge.finding.type is ConditionType.PROGRESSING for edge in edges)  # which says what is done
    if seen.plan is not None and seen.plan.steps and not moved:
        progressing = next(one for one in serviceconditions.findings_of(seen) if one.type is ConditionType.PROGRESSING)
        message = servicestatus.describe(seen.plan.steps)
        await context.recorder.record(item, reason=progressing.reason.value, message=message, warning=False)


def _count(context: Context, key: Key, seen: Seen) -> None:
    metrics = context.metrics
    metrics.count_replicas(key.namespace, key.name, map(servicestatus.phase_text, seen.replicas))
    hold = seen.plan.hold if seen.plan is not None else None
    metrics.hold(key.namespace, key.name, hold.gate if hold is not None else None)


def _next_look(context: Context, seen: Seen) -> Outcome:
    scales = seen.service is not None and seen.service.scaling is not None and seen.accepted
    moving = seen.plan is not None and not seen.plan.complete
    if scales or moving:
        return Requeue(context.settings.tick_s, "scaling or moving")
    return Requeue(IDLE_LOOK_S, "figures")


def _forget(context: Context, key: Key) -> None:
    context.scaler.forget(key)
    context.starts.forget(key)
    context.revisions.forget(key)
    context.drains.pop(key, None)
    context.refused.discard(key)
    context.refreshed.pop(key, None)
    context.metrics.forget_service(key.namespace, key.name)
