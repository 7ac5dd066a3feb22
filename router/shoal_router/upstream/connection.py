"""One HTTP/1.1 connection to one engine, as a state machine driven by callbacks: one request at a time.

It parses the response with llhttp, hands head, body bytes and end to its receiver, and goes back to its pool. It
decides nothing: what a status means, whether to try again and what the client sees is the receiver's business.
Bytes that belong to no request (after a response's end, on an idle connection) close it: nothing of one response may
ever reach the next request.
"""

import asyncio
import enum
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import httptools

if TYPE_CHECKING:
    from shoal_router.upstream.pool import Pool

HEAD_BYTES_MAX: Final = 128 << 10
INTERIM_MAX: Final = 8
STALE_MAX_S: Final = 0.25
"""A close that comes later than this after the request is an answer to it, not one that was on its way already."""
RECEIVE_BUFFER_BYTES: Final = 128 << 10
"""Bounds one read, and with it what one stream can have buffered beyond the client's high-water mark."""

Headers = list[tuple[bytes, bytes]]


class Failure(enum.Enum):
    """Why a request got no whole response."""

    CONNECT = "connect"
    """Refused, unreachable or no answer in time: no byte of the request was sent."""
    STALE = "stale"
    """A kept-alive connection was closed by the engine before any byte of the response; says nothing of the engine."""
    RESET = "reset"
    """Closed before the response's head was complete."""
    TRUNCATED = "truncated"
    """Closed inside the body."""
    MALFORMED = "malformed"


class Receiver(Protocol):
    """Gets one response. Calls come in this order: head, body*, end; or `on_failed` once, at any point."""

    def on_head(self, status: int, headers: Headers) -> None: ...

    def on_body(self, data: bytes) -> None: ...

    def on_end(self) -> None: ...

    def on_failed(self, failure: Failure) -> None: ...


class Connection:
    """Created by a pool; `send` once per request. Has the methods of `asyncio.Protocol` (see server.connection)."""

    __slots__ = (
        "_answered",
        "_bytes_before_head",
        "_chunks",
        "_complete",
        "_dirty",
        "_framed",
        "_head_done",
        "_headers",
        "_interim",
        "_keep_alive",
        "_parser",
        "_paused",
        "_pool",
        "_transport",
        "idle_since_s",
        "receiver",
        "requests",
        "reused_s",
    )

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self.receiver: Receiver | None = None
        self.requests = 0
        self.idle_since_s = 0.0
        self.reused_s = 0.0
        """When it was last taken from its pool for another request."""
        self._paused = False
        self._reset()

    def _reset(self) -> None:
        self._headers: Headers = []
        self._chunks: list[bytes] = []
        self._answered = False
        """Any byte of the response arrived."""
        self._bytes_before_head = 0
        self._head_done = False
        self._framed = False
        """The head says where the body ends; else the end of the connection does."""
        self._complete = False
        self._keep_alive = False
        self._dirty = False
        """Bytes came that belong to no response."""
        self._interim = 0

    # Receiver's side

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, receiver: Receiver, parts: Sequence[bytes | memoryview]) -> None:
        """Start a request. `parts` is the whole request, head and body."""
        assert self._transport is not None
        self.receiver = receiver
        self.requests += 1
        self._reset()
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)

    def pause(self) -> None:
        if not self._paused and self.usable:
            assert self._transport is not None
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._paused and self.usable:
            assert self._transport is not None
            self._paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        """Drop the request and the connection at once; the receiver hears nothing more."""
        self.receiver = None
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is not a subclass of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._pool.on_bytes()
        receiver = self.receiver
        if receiver is None:
            self.abort()
            return
        self._answered = True
        if not self._head_done:
            self._bytes_before_head += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            # Garbage behind a whole response spoils the connection, not the response.
            if not self._complete:
                self._fail(Failure.MALFORMED)
                return
            self._dirty = True
        if self.receiver is receiver:
            self._deliver(receiver)

    def _deliver(self, receiver: Receiver) -> None:
        if not self._head_done:
            if self._bytes_before_head > HEAD_BYTES_MAX or self._interim > INTERIM_MAX:
                self._fail(Failure.MALFORMED)
            return
        chunks = self._chunks
        if chunks:
            self._chunks = []
            receiver.on_body(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        # The receiver may have aborted in the callback.
        if self._complete and self.receiver is receiver:
            self.receiver = None
            if self._reusable():
                self.resume()  # a client that got slow with the last bytes must not stop the next request's answer
                self._pool.release(self)
            else:
                self.close()
            receiver.on_end()

    def _reusable(self) -> bool:
        """Not where the engine answered before it had read the whole request: it may never read the rest."""
        clean = self._keep_alive and self._framed and not self._dirty and self.usable
        return clean and self._transport is not None and not self._transport.get_write_buffer_size()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._parser = None  # it refers back to this object
        self._pool.forget(self)
        receiver = self.receiver
        if receiver is None:
            return
        self.receiver = None
        if self._head_done and not self._framed and exc is None:
            receiver.on_end()
        elif self._head_done:
            receiver.on_failed(Failure.TRUNCATED)
        else:
            waited_s = time.monotonic() - self.reused_s
            stale = self.requests > 1 and not self._answered and waited_s < STALE_MAX_S
            receiver.on_failed(Failure.STALE if stale else Failure.RESET)

    def _fail(self, failure: Failure) -> None:
        receiver = self.receiver
        self.abort()
        if receiver is not None:
            receiver.on_failed(failure)

    # httptools' side

    def on_message_begin(self) -> None:
        if self._complete:
            self._dirty = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_done:
            return  # a trailer, or a head that nobody asked for
        name = name.lower()
        self._headers.append((name, value))
        if name in (b"content-length", b"transfer-encoding"):
            self._framed = True

    def on_headers_complete(self) -> None:
        if self._complete:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self._interim += 1
            self._headers = []
            self._framed = False
            return
        if status in (204, 304):
            self._framed = True
        self._head_done = True
        receiver = self.receiver
        if receiver is not None:
            receiver.on_head(status, self._headers)

    def on_body(self, data: bytes) -> None:
        if not self._complete:
            self._chunks.append(data)

    def on_message_complete(self) -> None:
        if self._head_done and not self._complete:
            self._complete = True
            self._keep_alive = self._parser.should_keep_alive()
