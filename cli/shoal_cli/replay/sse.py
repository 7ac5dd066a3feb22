"""Incremental parser of server-sent events: bytes in, events out, whatever the chunk borders are.

Keeps what a chat stream needs (event name, data), with a bound on one event's size. Called by `client`.
"""

from dataclasses import dataclass

EVENT_BYTES_MAX = 4 << 20
DONE = b"[DONE]"


class SseError(ValueError):
    """The stream is not server-sent events, or one event is too long."""


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    data: bytes


class Parser:
    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[bytes] = []
        self._size = 0

    @property
    def pending(self) -> bool:
        """Whether bytes or fields of an event wait that the stream did not finish."""
        return bool(self._rest or self._data)

    def feed(self, chunk: bytes) -> list[Event]:
        events: list[Event] = []
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            event = self._line(line[:-1] if line.endswith(b"\r") else line)
            if event is not None:
                events.append(event)
        if self._size + len(self._rest) > EVENT_BYTES_MAX:
            raise SseError(f"an event of more than {EVENT_BYTES_MAX} bytes")
        return events

    def _line(self, line: bytes) -> Event | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"data":
            self._data.append(value)
            self._size += len(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        return None

    def _dispatch(self) -> Event | None:
        # An event without data is not dispatched (HTML standard, section 9.2.6): comments keep a connection alive so.
        event = Event(self._name, b"\n".join(self._data)) if self._data else None
        self._name = ""
        self._data = []
        self._size = 0
        return event
