"""One request from its checks to its last byte: admission, an engine, the relay, and another engine if the first fails.

A state machine that is called, never awaited: by the core (`on_bound`, `on_rejected`), by a pool and its connection
(`on_connection`, `on_head`, `on_body`, `on_end`, `on_failed`), by the client's connection (`on_client_*`) and by the
fleet (`on_replica_lost`). Until the first byte has gone to the client everything can be tried again elsewhere; after it
a failure ends the stream with an error event. Whatever happens, `_leave` gives back what was reserved, once.
"""

from typing import TYPE_CHECKING, Final, Protocol

from shoal_router import log, model
from shoal_router.admission.ticket import Ticket
from shoal_router.dispatch import explain, failures, reply, splice, sse
from shoal_router.dispatch.api import Api
from shoal_router.dispatch.breaker import Circuit
from shoal_router.dispatch.checks import RID_LENGTH, Checked
from shoal_router.dispatch.handle import Handle
from shoal_router.dispatch.outgoing import Outgoing
from shoal_router.dispatch.service import Service
from shoal_router.dispatch.slicer import Slicer
from shoal_router.errors import ApiError, Shape
from shoal_router.policy.binding import Binding
from shoal_router.upstream.connection import Connection, Failure, Headers

if TYPE_CHECKING:
    from shoal_router.dispatch.dispatcher import Dispatcher

HELD_BYTES_MAX: Final = 256 << 10
LOSSES_MAX: Final = 1
"""A request that was lost with so many engines is tried on one more and no further: it may be what killed them."""
RETRY_STATUSES: Final = frozenset((502, 503, 504))
_EVENTS: Final = b"text/event-stream"
_OK: Final = model.Outcome.OK.value
_TAIL_BYTES: Final = 4096
"""Of a large answer, where its usage is."""


class Client(Protocol):
    """The connection that the request came on."""

    answer_started: bool
    closing: bool

    def answer(self, status: int, headers: Headers, body: bytes) -> None: ...

    def answer_error(self, error: ApiError, shape: Shape, extra: Headers | None = None) -> None: ...

    def start(self, status: int, headers: Headers, length: int | None, first: bytes) -> None: ...

    def body(self, data: bytes) -> None: ...

    def end(self, last: bytes = b"") -> None: ...

    def cut(self) -> None: ...


