"""Small calls to an engine beside the relayed requests: probes, `/server_info`, aborts. Callbacks, no task.

The whole answer is handed to one function; an answer that does not come in time, or not whole, is None.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shoal_router.timers import Wheel
from shoal_router.upstream.connection import Connection, Failure, Headers
from shoal_router.upstream.pool import Pool

ANSWER_BYTES_MAX: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """`failure` is None where the time ran out: the engine took the connection and said nothing."""

    failure: Failure | None


class Call:
    """One request and its answer; calls `on_result` exactly once unless cancelled."""

    __slots__ = (
        "_body",
        "_bytes",
        "_bytes_max",
        "_connection",
        "_on_result",
        "_pool",
        "_request",
        "_retried",
        "_status",
        "_wheel",
        "awaited",
        "deadline_s",
        "timer_slot",
    )

    def __init__(
        self,
        pool: Pool,
        wheel: Wheel,
        request: bytes,
        on_result: Callable[[Answer | NoAnswer], None],
        bytes_max: int = ANSWER_BYTES_MAX,
    ) -> None:
        self._pool = pool
        self._wheel = wheel
        self._request = request
        self._bytes_max = bytes_max
        self._on_result: Callable[[Answer | NoAnswer], None] | None = on_result
        self._connection: Connection | None = None
        self._status = 0
        self._body: list[bytes] = []
        self._bytes = 0
        self._retried = False
        self.deadline_s = math.inf
        self.timer_slot = -1
        self.awaited: object | None = None

    def start(self, deadline_s: float) -> None:
        self._wheel.arm(self, deadline_s)
        self._pool.acquire(self)

    def cancel(self) -> None:
        self._on_result = None
        self._drop()

    def _drop(self) -> None:
        self.awaited = None
        self._wheel.disarm(self)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    def _finish(self, result: Answer | NoAnswer) -> None:
        self._wheel.disarm(self)
        self._connection = None
        on_result, self._on_result = self._on_result, None
        if on_result is not None:
            on_result(result)

    def on_connection(self, connection: Connection) -> None:
        self._connection = connection
        connection.send(self, [self._request])

    def on_head(self, status: int, headers: Headers) -> None:
        self._status = status

    def on_body(self, data: bytes) -> None:
        self._bytes += len(data)
        if self._bytes > self._bytes_max:
            self._drop()
            self._finish(NoAnswer(Failure.MALFORMED))
            return
        self._body.append(data)

    def on_end(self) -> None:
        self._finish(Answer(self._status, b"".join(self._body)))

    def on_failed(self, failure: Failure) -> None:
        self._connection = None
        if failure is Failure.STALE and not self._retried:
            self._retried = True
            self._pool.acquire(self, fresh=True)
            return
        self._finish(NoAnswer(failure))

    def on_deadline(self, now_s: float) -> None:
        self._drop()
        self._finish(NoAnswer(None))


def get_request(path: str, host: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: {host}\r\naccept: application/json\r\n\r\n".encode()


def post_request(path: str, host: str, body: bytes, headers: Headers | None = None) -> bytes:
    """`headers` are further ones."""
    parts = [
        f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n".encode(),
        b"content-length: %d\r\n" % len(body),
    ]
    for name, value in headers or ():
        parts += (name, b": ", value, b"\r\n")
    parts += (b"\r\n", body)
    return b"".join(parts)
