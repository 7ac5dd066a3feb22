"""From replica groups and what routers say about them to the planner's replicas. Pure.

Routers decide what the operator believes about traffic: a replica serves when every router that answers routes to it,
and it is empty when every router that exists says so. A router that does not answer makes such things unknown.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shoal_api.state import ReplicaState
from shoal_operator.domain import fleet, scaling
from shoal_operator.reconcile.observe import EnginePod, Group
from shoal_operator.reconcile.routerview import Said

ANSWER_AGE_S_MAX = scaling.REPORT_AGE_S_MAX
STALL_FLOOR_S = 120.0
"""However fast replicas usually start, a shorter time than this is no sign of trouble."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What all routers together say about one replica; None where not all of them answer, or none does."""

    accepted: bool | None
    drain_acked: bool
    in_flight_requests: int | None
    in_flight_tokens: int | None
    in_flight_work_s: float
    sessions: int | None
    oldest_stream_s: float
    unique_hot_tokens: int
    reuse_per_s: float
    prefill_b_s: float


def phase_of(pod: EnginePod | None) -> fleet.Phase:
    if pod is None or pod.node is None:
        return fleet.Phase.PENDING
    if pod.terminating:
        return fleet.Phase.NOT_READY
    if pod.ready:
        return fleet.Phase.READY
    # A container that has been started anew was there before, whether or not it ever served.
    return fleet.Phase.NOT_READY if pod.started or pod.restarts else fleet.Phase.STARTING


def answering(routers: Iterable[Said]) -> tuple[Said, ...]:
    """Routers whose last state is fresh."""
    return tuple(one for one in routers if one.answer is not None and one.age_s <= ANSWER_AGE_S_MAX)


def figures_of(service: str, group: Group, routers: Sequence[Said]) -> Figures:
    fresh = answering(routers)
    complete = len(fresh) == len(routers)
    states = [one.replica(service, group.name) for one in fresh]
    known = [state for state in states if state is not None and _same_pod(state, group)]
    # A router that has just started knows no replica yet: it has no say, else every restart of one would look like an
    # outage of all replicas.
    asked = [state for one, state in zip(fresh, states, strict=True) if _synced(one)]
    routable = all(state is not None and _same_pod(state, group) and state.state == "Routable" for state in asked)
    # A router that does not know the replica at all cannot send to it, once it knows what there is.
    acked = complete and all(
        state.state == "Draining" if state is not None else _synced(one)
        for one, state in zip(fresh, states, strict=True)
    )
    rates = [state.prefill_b_s for state in known if state.prefill_b_s is not None]
    return Figures(
        accepted=routable if asked else None if routers else True,
        drain_acked=acked,
        in_flight_requests=sum(state.in_flight_requests for state in known) if complete else None,
        in_flight_tokens=sum(state.in_flight_tokens for state in known) if fresh else None,
        in_flight_work_s=sum(state.in_flight_work_s for state in known),
        sessions=sum(state.sessions for state in known) if fresh else None,
        oldest_stream_s=max((state.oldest_stream_s for state in known), default=0.0),
        unique_hot_tokens=sum(state.unique_hot_tokens for state in known),
        reuse_per_s=sum(state.reuse_per_s for state in known),
        prefill_b_s=sum(rates) / len(rates) if rates else 0.0,
    )


def _same_pod(state: ReplicaState, group: Group) -> bool:
    """Figures of a Pod that has been replaced since are about nobody."""
    return not state.uid or group.pod is None or state.uid.partition("/")[0] == group.pod.uid


def _synced(router: Said) -> bool:
    return router.answer is not None and router.answer.state is not None and router.answer.state.discovery_synced


def replica_of(
    group: Group, figures: Figures, *, now_s: float, begun_s: float, cold_start_s: float, cost_per_hour: float
) -> fleet.Replica:
    """`begun_s`: when its present start began, which is later than its StatefulSet's where its Pod is a second one."""
    phase = phase_of(group.pod)
    failing = group.pod.failing if group.pod is not None else None
    age_s = max(0.0, now_s - begun_s)
    overdue = scaling.stalled(age_s, max(cold_start_s, STALL_FLOOR_S))
    return fleet.Replica(
        name=group.name,
        number=group.number,
        revision=group.revision,
        gpu=group.gpu,
        phase=phase,
        accepted=figures.accepted,
        failing=failing,
        draining_for_s=None if group.drain_since_s is None else max(0.0, now_s - group.drain_since_s),
        drain_acked=figures.drain_acked,
        in_flight_requests=figures.in_flight_requests,
        deleting=group.deleting,
        leaving=group.pod is not None and group.pod.terminating,
        stalled=overdue and (phase in (fleet.Phase.PENDING, fleet.Phase.STARTING) or failing is not None),
        age_s=age_s,
        in_flight_work_s=figures.in_flight_work_s,
        unique_hot_tokens=figures.unique_hot_tokens,
        reuse_per_s=figures.reuse_per_s,
        prefill_b_s=figures.prefill_b_s,
        cost_per_hour=cost_per_hour,
    )
