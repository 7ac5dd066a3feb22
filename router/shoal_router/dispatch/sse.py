"""Reads what the router must know from a relayed event stream, and takes one event out when asked to.

The relay forwards bytes as they come; this scanner looks at them on the way: is the first event an error, how many
events (token progress), did `[DONE]` arrive, what does `usage` say. With `strip_usage` it also removes the usage
event that the router itself asked for, so that the client sees what it asked for and nothing else.
Its results do not depend on how the bytes were cut into reads (property test). Used by dispatch.exchange only.
"""

from typing import Final

import orjson

DONE: Final = b"data: [DONE]"
_END: Final = b"\n\n"
_PROMPT_TOKENS: Final = b'"prompt_tokens"'
"""Looked for with `find` in every chunk: `in` first tries to take a pattern for a number, and makes an exception."""
_HELD_MAX: Final = 16384
"""Longest unfinished event that is held back until it is whole; one with usage only is a few hundred bytes."""
_CARRY_MAX: Final = 1 << 20
_CARRY_KEPT: Final = 1 << 16
"""Of an unfinished event longer than the first, only this much of its end is kept: memory stays bounded, and the
token counts stand at the end."""
_SPACE: Final = (9, 10, 13, 32)
_COLON: Final = 58
_ZERO: Final = 48
_NINE: Final = 57


class Usage:
    """Token counts of one response; None where the engine did not say."""

    __slots__ = ("cached_tokens", "completion_tokens", "prompt_tokens")

    def __init__(self, prompt_tokens: int | None, completion_tokens: int | None, cached_tokens: int | None) -> None:
        self.prompt_tokens = prompt_tokens
        self.completion_tokens = completion_tokens
        self.cached_tokens = cached_tokens


def last_usage(data: bytes) -> Usage | None:
    """Usage from the tail of a response body (JSON or one event). Quotes in generated text are escaped, so the keys
    cannot be forged by it. The `n` results of one request share a prompt: the last count is the one that stands."""
    at = data.rfind(b'"prompt_tokens"')
    if at < 0:
        return None
    start = data.rfind(b'"usage"', 0, at)
    if start < 0:
        start = max(data.rfind(b'"meta_info"', 0, at), 0)
    return Usage(
        _number(data, b'"prompt_tokens"', at),
        _number(data, b'"completion_tokens"', start),
        _number(data, b'"cached_tokens"', start),
    )


def _number(data: bytes, key: bytes, start: int) -> int | None:
    """The integer behind the first such key from `start` on that has one."""
    size = len(data)
    at = data.find(key, start)
    while at >= 0:
        at = _past_space(data, at + len(key))
        if at < size and data[at] == _COLON:
            first = at = _past_space(data, at + 1)
            value = 0
            while at < size and _ZERO <= data[at] <= _NINE:
                value = 10 * value + data[at] - _ZERO
                at += 1
            if at > first:
                return value
        at = data.find(key, at)
    return None


def _past_space(data: bytes, at: int) -> int:
    while at < len(data) and data[at] in _SPACE:
        at += 1
    return at


def event_payload(event: bytes) -> bytes:
    """The data of one event; empty where it has none (a comment)."""
    lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines)


def event_error_code(event: bytes) -> int | None:
    """Status of an event that reports a failure instead of output, None for every other event.

    The forms an engine uses: `{"error": {..., "code": 503}}`, and on /generate `meta_info.finish_reason` of type
    `abort` with a `status_code`.
    """
    if event.find(b'"error"') < 0 and event.find(b'"status_code"') < 0:
        return None
    try:
        value = orjson.loads(event_payload(event))
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    if error is not None:
        code = error.get("code") if isinstance(error, dict) else None
        return code if isinstance(code, int) and not isinstance(code, bool) else 500
    meta = value.get("meta_info")
    reason = meta.get("finish_reason") if isinstance(meta, dict) else None
    if isinstance(reason, dict) and reason.get("type") == "abort":
        code = reason.get("status_code")
        return code if isinstance(code, int) else None
    return None


