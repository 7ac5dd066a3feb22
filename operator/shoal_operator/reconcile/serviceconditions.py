"""A ModelService's conditions, from what one reconcile saw. Pure: ordered checks, the first that applies wins."""

from shoal_api.conditions import ConditionType, Reason
from shoal_operator.domain import fleet, rollout, scaling
from shoal_operator.reconcile import fleetview, servicestatus
from shoal_operator.reconcile.conditions import Finding
from shoal_operator.reconcile.servicestatus import Seen

_WAITING = frozenset({rollout.Gate.WAITING_FOR_READY, rollout.Gate.WAITING_FOR_ROUTERS, rollout.Gate.WAITING_FOR_DRAIN})
"""Gates that time opens; the others want a person or a free GPU."""


def findings_of(seen: Seen) -> list[Finding]:
    return [_accepted(seen), _ready(seen), _progressing(seen), _degraded(seen), _scaling_active(seen)]


def _accepted(seen: Seen) -> Finding:
    refusals = seen.resolved.findings.refusals
    if refusals:
        message = "; ".join(problem.message for problem in refusals)
        return Finding(ConditionType.ACCEPTED, "False", Reason(refusals[0].reason), message)
    if not seen.router_exists:
        name = (seen.item.get("spec") or {}).get("router") or "default"
        message = f"no Router {name!r} in this namespace; create it, or name another in spec.router"
        return Finding(ConditionType.ACCEPTED, "False", Reason.ROUTER_MISSING, message)
    if seen.claim is not None:
        message = f"{seen.claim.name!r} is served by ModelService {seen.claim.holder}; choose another name"
        return Finding(ConditionType.ACCEPTED, "False", Reason.NAME_CONFLICT, message)
    return Finding(ConditionType.ACCEPTED, "True", Reason.ACCEPTED)


def _ready(seen: Seen) -> Finding:
    if not seen.accepted:
        refused = _accepted(seen)
        return Finding(ConditionType.READY, "False", refused.reason, refused.message)
    serving = [one for one in seen.serving if seen.current is not None and one.revision == seen.current.short]
    if len(serving) >= seen.desired:
        if seen.desired == 0:
            return Finding(ConditionType.READY, "True", Reason.SCALED_TO_ZERO, "no replica is wanted")
        message = f"{len(serving)} of {seen.desired} replicas serve {seen.current.short if seen.current else ''}"
        return Finding(ConditionType.READY, "True", Reason.AVAILABLE, message)
    reason, message = _in_the_way(seen)
    return Finding(ConditionType.READY, "False", reason, message)


def _in_the_way(seen: Seen) -> tuple[Reason, str]:
    """The first thing that keeps the wanted replicas from serving."""
    failing = next((one for one in seen.replicas if one.failing), None)
    if failing is not None:
        return Reason.REPLICA_FAILED, f"{failing.name}: {failing.failing}"
    for group in seen.groups:
        if group.pod is not None and group.pod.unschedulable is not None:
            return Reason.UNSCHEDULABLE, f"{group.name}: {group.pod.unschedulable}"
    hold = seen.plan.hold if seen.plan is not None else None
    if hold is not None and hold.gate not in _WAITING:
        return Reason(hold.gate), hold.message
    old = [one for one in seen.replicas if seen.current is not None and one.revision != seen.current.short]
    if old:
        return Reason.ROLLING_OUT, f"{len(seen.serving)} replicas serve, {len(old)} of them an older revision"
    lost = [one.name for one in seen.replicas if one.phase is fleet.Phase.NOT_READY]
    if lost:
        return Reason.REPLICAS_UNAVAILABLE, f"not ready any more: {', '.join(lost)}"
    if hold is not None:
        return Reason(hold.gate), hold.message
    return Reason.STARTING, f"{len(seen.serving)} of {seen.desired} replicas serve"


def _progressing(seen: Seen) -> Finding:
    if not seen.accepted:
        message = "the spec is not accepted; what runs goes on"
        return Finding(ConditionType.PROGRESSING, "False", Reason.NOT_ACCEPTED, message)
    plan = seen.plan
    if plan is None or plan.complete:
        return Finding(ConditionType.PROGRESSING, "False", Reason.AVAILABLE, good="False")
    if plan.hold is not None and plan.hold.gate not in _WAITING:
        return Finding(ConditionType.PROGRESSING, "False", Reason(plan.hold.gate), plan.hold.message)
    message = plan.hold.message if plan.hold is not None and not plan.steps else servicestatus.describe(plan.steps)
    return Finding(ConditionType.PROGRESSING, "True", _movement(seen, plan), message)


def _movement(seen: Seen, plan: fleet.Plan) -> Reason:
    if seen.current is not None and any(one.revision != seen.current.short for one in seen.replicas):
        return Reason.ROLLING_OUT
    if any(isinstance(step, fleet.Create | fleet.CancelDrain) for step in plan.steps) and seen.serving:
        return Reason.SCALING_UP
    begun = any(isinstance(step, fleet.StartDrain | fleet.Delete) and step.reason == "ScaleDown" for step in plan.steps)
    if begun or any(one.draining or one.deleting for one in seen.replicas):
        return Reason.SCALING_DOWN
    if plan.hold is not None:
        return Reason(plan.hold.gate)
    return Reason.STARTING


def _degraded(seen: Seen) -> Finding:
    drift = _drift(seen)
    if drift is not None:
        return Finding(ConditionType.DEGRADED, "True", Reason.ENGINE_DRIFT, drift, good="False")
    warnings = seen.resolved.findings.warnings
    if warnings:
        message = "; ".join(problem.message for problem in warnings)
        return Finding(ConditionType.DEGRADED, "True", Reason(warnings[0].reason), message, good="False")
    return Finding(ConditionType.DEGRADED, "False", Reason.AS_EXPECTED, good="False")


def _drift(seen: Seen) -> str | None:
    """A running engine that admits fewer requests than it was told to."""
    service = seen.service
    if service is None or seen.current is None:
        return None
    current = {one.name for one in seen.serving if one.revision == seen.current.short}
    for router in fleetview.answering(seen.routers):
        state = router.service(service.name)
        for replica in state.replicas if state is not None else ():
            told = replica.running_max
            if replica.name in current and told is not None and told < service.running_max:
                return (
                    f"{replica.name} runs with max-running-requests {told}, not {service.running_max}: "
                    "its KV cache is too small for more, or the engine lowered it"
                )
    return None


def _scaling_active(seen: Seen) -> Finding:
    if seen.service is not None and seen.service.scaling is None:
        return Finding(ConditionType.SCALING_ACTIVE, "False", Reason.SCALING_DISABLED, good="False")
    decision = seen.decision
    if decision is None:
        return Finding(ConditionType.SCALING_ACTIVE, "False", Reason.METRICS_MISSING, "no router was heard yet")
    answering = len(fleetview.answering(seen.routers))
    if answering == 0:
        return Finding(ConditionType.SCALING_ACTIVE, "False", Reason.METRICS_MISSING, "no router answers")
    if answering < len(seen.routers) or decision.reason is scaling.Reason.METRICS_PARTIAL:
        message = f"{answering} of {len(seen.routers)} routers answer: no scale-down"
        return Finding(ConditionType.SCALING_ACTIVE, "False", Reason.METRICS_PARTIAL, message)
    if decision.limited_by_max:
        return Finding(ConditionType.SCALING_ACTIVE, "True", Reason.LIMITED_BY_MAX, "more replicas would be needed")
    return Finding(ConditionType.SCALING_ACTIVE, "True", Reason.SCALING)
