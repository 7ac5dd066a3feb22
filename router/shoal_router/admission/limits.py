"""May a request wait, how long, and when should a refused one come back? Pure decisions over the queue's bounds."""

import math

from shoal_api import routes
from shoal_router import model
from shoal_router.admission import queue as queues

RETRY_AFTER_S_MIN = 1.0
RETRY_AFTER_S_MAX = 120.0
_RETRY_AFTER_UNKNOWN_S = 5.0


def refusal(waiting: queues.Queue, bounds: routes.Queue, request: model.Request) -> model.Outcome | None:
    """Why a request may not wait, or None.

    A tenant that alone fills its share of a queue which others wait in too is told so (429); otherwise there is no
    capacity (503).
    """
    full = len(waiting) >= bounds.requests_max or waiting.bytes + request.body_bytes > bounds.bytes_max
    if not full:
        return None
    mine = waiting.of_tenant(request.tenant)
    if waiting.tenants > 1 and mine and mine > len(waiting) / waiting.tenants:
        return model.Outcome.TENANT_LIMIT
    return model.Outcome.QUEUE_FULL


def expires_at(bounds: routes.Queue, request: model.Request, arrived_at: float, now: float, replicas: bool) -> float:
    """When a waiting request is given up: the queue's limit, or the client's own if that is sooner.

    While no replica is routable the longer limit of the waiting room holds, long enough for a cold start.
    """
    ttl_s = bounds.ttl_s if replicas else bounds.no_replica_ttl_s
    latest = now + ttl_s
    if request.timeout_s is not None:
        latest = min(latest, arrived_at + request.timeout_s)
    return latest


def retry_after_s(waiting: int, drained_per_s: float | None) -> float:
    """Seconds until the queue, at the measured rate, has room for one more; whole seconds, 1 to 120."""
    if not drained_per_s or drained_per_s <= 0.0:
        return _RETRY_AFTER_UNKNOWN_S
    seconds = math.ceil((waiting + 1) / drained_per_s)
    return min(RETRY_AFTER_S_MAX, max(RETRY_AFTER_S_MIN, float(seconds)))
