"""What clients are told when no engine answers them. Constant texts, with nothing of request or engine in them."""

from typing import Final

from shoal_router import model
from shoal_router.errors import OVERLOADED, SERVER_ERROR, ApiError
from shoal_router.upstream.connection import Failure

BROKEN: Final = {
    Failure.CONNECT: "The engine could not be reached.",
    Failure.STALE: "The engine closed the connection.",
    Failure.RESET: "The engine closed the connection before it answered.",
    Failure.TRUNCATED: "The engine's answer was cut off.",
    Failure.MALFORMED: "The engine's answer was malformed.",
}
LOST: Final = {
    model.Outcome.REPLICA_FAILED: "The engine that served this request is gone.",
    model.Outcome.REPLICA_STALLED: "The engine that served this request stopped answering.",
}
_REJECTIONS: Final = {
    model.Outcome.QUEUE_FULL: "The waiting queue of this model is full.",
    model.Outcome.TENANT_LIMIT: "Your share of this model's waiting queue is full.",
    model.Outcome.EXPIRED: "No engine had room for this request in time.",
    model.Outcome.NO_REPLICA: "No engine is available for this model.",
    model.Outcome.DRAINING: "This router is shutting down.",
}


def rejection(outcome: model.Outcome, retry_after_s: float) -> ApiError:
    status = outcome.http_status
    message = _REJECTIONS.get(outcome, "The engine failed to answer this request.")
    kind = OVERLOADED if status in (429, 503) else SERVER_ERROR
    return ApiError(status, message, outcome.value, type=kind, code=outcome.value, retry_after_s=retry_after_s)
