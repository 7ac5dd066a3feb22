"""One client connection: reads one request at a time, hands it over whole, writes what it is told.

A state machine driven by asyncio's callbacks: no task, no queue. It knows HTTP (strict reading, limits, deadlines,
framing of answers, flow control) and nothing of engines. Requests go to `Handler`; their answers come back through
`start`, `body`, `end`, `answer`, `cut`.
"""

import asyncio
import enum
import math
import socket
from typing import TYPE_CHECKING, Any, Final, Protocol

import httptools

from shoal_router.errors import OVERLOADED, REASONS, ApiError, Shape
from shoal_router.server import head

if TYPE_CHECKING:
    from shoal_router.server.listener import Listener

WRITE_HIGH_BYTES: Final = 64 << 10
WRITE_LOW_BYTES: Final = 16 << 10
UNSENT_BYTES: Final = 128 << 10
"""What the kernel may hold that a slow client has no window for; it would take megabytes."""
USER_TIMEOUT_MS: Final = 60_000
LINGER_S: Final = 2.0
PIECE_BYTES: Final = 4096
"""Pieces of a body from this size on are kept as they came."""
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_CRLF: Final = b"\r\n"
_CRLF2: Final = b"\r\n\r\n"
_HTTP11: Final = b" HTTP/1.1"
_OK: Final = b"HTTP/1.1 200 OK\r\n"
_BODILESS: Final = frozenset((204, 304))


class State(enum.Enum):
    IDLE = "idle"
    HEAD = "head"
    BODY = "body"
    BUSY = "busy"
    LINGER = "linger"
    """Answered, and the client may still be sending: its bytes are read and dropped, so that it sees the answer."""
    CLOSED = "closed"


# A module's constant costs one load where it is compiled, a member of an enum two look-ups.
_IDLE: Final = State.IDLE
_HEAD: Final = State.HEAD
_BODY: Final = State.BODY
_BUSY: Final = State.BUSY
_LINGER: Final = State.LINGER
_CLOSED: Final = State.CLOSED


class Exchange(Protocol):
    """A request in progress, as its connection sees it."""

    def on_client_gone(self) -> None: ...

    def on_client_paused(self) -> None: ...

    def on_client_resumed(self) -> None: ...


