"""The rollout planner: from an observed fleet to the next steps. Pure and stateless; the reconciler calls it each time.

One function serves first creation, scaling, replacement and deletion, because they differ only in what is surplus:

    active    = replicas neither draining nor being deleted
    surplus   = active - desired                     (goes by victim order)
    missing   = desired + surge - all live replicas  (surge only while old revisions are active)
    available = replicas that routers have accepted; draining one that may be serving never pushes them below
                desired - max_unavailable, and so never to zero unless max_unavailable >= desired says so

Replacement prefers surge: an old replica is drained when a new one serves in its place. Without room for a surge it
drains first, within max_unavailable, and else holds. Bounds, proven by property tests: it never creates above
desired + max_surge live replicas, it never drains a serving replica when fewer than desired - max_unavailable would be
left, and with a world that goes forward it ends. A revert needs no case of its own: the revision that serves becomes
the target again, so its replicas are current and the others old.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from shoal_api.conditions import Reason
from shoal_operator.domain import fleet, victim


class Gate(StrEnum):
    """Why a plan holds: the subset of condition reasons that a planner can give."""

    NO_SPARE_GPU = Reason.NO_SPARE_GPU
    PAUSED = Reason.PAUSED
    REVISION_FAILING = Reason.REPLICA_FAILED
    WAITING_FOR_READY = Reason.STARTING
    WAITING_FOR_ROUTERS = Reason.ROUTERS_NOT_ACKNOWLEDGED
    WAITING_FOR_DRAIN = Reason.DRAINING
    STARTS_LIMITED = Reason.STARTS_LIMITED
    STARTUP_STALLED = Reason.START_TIMEOUT
    NO_MARGIN = Reason.INVALID_SPEC


@dataclass
class _Draft:
    """A plan under construction: local to one call of `plan_steps`."""

    world: fleet.Fleet
    steps: list[fleet.Step] = field(default_factory=list)
    holds: list[fleet.Hold] = field(default_factory=list)
    room: dict[str, int | None] = field(default_factory=dict)
    active: list[fleet.Replica] = field(default_factory=list)
    draining: list[fleet.Replica] = field(default_factory=list)
    live: int = 0

    @property
    def old(self) -> list[fleet.Replica]:
        return [one for one in self.active if one.revision != self.world.target]

    @property
    def current(self) -> list[fleet.Replica]:
        return [one for one in self.active if one.revision == self.world.target]

    @property
    def available(self) -> int:
        return sum(one.proven for one in self.active)

    @property
    def available_min(self) -> int:
        return max(0, self.world.desired - self.world.limits.max_unavailable)

    def drain(self, replica: fleet.Replica, reason: str) -> None:
        """One that never took a request needs no drain: it is deleted at once, and its GPUs are free sooner."""
        self.active.remove(replica)
        if replica.phase in (fleet.Phase.PENDING, fleet.Phase.STARTING):
            self.steps.append(fleet.Delete(replica.name, reason))
        else:
            self.steps.append(fleet.StartDrain(replica.name, reason))
            self.draining.append(replica)

    def hold(self, gate: Gate, message: str) -> None:
        self.holds.append(fleet.Hold(gate.value, message))


def plan_steps(world: fleet.Fleet) -> fleet.Plan:
    """The next steps. Steps are safe to repeat: planned from the same observation they are the same."""
    draft = _Draft(world, room=dict(world.room))
    draft.live = len(world.replicas)
    staying = [one for one in world.replicas if not one.deleting and not one.leaving]
    draft.active = [one for one in staying if not one.draining]
    draft.draining = [one for one in staying if one.draining]
    _let_go(draft)
    stopped = _stopped(draft)
    _finish_drains(draft)
    _replace_stalled(draft)
    _drain_surplus(draft, stopped)
    if not stopped:
        _replace_old(draft)
    _take_back_drains(draft)
    _create_missing(draft, stopped)
    _explain_waiting(draft)
    complete = not draft.steps and not draft.holds and _settled(world)
    return fleet.Plan(tuple(draft.steps), draft.holds[0] if draft.holds else None, complete)


def _settled(world: fleet.Fleet) -> bool:
    return len(world.replicas) == world.desired and all(
        one.serving and one.revision == world.target for one in world.replicas
    )


def _stopped(draft: _Draft) -> bool:
    """A rollout stops while it is paused or its new revision keeps dying; the old one goes on serving."""
    if not draft.old:
        return False
    failing = next((one for one in draft.current if one.failing), None)
    if failing is not None:
        draft.hold(
            Gate.REVISION_FAILING,
            f"revision {draft.world.target} keeps failing on {failing.name} ({failing.failing}); "
            "the old revision goes on serving: fix the spec, or revert it",
        )
        return True
    if draft.world.limits.paused:
        draft.hold(Gate.PAUSED, "rollout.paused is true; set it to false to go on")
        return True
    return False


def finish_drains(replicas: tuple[fleet.Replica, ...], drain_timeout_s: float) -> tuple[fleet.Step, ...]:
    """Only the ends of drains that are under way: what is done for a spec that is not accepted."""
    world = fleet.Fleet("", 0, replicas, {}, fleet.Limits(drain_timeout_s=drain_timeout_s))
    draft = _Draft(world, draining=[one for one in replicas if one.draining and not one.deleting])
    _finish_drains(draft)
    return tuple(draft.steps)


def _let_go(draft: _Draft) -> None:
    """A Pod that is being evicted finishes by itself, and routers send it nothing more. Its StatefulSet would wait for
    its end before it made another, on a lost node forever: a new replica in its place need not."""
    for replica in draft.world.replicas:
        if replica.leaving and not replica.deleting:
            draft.steps.append(fleet.Delete(replica.name, "PodLeaves"))


def _finish_drains(draft: _Draft) -> None:
    """Delete what has drained: acknowledged by every router and empty, or out of time, or serving nobody."""
    for replica in list(draft.draining):
        emptied = replica.drain_acked and replica.in_flight_requests == 0
        overdue = (replica.draining_for_s or 0.0) >= draft.world.limits.drain_timeout_s
        if emptied or overdue:
            draft.draining.remove(replica)
            draft.steps.append(fleet.Delete(replica.name, "Drained" if emptied else "DrainTimeout"))


def _replace_stalled(draft: _Draft) -> None:
    """One that never started gives way where another GPU type has room; else it stays and is named."""
    for replica in [one for one in draft.active if one.stalled and one.phase is not fleet.Phase.READY]:
        other = next((gpu for gpu in draft.world.room if gpu != replica.gpu and _has_room(draft, gpu)), None)
        if other is None or replica.phase is not fleet.Phase.PENDING:
            why = f"keeps failing ({replica.failing})" if replica.failing else "did not start in time"
            draft.hold(Gate.STARTUP_STALLED, f"{replica.name} {why}; it is not counted as supply")
        else:
            draft.drain(replica, Gate.STARTUP_STALLED.value)


def _drain_surplus(draft: _Draft, stopped: bool) -> None:
    """More active replicas than desired, beyond what a rollout may have in surge."""
    world = draft.world
    surge = min(world.limits.max_surge, len(draft.current)) if draft.old else 0
    excess = max(len(draft.active) - world.desired - surge, len(draft.current) - world.desired if draft.old else 0)
    kept = (
        {one.name for one in draft.current if one.failing} if stopped and len(draft.current) <= world.desired else set()
    )
    for replica in victim.order(tuple(draft.active), world.target, world.cold_start_s):
        if excess <= 0:
            return
        # A failing newcomer stays while it is the reason for the stop: without it the rollout would begin again.
        if replica.name in kept or not _may_drain(draft, replica):
            continue
        draft.drain(replica, "ScaleDown")
        excess -= 1
    if excess > 0:
        draft.hold(
            Gate.WAITING_FOR_ROUTERS,
            f"{excess} more than wanted: none is drained until routers accept {draft.available_min} others",
        )


def _may_drain(draft: _Draft, replica: fleet.Replica) -> bool:
    """Whether enough accepted replicas are left without this one. One that does not serve costs nothing."""
    return not replica.serving or draft.available - replica.proven >= draft.available_min


def _replace_old(draft: _Draft) -> None:
    """Drain old replicas that give nothing, those that newcomers replace, and, without room to surge, some first."""
    world = draft.world
    ordered = [one for one in victim.order(tuple(draft.active), world.target, world.cold_start_s) if one in draft.old]
    for replica in [one for one in ordered if not one.serving]:
        draft.drain(replica, "Outdated")
    serving = [one for one in ordered if one.serving]
    replaced = max(0, draft.available - world.desired)
    for replica in serving[:replaced]:
        draft.drain(replica, "Outdated")
    serving = serving[replaced:]
    if not serving or _surge_possible(draft):
        return
    _drain_first(draft, serving)


def _surge_possible(draft: _Draft) -> bool:
    """Room for one more above desired, by the limits and by GPUs; or newcomers are already on their way."""
    limits = draft.world.limits
    starting = any(not one.serving for one in draft.current)
    return starting or (limits.max_surge > 0 and any(_has_room(draft, gpu) for gpu in draft.room))


def _drain_first(draft: _Draft, serving: list[fleet.Replica]) -> None:
    limits = draft.world.limits
    spare = draft.available - draft.available_min
    if spare > 0:
        for replica in serving[:spare]:
            draft.drain(replica, "DeleteFirst")
        return
    if draft.draining or any(one.deleting for one in draft.world.replicas):
        return
    if limits.max_surge == 0 and limits.max_unavailable == 0:
        draft.hold(Gate.NO_MARGIN, "rollout.maxSurge and rollout.maxUnavailable are both 0; raise one of them")
    elif limits.max_unavailable == 0:
        draft.hold(
            Gate.NO_SPARE_GPU,
            f"no free GPUs to surge on {_gpu_names(draft)} and rollout.maxUnavailable is 0; "
            "free GPUs, or set rollout.maxUnavailable to 1",
        )


def _take_back_drains(draft: _Draft) -> None:
    """Demand came back while replicas of the right revision were draining: keep them, they are warm."""
    for replica in sorted(draft.draining, key=lambda one: (one.in_flight_requests or 0, one.number), reverse=True):
        wanted = len(draft.active) < draft.world.desired
        usable = replica.revision == draft.world.target and replica.phase is fleet.Phase.READY
        if wanted and usable and replica.draining:
            draft.steps.append(fleet.CancelDrain(replica.name, "Wanted"))
            draft.active.append(replica)


def _create_missing(draft: _Draft, stopped: bool) -> None:
    """Fill up to desired, and to desired + max_surge while old replicas wait to be replaced."""
    world = draft.world
    revision = _revision_to_create(draft, stopped)
    surge = world.limits.max_surge if draft.old and not stopped else 0
    wanted = max(0, world.desired - len(draft.active))
    if draft.old and not stopped:
        wanted = max(wanted, min(world.desired - len(draft.current), world.desired + surge - len(draft.active)))
    # Live replicas include draining and terminating ones: they still hold their GPUs.
    wanted = min(wanted, world.desired + world.limits.max_surge - draft.live)
    if wanted <= 0 or revision is None:
        return
    starting = sum(one.phase in (fleet.Phase.PENDING, fleet.Phase.STARTING) for one in draft.active if not one.stalled)
    starts = max(0, world.limits.starts_max - starting)
    if starts < wanted:
        draft.hold(
            Gate.STARTS_LIMITED, f"{starting} replicas are starting; at most {world.limits.starts_max} at a time"
        )
    numbers = _free_numbers(world, revision)
    for _ in range(min(starts, wanted)):
        gpu = next((gpu for gpu in draft.room if _has_room(draft, gpu)), None)
        if gpu is None:
            if len(draft.active) < world.desired:
                draft.hold(Gate.NO_SPARE_GPU, f"no room for another replica on {_gpu_names(draft)}")
            return
        left = draft.room[gpu]
        draft.room[gpu] = None if left is None else left - 1
        draft.steps.append(fleet.Create(revision, next(numbers), gpu))


def _revision_to_create(draft: _Draft, stopped: bool) -> str | None:
    """The target; while its rollout is stopped, the revision that serves, if the caller can still render it."""
    if not stopped:
        return draft.world.target
    counts: dict[str, int] = {}
    for one in (one for one in draft.world.replicas if one.revision != draft.world.target):
        counts[one.revision] = counts.get(one.revision, 0) + (2 if one.serving else 1)
    serving = max(counts, key=lambda revision: (counts[revision], revision))
    return serving if serving in draft.world.creatable else None


def _free_numbers(world: fleet.Fleet, revision: str) -> Iterator[int]:
    """Lowest unused numbers; those of replicas still terminating are in use, their names exist."""
    used = {one.number for one in world.replicas if one.revision == revision}
    used |= {number for its_revision, number in world.taken if its_revision == revision}
    number = 0
    while True:
        if number not in used:
            yield number
        number += 1


def _has_room(draft: _Draft, gpu: str) -> bool:
    left = draft.room[gpu]
    return left is None or left > 0


def _gpu_names(draft: _Draft) -> str:
    return ", ".join(draft.world.room) or "any GPU type"


def _explain_waiting(draft: _Draft) -> None:
    """Nothing to do and not there yet: say what is waited for, so that status never shows an unexplained pause."""
    if draft.steps or draft.holds:
        return
    names = [one.name for one in draft.world.replicas if one.draining or one.deleting]
    if names:
        draft.hold(Gate.WAITING_FOR_DRAIN, f"waiting for {', '.join(names)} to finish requests and go")
        return
    unready = [one for one in draft.active if not one.serving]
    if not unready:
        return
    ready = [one.name for one in unready if one.phase is fleet.Phase.READY]
    if ready:
        draft.hold(Gate.WAITING_FOR_ROUTERS, f"{', '.join(ready)} ready, not yet accepted by every router")
    else:
        names = [f"{one.name} ({one.failing or one.phase.value})" for one in unready]
        draft.hold(Gate.WAITING_FOR_READY, f"waiting for {', '.join(names)}")
