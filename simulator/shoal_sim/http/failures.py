"""How a request that the engine itself ended (queue full, out of memory) is told to its caller."""

import orjson

from shoal_sim.http import errors
from shoal_sim.request import Finish, Request


def raise_if_failed(requests: list[Request]) -> None:
    """Not a stream: the HTTP status says it, with the status as the type."""
    for request in requests:
        finish = request.finish
        if finish is not None and finish.status is not None:
            raise errors.flat(finish.message or "", str(finish.status), finish.status)


def event(finish: Finish) -> bytes:
    """A stream of an OpenAI route: its first event. Only here the engine writes JSON with spaces."""
    kind = "SERVICE_UNAVAILABLE" if finish.status == 503 else "INTERNAL_SERVER_ERROR"
    message = orjson.dumps(finish.message).decode()
    return (
        f'data: {{"error": {{"object": "error", "message": {message}, "type": "{kind}", '
        f'"param": null, "code": {finish.status}}}}}\n\n'
    ).encode()
