"""Which replica goes first when there is one too many. Pure; the rollout planner and the scaler's status call it.

    score = in_flight_seconds + unique_hot_prefix_tokens * reuse_rate * b + youth + cost

in seconds: work that would be done twice or waited for, prefill that the next `HORIZON_S` of cache hits would have
saved (prefixes that another replica also holds do not count, routers leave them out), cold-start seconds not yet
earned back, and a small bonus for staying where the hour is cheap. The smallest score goes.
"""

from shoal_operator.domain import fleet

HORIZON_S = 60.0
"""How far ahead cache hits are counted. Over this the surviving replicas will have built the prefix again."""
COST_WEIGHT_S = 0.1
"""Seconds of score that one currency unit an hour less is worth: breaks ties between warm equals, no more."""


def score(replica: fleet.Replica, cold_start_s: float, dearest_per_hour: float) -> float:
    """Seconds lost by removing this replica; lower is a better victim."""
    hits = min(1.0, replica.reuse_per_s * HORIZON_S)
    warmth = replica.unique_hot_tokens * hits * replica.prefill_b_s
    youth = max(0.0, cold_start_s - replica.age_s)
    saving = COST_WEIGHT_S * (dearest_per_hour - replica.cost_per_hour)
    return replica.in_flight_work_s + warmth + youth + saving


def _rank(replica: fleet.Replica, target: str) -> int:
    """Groups before scores: what gives least goes first, whatever its score."""
    if replica.failing or replica.phase is fleet.Phase.NOT_READY:
        return 0
    if replica.phase is not fleet.Phase.READY:
        return 1
    if replica.accepted is False:
        return 2
    return 3 if replica.revision != target else 4


def order(replicas: tuple[fleet.Replica, ...], target: str, cold_start_s: float) -> tuple[fleet.Replica, ...]:
    """Victims first: not ready, pending, not accepted, old revisions, then by score; ties by number and name."""
    dearest = max((replica.cost_per_hour for replica in replicas), default=0.0)
    return tuple(
        sorted(replicas, key=lambda one: (_rank(one, target), score(one, cold_start_s, dearest), one.number, one.name))
    )
