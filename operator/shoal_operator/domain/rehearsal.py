"""Plays a rollout forward in a world where everything goes well: what `shoal plan` prints. Pure.

The planner is stateless, so its future steps are found by carrying out each plan on a copy of the fleet and asking
again: a created replica serves at the next round, a draining one is empty at the next round.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from shoal_operator.domain import fleet, naming, rollout

ROUNDS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Round:
    """One plan and the fleet that it was made for."""

    world: fleet.Fleet
    plan: fleet.Plan


def rehearse(service: str, world: fleet.Fleet, rounds_max: int = ROUNDS_MAX) -> Iterator[Round]:
    """Rounds until the fleet is complete, or held by something that time alone does not cure."""
    for _ in range(rounds_max):
        plan = rollout.plan_steps(world)
        yield Round(world, plan)
        moved = advance(service, world, plan)
        if moved == world:
            return
        world = moved


def advance(service: str, world: fleet.Fleet, plan: fleet.Plan) -> fleet.Fleet:
    """The fleet after the plan's steps, when what was starting serves and what drained is empty."""
    replicas = {one.name: _settle(one) for one in world.replicas}
    room = dict(world.room)
    for step in plan.steps:
        if isinstance(step, fleet.Create):
            name = naming.replica_name(service, step.revision, step.number)
            replicas[name] = fleet.Replica(name, step.number, step.revision, step.gpu)
            _take(room, step.gpu, 1)
        elif isinstance(step, fleet.Delete):
            _take(room, replicas.pop(step.name).gpu, -1)
        else:
            since = 0.0 if isinstance(step, fleet.StartDrain) else None
            replicas[step.name] = replace(replicas[step.name], draining_for_s=since, drain_acked=False)
    return replace(world, replicas=tuple(replicas.values()), room=room)


def _settle(replica: fleet.Replica) -> fleet.Replica:
    if replica.draining:
        return replace(replica, drain_acked=True, in_flight_requests=0)
    if replica.failing:
        return replica
    return replace(replica, phase=fleet.Phase.READY, accepted=True, stalled=False)


def _take(room: dict[str, int | None], gpu: str, count: int) -> None:
    left = room.get(gpu)
    if left is not None:
        room[gpu] = left - count
