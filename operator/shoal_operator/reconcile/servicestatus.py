"""A ModelService's status, from what one reconcile saw and decided. Pure; conditions are in serviceconditions.py.

Figures that change with every request (sessions, tokens, latencies) are refreshed at a pace of their own, so that a
busy service does not cost a write every two seconds; `unchanged` tells whether anything else is new.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shoal_api import modelservice as api
from shoal_operator.domain import fleet, revision, scaling, values
from shoal_operator.kube.resources import Object
from shoal_operator.reconcile import fleetview, observe
from shoal_operator.reconcile.claims import Claim
from shoal_operator.reconcile.fleetview import Figures
from shoal_operator.reconcile.observe import Group
from shoal_operator.reconcile.resolving import Resolved
from shoal_operator.reconcile.routerview import Flow, Said
from shoal_operator.render import meta as render_meta
from shoal_operator.render import router as render_router

HISTORY_LENGTH = 10


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that one reconcile of one ModelService saw and decided."""

    item: Object
    old: api.ModelServiceStatus
    now_s: float
    resolved: Resolved
    router_exists: bool
    claim: Claim | None
    """A name of this service that an older one has."""
    groups: tuple[Group, ...] = ()
    url: str | None = None
    """Of its Router, as that one's status has it."""
    taken: frozenset[tuple[str, int]] = frozenset()
    """Numbers, by revision, of Pods that outlive their StatefulSet."""
    cold_start_s: float = 600.0
    figures: Mapping[str, Figures] | None = None
    replicas: tuple[fleet.Replica, ...] = ()
    routers: tuple[Said, ...] = ()
    flow: Flow | None = None
    current: revision.Revision | None = None
    desired: int = 0
    plan: fleet.Plan | None = None
    decision: scaling.Decision | None = None
    changes: tuple[scaling.Change, ...] = ()
    """Changes of the count since this process leads, newest first."""

    @property
    def accepted(self) -> bool:
        return self.resolved.accepted and self.router_exists and self.claim is None

    @property
    def service(self) -> values.Service | None:
        return self.resolved.service

    @property
    def serving(self) -> tuple[fleet.Replica, ...]:
        return tuple(one for one in self.replicas if one.serving)


def status_of(seen: Seen) -> api.ModelServiceStatus:
    """The new status without its conditions."""
    meta = seen.item["metadata"]
    router = str((seen.item.get("spec") or {}).get("router") or "default")
    return api.ModelServiceStatus(
        url=(seen.url or render_router.url(router, meta["namespace"])) if seen.router_exists else None,
        current_revision=seen.current.short if seen.current is not None else seen.old.current_revision,
        serving_revision=_serving_revision(seen),
        render_version=seen.current.render_version if seen.current is not None else seen.old.render_version,
        replicas=_counts(seen),
        selector=render_meta.service_selector(meta["name"]),
        replica_details=tuple(_detail(seen, group) for group in sorted(seen.groups, key=lambda one: one.name)),
        scaling=_scaling(seen),
        rollout=_rollout(seen),
        capacity=_capacity(seen),
        performance=_performance(seen),
    )


def unchanged(old: api.ModelServiceStatus, new: api.ModelServiceStatus) -> bool:
    """Whether only figures differ that are refreshed at their own pace."""
    return _without_figures(old) == _without_figures(new)


def phase_text(replica: fleet.Replica) -> str:
    """The phase as status and metrics name it."""
    if replica.draining or replica.deleting:
        return "Draining"
    return "Failed" if replica.failing else replica.phase.value


def duration(seconds: float) -> str:
    """As users write durations: milliseconds under ten seconds, whole seconds above."""
    return f"{round(seconds * 1000)}ms" if seconds < 10 else f"{round(seconds)}s"


def _without_figures(status: api.ModelServiceStatus) -> api.ModelServiceStatus:
    details = tuple(
        one.model_copy(update={"sessions": None, "in_flight_tokens": None, "draining": None})
        for one in status.replica_details
    )
    # Why the count stays may change with every answer; a change of the count itself is in `desired` and the history.
    scaled = status.scaling.model_copy(update={"inputs": {}, "reason": ""}) if status.scaling is not None else None
    return status.model_copy(
        update={"replica_details": details, "scaling": scaled, "performance": None, "capacity": None}
    )