class Exchange:
    """See the module."""

    __slots__ = (
        "_api",
        "_arrived_s",
        "_binding",
        "_body_bytes",
        "_body_held",
        "_client",
        "_connection",
        "_dispatcher",
        "_ended",
        "_error",
        "_excluded",
        "_explain",
        "_found_tokens",
        "_handle",
        "_held_bytes",
        "_length",
        "_losses",
        "_outgoing",
        "_replica",
        "_request",
        "_response_headers",
        "_scanner",
        "_sent",
        "_service",
        "_sliced_tokens",
        "_slicer",
        "_status",
        "_streams",
        "_tail",
        "_terms",
        "_ticket",
        "_tokens_seen",
        "awaited",
        "paused",
        "streaming",
    )

    def __init__(
        self,
        dispatcher: "Dispatcher",
        service: Service,
        client: Client,
        api: Api,
        checked: Checked,
        body: bytes,
        headers: Headers,
        request: model.Request | None,
        explain: bool,
    ) -> None:
        self._dispatcher = dispatcher
        self._service = service
        self._client = client
        self._api = api
        self._outgoing = Outgoing(api, checked, body, headers, dispatcher.new_rid)
        self._body_bytes = len(body)
        self._request = request
        """None: the call needs no place in the engine's batch, only its tokenizer."""
        self._explain = explain
        self._terms: dict[str, model.CostTerms] = {}
        self._arrived_s = dispatcher.now()
        self._ticket: Ticket | None = None
        self._binding: Binding | None = None
        self._handle: Handle | None = None
        self._slicer: Slicer | None = None
        """While slices of the prompt are sent."""
        self._replica = ""
        """The last one tried."""
        self._excluded: frozenset[str] = frozenset()
        self._error: ApiError | None = None
        """What to answer if no other replica can be tried."""
        self._ended = False
        self._losses = 0
        self.awaited: object | None = None
        self._streams = checked.stream
        self.streaming = checked.stream
        self.paused = False
        self._begin()

    def _begin(self) -> None:
        """Forget the attempt before."""
        self._connection: Connection | None = None
        self._scanner: sse.Scanner | None = None
        self._found_tokens: int | None = None
        """Of a prompt that went in slices: what the cache held before them. The client's usage says so."""
        self._sliced_tokens = 0
        """So many of it they computed, or found."""
        self._sent = False
        """The engine may have seen it."""
        self._status = 0
        self._response_headers: Headers = []
        self._length: int | None = None
        self._body_held: list[bytes] = []
        self._held_bytes = 0
        self._tail = b""
        self._tokens_seen = 0

    # Admission

    def start(self) -> None:
        self._service.budget.on_request()
        if self._request is None:
            self._go_anywhere()
            return
        self._ticket = Ticket(self._request, self.on_bound, self.on_rejected)
        self._note_terms()
        self._service.core.submit(self._ticket, self._arrived_s)

    def _note_terms(self) -> None:
        if self._explain and self._request is not None:
            terms = self._service.core.explain(self._request, self._dispatcher.now())
            self._terms = {term.replica: term for term in terms}

    def _go_anywhere(self) -> None:
        handle = self._service.any_handle(self._excluded)
        if handle is None:
            self.on_rejected(model.Outcome.NO_REPLICA, 1.0)
        else:
            self._go(handle, self._dispatcher.now())

    def on_bound(self, binding: Binding) -> None:
        self._binding = binding
        handle = self._service.handles.get(binding.replica.name)
        if handle is None:
            self._retry(model.Outcome.REPLICA_FAILED, "The replica is gone.", binding.replica.name)
        else:
            self._go(handle, binding.bound_at)

    def _go(self, handle: Handle, now_s: float) -> None:
        if self._replica:
            self._begin()
        self._handle = handle
        self._replica = handle.name
        handle.add(self, now_s)
        binding = self._binding
        if binding is not None and binding.sliced is not None:
            self._slice(handle, binding)
        else:
            handle.pool.acquire(self)

    def _slice(self, handle: Handle, binding: Binding) -> None:
        self.streaming = False
        self._slicer = Slicer(
            self._dispatcher,
            self._service,
            handle,
            binding,
            self._outgoing,
            self._on_slice,
            self._on_sliced,
        )
        self._slicer.start()

    def _on_slice(self, busy: bool) -> None:
        """A slice runs, or has ended: only while one does is silence of the engine suspicious."""
        self._sent = True
        self.streaming = busy
        handle = self._handle
        if handle is not None and (not busy or len(handle.guests) == 1):
            handle.last_output_s = self._dispatcher.now()

    def _on_sliced(self) -> None:
        """Nothing is left but the request itself."""
        self._slicer = None
        self.streaming = self._streams
        handle, binding = self._handle, self._binding
        assert handle is not None
        assert binding is not None
        if binding.sliced is not None and binding.sliced.count:
            self._found_tokens = binding.sliced.first_cached
            self._sliced_tokens = binding.sliced.done
        if len(handle.guests) == 1:
            handle.last_output_s = self._dispatcher.now()
        handle.pool.acquire(self)

    def on_rejected(self, outcome: model.Outcome, retry_after_s: float) -> None:
        error = self._error or failures.rejection(outcome, retry_after_s)
        if error.status == 503 and error.retry_after_s is None:
            error = ApiError(503, error.message, error.reason, error.type, code=error.code, retry_after_s=retry_after_s)
        self._finish_with_error(error)

    # The engine's connection

    def on_connection(self, connection: Connection) -> None:
        self._connection = connection
        self._sent = True
        handle = self._handle
        assert handle is not None
        connection.send(self, self._outgoing.parts(self._service.table.served_name, handle.pool.authority, handle.info))

    def on_head(self, status: int, headers: Headers) -> None:
        self._status = status
        self._response_headers = headers
        if status in RETRY_STATUSES:
            return  # the body says why; it is short
        for name, value in headers:
            if name == b"content-type":
                if value.startswith(_EVENTS):
                    handle = self._handle
                    self._scanner = sse.Scanner(
                        self._outgoing.strips_usage(handle.info if handle is not None else None)
                    )
            elif name == b"content-length" and value.isdigit():
                self._length = int(value)

    def on_body(self, data: bytes) -> None:
        handle = self._handle
        assert handle is not None
        now_s = handle.last_output_s = handle.pool.last_byte_s
        scanner = self._scanner
        if scanner is None:
            self._hold_or_pass(data)
            return
        out = scanner.feed(data)
        if self._found_tokens is not None:
            out = splice.with_cached_tokens(out, self._found_tokens, self._sliced_tokens)
        if self._client.answer_started:
            if out:
                self._client.body(out)
            count = scanner.events - self._tokens_seen
            if count and self._binding is not None:
                self._tokens_seen += count
                self._service.core.tokens(self._binding, count, now_s)
            return
        self._body_held.append(out)
        self._held_bytes += len(out)
        if scanner.first_event:
            self._first_event(scanner, now_s)
        elif self._held_bytes > HELD_BYTES_MAX:
            self._fail(model.Outcome.REPLICA_FAILED, "The engine sent no event.")

    def _first_event(self, scanner: sse.Scanner, now_s: float) -> None:
        code = scanner.error_code
        if code is not None and code >= 500:
            code = code if code < 600 else 502
            message = reply.error_message(sse.event_payload(scanner.error_event))[0]
            self._refused(code, message, None)
            return
        handle = self._handle
        if code is None and handle is not None and handle.breaker.circuit is Circuit.HALF_OPEN:
            # It works: a stream that lives for minutes must not keep everybody else out until it ends.
            handle.on_success(now_s)
        if code is None and self._binding is not None:
            self._tokens_seen = scanner.events
            self._service.core.first_token(self._binding, now_s)
            self._service.core.tokens(self._binding, scanner.events, now_s)
        first, self._body_held = b"".join(self._body_held), []
        self._client.start(self._status, self._head(), None, first)
        self._forget_request()

    def _hold_or_pass(self, data: bytes) -> None:
        """A body that is no stream is held until it is whole or too large: until then it can be asked for elsewhere."""
        if self._client.answer_started:
            self._tail = (self._tail + data)[-_TAIL_BYTES:]
            self._client.body(data)
            return
        self._body_held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes <= HELD_BYTES_MAX:
            return
        if self._status < 400:
            first, self._body_held = b"".join(self._body_held), []
            self._tail = first[-_TAIL_BYTES:]
            self._client.start(self._status, self._head(), self._length, first)
            self._forget_request()
        else:
            del self._body_held[1:]
            self._held_bytes = len(self._body_held[0])

    def _forget_request(self) -> None:
        """It cannot be sent again now; a stream may live for minutes, and its prompt is most of what it weighs. The
        ticket refers back to this object: without it, it is freed the moment it is done."""
        self._outgoing.body = b""
        self._request = None
        self._ticket = None

    def on_end(self) -> None:
        self._connection = None
        if self._status in RETRY_STATUSES:
            message = reply.error_message(b"".join(self._body_held))[0]
            self._refused(self._status, message, reply.retry_after_s(self._response_headers))
        elif self._scanner is not None:
            self._stream_ended(self._scanner)
        else:
            self._answer_ended()

    def _stream_ended(self, scanner: sse.Scanner) -> None:
        if not scanner.done:
            self._fail(model.Outcome.REPLICA_FAILED, "The engine ended the stream early.")
            return
        if not self._client.answer_started:
            self._fail(model.Outcome.REPLICA_FAILED, "The engine ended the stream without an event.")
            return
        self._succeed(scanner.usage())
        self._client.end(scanner.flush())

    def _answer_ended(self) -> None:
        held = self._body_held
        body = held[0] if len(held) == 1 else b"".join(held)
        headers = self._head()
        if self._client.answer_started:
            self._succeed(sse.last_usage(self._tail))
            self._client.end()
        elif self._status >= 400:
            self._leave(None)
            self._count(self._status, model.Outcome.ENGINE_ERROR.value)
            headers = [header for header in headers if header[0] != b"content-type"]
            headers.append((b"content-type", b"application/json"))
            self._client.answer(self._status, headers, reply.client_error(self._api.shape, self._status, body))
        else:
            self._succeed(sse.last_usage(body))
            if self._found_tokens is not None:
                body = splice.with_cached_tokens(body, self._found_tokens, self._sliced_tokens)
            self._client.answer(self._status, headers, body)

    def on_failed(self, failure: Failure) -> None:
        self._connection = None
        handle = self._handle
        if handle is None:
            return
        if failure is Failure.STALE:
            handle.pool.acquire(self, fresh=True)
            return
        handle.on_failure(self._dispatcher.now())
        if failure is Failure.CONNECT:
            self._dispatcher.suspect(handle)
        self._fail(model.Outcome.REPLICA_FAILED, failures.BROKEN[failure])

    # Ends

    def _succeed(self, usage: sse.Usage | None) -> None:
        handle = self._handle
        if handle is None:
            now_s = self._dispatcher.now()
        else:
            now_s = handle.pool.last_byte_s
            handle.on_success(now_s)
        known = None
        if usage is not None and usage.prompt_tokens is not None:
            cached = usage.cached_tokens if handle is None else handle.cached_tokens(usage.cached_tokens)
            known = model.Usage(usage.prompt_tokens, usage.completion_tokens or 0, cached)
        self._leave(known, now_s, finished=True)
        self._count(self._status, _OK)
        self._service.counters.e2e.add(now_s - self._arrived_s)

    def _refused(self, status: int, message: str, retry_after_s: float | None) -> None:
        """The engine has no room or cannot serve: 502, 503, 504, or a stream that opens with such an error."""
        now_s = self._dispatcher.now()
        handle = self._handle
        if handle is not None:
            if status == 503:
                handle.hold(retry_after_s, now_s)
            else:
                handle.on_failure(now_s)
        self._fail(model.Outcome.REPLICA_REFUSED, message, status)

    def _fail(self, outcome: model.Outcome, message: str, status: int | None = None) -> None:
        """This attempt is over without an answer."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
        if self._client.answer_started:
            self._break(outcome, message)
        else:
            handle = self._handle
            self._retry(outcome, message, handle.name if handle is not None else "", status)

    def _retry(self, outcome: model.Outcome, message: str, name: str, status: int | None = None) -> None:
        now_s = self._dispatcher.now()
        self._error = ApiError(status or outcome.http_status, message, outcome.value, type=reply.error_type(503))
        self._excluded |= {name}
        self._losses += outcome is not model.Outcome.REPLICA_REFUSED and self._sent
        again = self._losses <= LOSSES_MAX and self._service.routable_besides(self._excluded)
        if again and not self._service.budget.take(now_s):
            self._service.counters.retries_denied += 1
            again = False
        self._leave(None, failed=not again)
        if not again:
            self.on_rejected(outcome, 1.0)
            return
        self._service.counters.retries[outcome.value] += 1
        if self._ticket is None:
            self._go_anywhere()
        else:
            self._note_terms()
            self._service.core.resubmit(self._ticket, name, now_s)

    def _break(self, outcome: model.Outcome, message: str) -> None:
        """The answer had begun: say in the stream that it broke, and close."""
        counters = self._service.counters
        counters.broken_streams += 1
        counters.wasted_tokens += self._tokens_seen
        scanner = self._scanner
        self._leave(None, failed=True)
        self._ended = True
        self._count(self._status, outcome.value)
        if scanner is None:
            self._client.cut()
            return
        event = reply.error_event(self._api.shape, outcome.http_status, message, outcome.value)
        self._client.closing = True
        self._client.end(b"\n\n" + event if scanner.mid_event else event)

    def _finish_with_error(self, error: ApiError) -> None:
        self._ended = True
        self._leave(None)
        self._count(error.status, error.reason)
        self._client.answer_error(error, self._api.shape, self._explained())

    def _leave(
        self, usage: model.Usage | None, now_s: float = 0.0, finished: bool = False, failed: bool = False
    ) -> None:
        """Give back the reservation and the place on the replica. `failed`: the client gets no whole answer, and it is
        the fleet's doing; an attempt that is tried again, a client that left and an engine's 4xx are no such thing."""
        self.awaited = None
        slicer, self._slicer = self._slicer, None
        if slicer is not None:
            slicer.cancel()
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.guests.discard(self)
        binding, self._binding = self._binding, None
        if binding is not None:
            if finished:
                self._service.core.finish(binding, usage, now_s)
            else:
                self._service.core.release(binding, self._dispatcher.now(), failed=failed)

    def on_replica_lost(self, outcome: model.Outcome) -> None:
        self._fail(outcome, failures.LOST[outcome])

    # The client

    def on_client_gone(self) -> None:
        if self._ended:
            return
        self._ended = True
        now_s = self._dispatcher.now()
        if self._ticket is not None:
            self._service.core.cancel(self._ticket, now_s)
        connection, self._connection = self._connection, None
        handle = self._handle
        if connection is not None:
            connection.abort()
            self._service.counters.aborts += 1
            self._service.counters.wasted_tokens += self._tokens_seen
            if handle is not None and self._may_abort():
                self._dispatcher.abort_request(handle, self._outgoing.rid)
        self._leave(None)
        self._count(model.Outcome.CLIENT_GONE.http_status, model.Outcome.CLIENT_GONE.value)

    def _may_abort(self) -> bool:
        """SGLang aborts every request whose id starts with the one given: a client's own short id could be the start of
        another's. Such a request ends by its closed connection alone."""
        return len(self._outgoing.rid) >= RID_LENGTH

    def on_client_paused(self) -> None:
        self.paused = True
        if self._connection is not None:
            self._connection.pause()

    def on_client_resumed(self) -> None:
        self.paused = False
        handle = self._handle
        if handle is not None:
            handle.last_output_s = self._dispatcher.now()
        if self._connection is not None:
            self._connection.resume()

    # Heads and counts

    def _head(self) -> Headers:
        headers = reply.passed_on(self._response_headers)
        return headers + self._explained() if self._explain else headers

    def _explained(self) -> Headers:
        if not self._explain or self._binding is None:
            return []
        return explain.headers(self._binding, self._terms.get(self._binding.replica.name))

    def _count(self, status: int, reason: str) -> None:
        """The request is over."""
        self._forget_request()
        counters = self._service.counters
        if status == 200 and reason is _OK:
            counters.completed += 1
        else:
            counters.requests[status, reason] += 1
        if self._dispatcher.access_log:
            log.info(
                "request",
                path=self._api.path.decode(),
                service=self._service.name,
                status=status,
                reason=reason,
                replica=self._replica,
                seconds=round(self._dispatcher.now() - self._arrived_s, 4),
                bytes=self._body_bytes,
            )