class Connection:
    """Created by the listener for every accepted socket. It has the methods of `asyncio.Protocol` and is none: a class
    with a foreign base cannot be compiled to a native one."""

    __slots__ = (
        "_body",
        "_body_bytes",
        "_chunked_out",
        "_counted_bytes",
        "_head",
        "_head_done",
        "_headers",
        "_http11",
        "_listener",
        "_padding_bytes",
        "_parser",
        "_refusal",
        "_rejection",
        "_transport",
        "_unwritten",
        "_url",
        "answer_started",
        "closing",
        "deadline_s",
        "exchange",
        "head",
        "http10",
        "method",
        "path",
        "state",
        "timer_slot",
        "write_paused",
    )

    def __init__(self, listener: "Listener") -> None:
        self._listener = listener
        self._transport: Any = None
        self._parser: Any = httptools.HttpRequestParser(self)
        self.deadline_s = math.inf
        self.timer_slot = -1
        self.state = _IDLE
        self.exchange: Exchange | None = None
        self.write_paused = False
        self._unwritten = 0
        self._counted_bytes = 0
        """Its share of the listener's `receiving_bytes`."""
        self.closing = False
        """Close after this answer."""
        self._begin()

    def _begin(self) -> None:
        self._head = b""
        self._url = b""
        self._head_done = False
        self._http11 = False
        """The request line ends so; else the parser is asked for the version, which takes longer."""
        self._body: list[bytes | bytearray] = []
        self._body_bytes = 0
        self._padding_bytes = 0
        """Bytes read since the last one of the body."""
        self._refusal: ApiError | None = None
        """Answer it and close: what follows on this connection is not understood or not wanted."""
        self._rejection: ApiError | None = None
        """Answer it and go on."""
        self._chunked_out = False
        self.answer_started = False
        self._headers: head.Headers = []
        self.head = head.NO_HEAD
        self.method = ""
        self.path: bytes | None = b""
        self.http10 = False

    # asyncio: reading

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
            if hasattr(socket, "TCP_NOTSENT_LOWAT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        if self._listener.opened(self):
            # A connection that never sends a request gets the time of a header, not that of an idle one.
            self._listener.wheel.arm(self, self._listener.now() + self._listener.limits.header_s)
        else:
            self.state = _CLOSED
            transport.close()

    def data_received(self, data: bytes) -> None:
        state = self.state
        if state is _IDLE or state is _HEAD:
            self._read_head(data)
        elif state is _BODY:
            self._read_body(data)
        elif state is _BUSY:
            self._refuse_pipelining()

    def _read_head(self, data: bytes) -> None:
        listener = self._listener
        if self.state is _IDLE:
            # An empty line between requests is tolerated, as RFC 9112 2.2 asks; it begins none.
            data = data.removeprefix(b"\r\n")
            if not data:
                return
            self._begin()
            self.state = _HEAD
            listener.busy(self)
        start = self._head
        whole = start + data if start else data
        end = whole.find(_CRLF2, max(0, len(start) - 3)) + 4
        if end < 4:
            complaint = head.partial_complaint(whole, listener.limits.header_bytes)
            if complaint is not None:
                self._refuse(complaint)
                return
            if not start:
                listener.wheel.arm(self, listener.now() + listener.limits.header_s)
            self._head = whole
            return
        raw, rest = (whole, b"") if end == len(whole) else (whole[:end], whole[end:])
        if len(raw) > listener.limits.header_bytes:
            self._refuse(head.too_large(listener.limits.header_bytes))
            return
        self._head = b""
        self.state = _BODY
        self._http11 = raw.find(_HTTP11) == raw.find(_CRLF) - len(_HTTP11)
        self._parse(head.without_upgrade(raw))
        if rest and self._refusal is None:
            if self.state is _BODY:
                self._parse(rest)
            else:
                self._refusal = _pipelined()
        if self.state is _BODY:
            listener.wheel.arm(self, listener.now() + listener.limits.body_s)
            self._count_received()
        self._advance()

    def _read_body(self, data: bytes) -> None:
        # The limit is on silence: a slow link may take its time for a large body.
        self._listener.wheel.arm(self, self._listener.now() + self._listener.limits.body_s)
        before = self._body_bytes
        self._parse(data)
        # Chunk extensions and trailers have no bound of their own, and the parser keeps what it has of a trailer.
        self._padding_bytes = self._padding_bytes + len(data) if self._body_bytes == before else 0
        if self._padding_bytes > self._listener.limits.header_bytes and self.state is _BODY:
            self._refusal = self._refusal or head.too_large(self._listener.limits.header_bytes)
        self._count_received()
        self._advance()

    def _count_received(self) -> None:
        """Bodies that arrive slowly on many connections must not fill the memory either."""
        listener = self._listener
        held = self._body_bytes if self.state is _BODY else 0
        listener.receiving_bytes += held - self._counted_bytes
        self._counted_bytes = held
        if held and listener.receiving_bytes > listener.limits.receiving_bytes:
            self._refusal = self._refusal or _crowded()

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refusal = self._refusal or head.bad("Not a request that is understood here.")
        except httptools.HttpParserError as error:
            self._refusal = self._refusal or head.bad(f"Malformed HTTP: {error}.")

    def _advance(self) -> None:
        if self._refusal is not None:
            self._refuse(self._refusal)
            return
        if self.state is not _BUSY:
            return
        self.deadline_s = math.inf
        handler = self._listener.handler
        if self._rejection is not None:
            handler.refused(self._rejection)
            self.answer_error(self._rejection, handler.shape(self))
            return
        body, self._body = self._body, []
        handler.handle(self, body[0] if len(body) == 1 and type(body[0]) is bytes else b"".join(body))

    # httptools

    def on_message_begin(self) -> None:
        if self.state is _BUSY:
            self._refusal = _pipelined()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_done:  # trailers are not looked at: they could name what the head was checked for
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self.state is _BUSY:
            return
        self._head_done = True
        limits = self._listener.limits
        if not self._http11:
            version = self._parser.get_http_version()
            if version != "1.0" and version != "1.1":
                self._refusal = ApiError(505, "Only HTTP/1.1 is spoken here.", "malformed_http")
                return
            self.http10 = version == "1.0"
        framing = head.read(self._headers, self.http10)
        if isinstance(framing, ApiError):
            self._refusal = framing
            return
        self._headers = []
        self.head = framing
        method = self._parser.get_method()
        self.method = "POST" if method == b"POST" else method.decode("ascii", "replace")
        self.path = head.path_of(self._url)
        self.closing = framing.close
        refusal = self._listener.handler.refusal(self)
        if refusal is None and framing.length is not None and framing.length > limits.body_bytes:
            refusal = _too_large(limits.body_bytes)
        if framing.chunked or framing.length:
            # A body that nobody wants is not read: such a refusal closes the connection.
            self._refusal = refusal
            if refusal is None and framing.expects_continue and not self.http10:
                self._transport.write(_CONTINUE)
        else:
            self._rejection = refusal

    def on_body(self, data: bytes) -> None:
        if self.state is not _BODY:
            return
        self._body_bytes += len(data)
        if self._body_bytes > self._listener.limits.body_bytes:
            self._refusal = self._refusal or _too_large(self._listener.limits.body_bytes)
            self._body = []
        elif self._refusal is None:
            self._keep(data)

    def _keep(self, data: bytes) -> None:
        """Small chunks are put together: an object for each would weigh many times what it holds."""
        body = self._body
        if not body or len(data) >= PIECE_BYTES:
            body.append(data)
        elif isinstance(last := body[-1], bytearray):
            last += data
        else:
            body.append(bytearray(data))

    def on_message_complete(self) -> None:
        if self.state is _BODY and self._refusal is None:
            self.state = _BUSY

    # Refusals

    def _refuse(self, error: ApiError) -> None:
        """Answer and close: the rest of what the client sends cannot be understood or is not wanted."""
        if self.state is _LINGER or self.state is _CLOSED:
            return
        self._listener.handler.refused(error)
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.on_client_gone()
        self.closing = True
        self.state = _LINGER
        if not self.answer_started:
            self._transport.write(self._error_bytes(error, self._listener.handler.shape(self)))
        self._linger()

    def _refuse_pipelining(self) -> None:
        if self.answer_started:
            self.closing = True
        else:
            self._refuse(_pipelined())

    def _linger(self) -> None:
        self._body = []
        self._head = b""
        self._count_received()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._arm_for_writing(LINGER_S)

    def _arm_for_writing(self, otherwise_s: float) -> None:
        """Deadline while bytes wait to be written: progress within the stall limit."""
        self._unwritten = self._transport.get_write_buffer_size()
        after_s = self._listener.limits.write_stall_s if self._unwritten else otherwise_s
        self._listener.wheel.arm(self, self._listener.now() + after_s)

    # Answers

    def answer_error(self, error: ApiError, shape: Shape, extra: head.Headers | None = None) -> None:
        """A whole error answer to the request in progress."""
        self.answer_started = True
        self._transport.write(self._error_bytes(error, shape, extra))
        self.end()

    def _error_bytes(self, error: ApiError, shape: Shape, extra: head.Headers | None = None) -> bytes:
        headers: head.Headers = [(b"content-type", b"application/json"), *(extra or ())]
        if error.retry_after_s is not None:
            headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_s))))
        if error.allow is not None:
            headers.append((b"allow", error.allow.encode()))
        body = error.body(shape)
        return self._head_bytes(error.status, headers, len(body)) + (b"" if self.method == "HEAD" else body)

    def answer(self, status: int, headers: head.Headers, body: bytes) -> None:
        """A whole answer in one write."""
        self.answer_started = True
        self._transport.write(self._head_bytes(status, headers, len(body)) + body)
        self.end()

    def start(self, status: int, headers: head.Headers, length: int | None, first: bytes) -> None:
        """Head of an answer with the first bytes of its body; `length` None: the end is told by `end`."""
        self.answer_started = True
        if length is None and self.http10:
            self.closing = True
        self._chunked_out = length is None and not self.http10
        start = self._head_bytes(status, headers, length)
        if not first:
            self._transport.write(start)
        elif self._chunked_out:
            self._transport.write(b"%b%x\r\n%b\r\n" % (start, len(first), first))
        else:
            self._transport.write(start + first)

    def body(self, data: bytes) -> None:
        if self._chunked_out:
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            self._transport.write(data)

    def end(self, last: bytes = b"") -> None:
        """The answer is complete; read the next request, or close."""
        if self._chunked_out:
            self._chunked_out = False
            self._transport.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(last), last) if last else b"0\r\n\r\n")
        elif last:
            self._transport.write(last)
        self.exchange = None
        if self.state is not _BUSY:
            return
        if self.closing or self._listener.draining:
            self.state = _LINGER
            self._linger()
        else:
            self.state = _IDLE
            self._listener.idle(self)
            if self.write_paused:
                # Its next request is not read before it has taken this answer, or answers pile up without bound.
                self._transport.pause_reading()
                self._arm_for_writing(self._listener.limits.idle_s)

    def cut(self) -> None:
        """End an answer that cannot be completed: the client sees a body without its end."""
        self.exchange = None
        self.state = _LINGER
        self._chunked_out = False
        self._linger()

    def _head_bytes(self, status: int, headers: head.Headers, length: int | None) -> bytes:
        if self._listener.draining:
            self.closing = True
        parts = [_OK if status == 200 else b"HTTP/1.1 %d %b\r\n" % (status, REASONS.get(status, b"Unknown"))]
        for name, value in headers:
            parts += (name, b": ", value, b"\r\n")
        if length is not None:
            if status not in _BODILESS:
                parts += (b"content-length: ", str(length).encode(), b"\r\n")
        elif self._chunked_out:
            parts.append(b"transfer-encoding: chunked\r\n")
        if self.closing:
            parts.append(b"connection: close\r\n")
        elif self.http10:
            parts.append(b"connection: keep-alive\r\n")
        parts.append(b"\r\n")
        return b"".join(parts)

    # asyncio: writing and the end

    def pause_writing(self) -> None:
        self.write_paused = True
        self._arm_for_writing(math.inf)
        if self.exchange is not None:
            self.exchange.on_client_paused()

    def resume_writing(self) -> None:
        self.write_paused = False
        if self.state is _BUSY:
            self.deadline_s = math.inf
        elif self.state is _IDLE:
            self._transport.resume_reading()
            self._listener.wheel.arm(self, self._listener.now() + self._listener.limits.idle_s)
        if self.exchange is not None:
            self.exchange.on_client_resumed()

    def eof_received(self) -> bool:
        """A client that stops sending is taken to be gone: nothing else would tell that it is."""
        if self.state is _BUSY:
            self._transport.abort()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.state = _CLOSED
        self._parser = None  # it refers back to this object
        self._count_received()
        self._listener.wheel.disarm(self)
        self._listener.closed(self)
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.on_client_gone()

    def close_idle(self) -> None:
        """Close if no request is in progress."""
        if self.state is _IDLE:
            self.state = _CLOSED
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def on_deadline(self, now_s: float) -> None:
        if self.state is _HEAD or self.state is _BODY:
            what = "header" if self.state is _HEAD else "body"
            self._refuse(ApiError(408, f"The request's {what} did not arrive in time.", "request_timeout"))
        elif self._transport.get_write_buffer_size():
            self._on_write_deadline()
        elif self.state is _IDLE or self.state is _LINGER:
            self.state = _CLOSED
            self._transport.close()

    def _on_write_deadline(self) -> None:
        if self._transport.get_write_buffer_size() < self._unwritten:
            self._arm_for_writing(math.inf)
        else:
            self._listener.handler.stalled_write()
            self._transport.abort()


class Handler(Protocol):
    """Who answers requests."""

    def refusal(self, connection: Connection) -> ApiError | None:
        """Called with the head read and before the body: unknown path, wrong method, wrong content type."""
        ...

    def shape(self, connection: Connection) -> Shape: ...

    def handle(self, connection: Connection, body: bytes) -> None: ...

    def refused(self, error: ApiError) -> None:
        """Count an error that the router answered itself."""
        ...

    def stalled_write(self) -> None: ...


def _pipelined() -> ApiError:
    return head.bad("Requests must not be pipelined.")


def _crowded() -> ApiError:
    message = "Too many large requests are arriving at once."
    return ApiError(503, message, "receiving_full", type=OVERLOADED, code="receiving_full", retry_after_s=1.0)


def _too_large(bytes_max: int) -> ApiError:
    return ApiError(413, f"The request's body is larger than {bytes_max} bytes.", "body_too_large")