def _serving_revision(seen: Seen) -> str | None:
    """What most serving replicas run; what served last, while none does."""
    counts: dict[str, int] = {}
    for one in seen.serving:
        counts[one.revision] = counts.get(one.revision, 0) + 1
    if not counts:
        return seen.old.serving_revision
    current = seen.current.short if seen.current is not None else ""
    return max(counts, key=lambda name: (counts[name], name != current, name))


def _counts(seen: Seen) -> api.ReplicaCounts:
    ready = len(seen.serving)
    draining = sum(one.draining or one.deleting for one in seen.replicas)
    return api.ReplicaCounts(
        desired=seen.desired,
        ready=ready,
        pending=len(seen.replicas) - ready - draining,
        draining=draining,
        summary=f"{ready}/{seen.desired}",
    )


def _detail(seen: Seen, group: Group) -> api.ReplicaDetail:
    replica = next(one for one in seen.replicas if one.name == group.name)
    figures = (seen.figures or {}).get(group.name)
    draining = None
    if replica.draining and figures is not None and figures.in_flight_requests is not None:
        oldest = duration(figures.oldest_stream_s) if figures.in_flight_requests else None
        draining = api.DrainDetail(streams=figures.in_flight_requests, oldest=oldest)
    return api.ReplicaDetail.model_validate(
        {
            "name": group.name,
            "revision": group.revision,
            "gpu": group.gpu,
            "node": group.pod.node if group.pod is not None else None,
            "phase": phase_text(replica),
            "sessions": figures.sessions if figures is not None else None,
            "in_flight_tokens": figures.in_flight_tokens if figures is not None else None,
            "draining": draining,
        }
    )


def _scaling(seen: Seen) -> api.ScalingStatus | None:
    decision = seen.decision
    if decision is None:
        scaled = seen.service is not None and seen.service.scaling is not None
        return seen.old.scaling if scaled or not seen.accepted else None
    history = seen.old.scaling.history if seen.old.scaling is not None else ()
    return api.ScalingStatus(
        desired=decision.desired,
        reason=decision.reason.value,
        inputs=dict(decision.figures),
        history=(*unreported(seen), *history)[:HISTORY_LENGTH],
    )


def unreported(seen: Seen) -> tuple[api.ScalingDecision, ...]:
    """Changes of the count that the stored status does not have, newest first: usually the last one. Also those whose
    reconcile failed before it could say so."""
    stored = seen.old.scaling.history if seen.old.scaling is not None else ()
    known = {(one.time, one.from_, one.to) for one in stored}
    made = [
        api.ScalingDecision.model_validate(
            {
                "time": observe.rfc3339(change.at_s),
                "from": change.before,
                "to": change.after,
                "reason": change.reason.value,
                "inputs": dict(change.figures),
            }
        )
        for change in seen.changes
    ]
    return tuple(one for one in made if (one.time, one.from_, one.to) not in known)


def _rollout(seen: Seen) -> api.RolloutStatus | None:
    failure = last_failure(seen)
    hold = None
    step = ""
    if seen.plan is not None:
        step = describe(seen.plan.steps)
        if seen.plan.hold is not None:
            before = seen.old.rollout.hold if seen.old.rollout is not None else None
            same = before is not None and before.gate == seen.plan.hold.gate
            hold = api.RolloutHold(
                gate=seen.plan.hold.gate,
                reason=seen.plan.hold.message[:1024],
                since=before.since if same and before is not None else observe.rfc3339(seen.now_s),
            )
    if hold is None and failure is None and not step:
        return None
    return api.RolloutStatus(step=step, hold=hold, last_failure=failure)


def describe(steps: Sequence[fleet.Step]) -> str:
    """What happens now, in a line."""
    said = []
    for step in steps:
        match step:
            case fleet.Create():
                said.append(f"create {step.revision}-{step.number} on {step.gpu}")
            case fleet.StartDrain():
                said.append(f"drain {step.name}")
            case fleet.CancelDrain():
                said.append(f"keep {step.name}")
            case fleet.Delete():
                said.append(f"delete {step.name}")
    text = "; ".join(said)
    return text if len(text) <= 256 else f"{text[:253]}..."