def _usage_only(event: bytes) -> bool:
    """True for the event that exists because of `include_usage`: no choices, a usage object, nothing else to tell."""
    try:
        value = orjson.loads(event_payload(event))
    except orjson.JSONDecodeError:
        return False
    return (
        isinstance(value, dict)
        and value.get("choices") == []
        and isinstance(value.get("usage"), dict)
        and "sglext" not in value
        and "error" not in value
    )


class Scanner:
    """State of one response's event stream.

    Only whole events go on to the client, so that an error event can follow them should the stream break. An event
    too long to hold is let through as it comes.
    """

    __slots__ = (
        "_carry",
        "_released",
        "_strip_usage",
        "_usage_block",
        "done",
        "error_code",
        "error_event",
        "events",
        "first_event",
    )

    def __init__(self, strip_usage: bool) -> None:
        self._strip_usage = strip_usage
        """The usage event is one that only the router asked for."""
        self._carry = b""
        """Start of an event that has not ended yet."""
        self._released = 0
        """So many of its bytes the client has already got."""
        self._usage_block = b""
        self.events = 0
        """Events with data so far, `[DONE]` included."""
        self.first_event = False
        """The first event is complete."""
        self.error_code: int | None = None
        """Status in the first event where that is an error, and the event."""
        self.error_event = b""
        self.done = False

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes; return those that the client is to get now."""
        carry = self._carry
        if not carry and data.endswith(_END):
            self._look(data)
            return without_usage(data) if self._strip_usage and data.find(_PROMPT_TOKENS) >= 0 else data
        return self._feed_split(carry + data if carry else data)

    def _feed_split(self, whole: bytes) -> bytes:
        released = self._released
        end = len(whole) if whole.endswith(_END) else whole.rfind(_END) + 2
        out = b""
        if end >= 2:
            complete = whole[:end]
            self._look(complete)
            if self._strip_usage and complete.find(_PROMPT_TOKENS) >= 0:
                complete = without_usage(complete)
            out = complete[released:]
            whole = whole[end:]
            released = 0
        if len(whole) > _HELD_MAX:
            out += whole[released:]
            whole = whole if len(whole) <= _CARRY_MAX else whole[-_CARRY_KEPT:]
            released = len(whole)
        self._carry = whole
        self._released = released
        return out

    def flush(self) -> bytes:
        """Bytes still held when the body has ended."""
        held = self._carry[self._released :]
        self._released = len(self._carry)
        return held

    @property
    def mid_event(self) -> bool:
        """The client has got the start of an event and not its end."""
        return self._released > 0

    def usage(self) -> Usage | None:
        return last_usage(self._usage_block)

    def _look(self, complete: bytes) -> None:
        """`complete` starts and ends at event boundaries."""
        events = complete.count(b"\ndata:") + complete.startswith(b"data:")
        if not events:
            return
        if not self.first_event:
            self.first_event = True
            first = next(event for event in complete.split(_END) if b"data:" in event)
            self.error_code = event_error_code(first)
            if self.error_code is not None:
                self.error_event = first
        self.events += events
        if complete.find(_PROMPT_TOKENS) >= 0:
            self._usage_block = complete
        if (
            not self.done
            and complete.find(b"[DONE]") >= 0
            and (complete.startswith(DONE) or complete.find(b"\n" + DONE) >= 0)
        ):
            self.done = True


def without_usage(complete: bytes) -> bytes:
    """Whole events without those that exist because of `include_usage`."""
    kept: list[bytes] = []
    for event in complete.split(_END)[:-1]:
        # An event that was let through because of its length keeps its place: it is never taken for a usage event.
        if len(event) <= _HELD_MAX and _usage_only(event):
            kept.append(event[: len(event) - len(event.lstrip(b"\n"))])  # blank lines before it are not its own
        else:
            kept.append(event + _END)
    return b"".join(kept)
