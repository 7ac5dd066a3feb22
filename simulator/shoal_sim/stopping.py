"""When a request's generation ends, but for its natural end, which the model decides."""

from collections.abc import Iterable

from shoal_sim.request import Finish, Request
from shoal_sim.tokens import TOKEN_BYTES, token_id


def end_reached(request: Request) -> Finish | None:
    """Looks at the newest token. A stop token or string is cut off the output."""
    limits, output = request.limits, request.output
    if limits.stop_ids or limits.stop:
        matched = _stopped(output, limits.stop, limits.stop_ids)
        if matched is not None:
            return Finish("stop", matched=matched)
    return Finish("length") if len(output) >= request.token_budget else None


def _stopped(output: list[str], stop: Iterable[str], stop_ids: frozenset[int]) -> str | int | None:
    last = token_id(output[-1])
    if last in stop_ids:
        output[-1] = ""
        return last
    for text in stop:
        # A stop string ends within the last token, so only that many tokens can hold it.
        reach = len(text) // TOKEN_BYTES + 2
        tail = "".join(output[-reach:])
        at = tail.find(text)
        if at >= 0:
            kept, count = tail[:at], min(reach, len(output))
            output[-count:] = [kept[i * TOKEN_BYTES : (i + 1) * TOKEN_BYTES] for i in range(count)]
            return text
    return None