def last_failure(seen: Seen) -> api.LastFailure | None:
    """The newest end of an engine that was not a success; kept when its Pod is gone."""
    newest = seen.old.rollout.last_failure if seen.old.rollout is not None else None
    phases = {one.name: one.phase for one in seen.old.replica_details}
    for group in seen.groups:
        end = group.pod.last_end if group.pod is not None else None
        if end is None or end.exit_code == 0 or not end.at:
            continue
        if newest is None or (observe.time_s(end.at) or 0.0) > (observe.time_s(newest.time) or 0.0):
            newest = api.LastFailure(
                replica=group.name,
                phase=phases.get(group.name, "Starting"),
                reason=end.reason[:128],
                exit_code=end.exit_code,
                message=end.message[-2048:],
                time=end.at,
            )
    return newest


def _capacity(seen: Seen) -> api.CapacityStatus | None:
    """What running engines report, else what the fit check reckons for the preferred hardware."""
    fit = next((one for one in seen.resolved.findings.fits if one is not None), None)
    measured = measured_kv_tokens(seen)
    if fit is None and measured is None:
        return None
    kv_tokens = measured if measured is not None else fit.kv_tokens if fit is not None else None
    context = seen.service.context_tokens if seen.service is not None else None
    context = context or (fit.context_tokens if fit is not None else None)
    return api.CapacityStatus(
        gpu=fit.gpu if fit is not None else None,
        weights_per_gpu=f"{fit.weight_bytes >> 20}Mi" if fit is not None else None,
        kv_tokens=kv_tokens,
        max_sessions=kv_tokens // context if kv_tokens is not None and context else None,
        source="Measured" if measured is not None else "Estimated",
    )


def measured_kv_tokens(seen: Seen) -> int | None:
    """The smallest KV cache of a serving replica of the current revision."""
    name = seen.item["metadata"]["name"]
    wanted = {one.name for one in seen.serving if seen.current is None or one.revision == seen.current.short}
    found = [
        state.kv_tokens_max
        for router in fleetview.answering(seen.routers)
        if (figures := router.service(name)) is not None
        for state in figures.replicas
        if state.name in wanted and state.kv_tokens_max is not None
    ]
    return min(found) if found else None


def _performance(seen: Seen) -> api.PerformanceStatus | None:
    name = seen.item["metadata"]["name"]
    states = [state for one in fleetview.answering(seen.routers) if (state := one.service(name)) is not None]
    ttft = [state.ttft for state in states if state.ttft.samples > 0]
    itl = [state.itl for state in states if state.itl.samples > 0 and state.itl.p50_s]
    flow = seen.flow
    if not ttft and (flow is None or flow.prompt_tokens + flow.output_tokens == 0):
        return None
    samples = sum(one.samples for one in ttft)
    p50 = sum((one.p50_s or 0.0) * one.samples for one in ttft) / samples if samples else None
    p99 = max((one.p99_s for one in ttft if one.p99_s is not None), default=None)
    step_s = sum((one.p50_s or 0.0) * one.samples for one in itl) / sum(one.samples for one in itl) if itl else None
    cached = flow.cached_tokens / flow.prompt_tokens if flow is not None and flow.prompt_tokens else None
    return api.PerformanceStatus.model_validate(
        {
            "ttft": None if p50 is None else {"p50": duration(p50), "p99": duration(p99) if p99 is not None else None},
            "cache_hit": round(min(1.0, cached), 4) if cached is not None else None,
            "tokens_per_second_per_user": round(1 / step_s, 1) if step_s else None,
            "tokens_per_gpu_per_minute": _per_gpu(seen, flow),
        }
    )


def _per_gpu(seen: Seen, flow: Flow | None) -> float | None:
    if flow is None or seen.service is None:
        return None
    sizes = {profile.gpu: profile.gpus for profile in seen.service.profiles}
    gpus = sum(sizes.get(one.gpu, 0) for one in seen.serving)
    tokens = flow.prompt_tokens + flow.output_tokens
    return round(tokens / flow.seconds * 60 / gpus, 1) if gpus else None
