"""Sends the slices of one request, one at a time, as its service's core says; at last has the request itself sent.

A state machine like dispatch.exchange, which makes it when a binding is to be sliced and cancels it when the request
ends, moves or is aborted. What a slice generates is one token, read for its counts and dropped. Whatever goes wrong
here costs time only: what is left of the prompt then goes in one piece.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import orjson

from shoal_router import log
from shoal_router.dispatch import cuts, sse
from shoal_router.dispatch.handle import Handle
from shoal_router.dispatch.outgoing import Outgoing
from shoal_router.dispatch.service import Service
from shoal_router.policy.binding import Binding
from shoal_router.upstream.call import Answer, Call, NoAnswer

if TYPE_CHECKING:
    from shoal_router.dispatch.dispatcher import Dispatcher

TOKENIZE_TIMEOUT_S: Final = 30.0
IDS_BYTES_MAX: Final = 128 << 20
SLICE_TIMEOUT_S: Final = 120.0
"""Beyond ten times what it should take. A stalled engine is the prober's to find, sooner."""
_TOO_DEEP: Final = "a body that is nested deeper than can be written; reading goes deeper"


class Slicer:
    """See the module. `busy`: the engine should be producing something for it."""

    __slots__ = (
        "_api",
        "_binding",
        "_body",
        "_call",
        "_cuts",
        "_dispatcher",
        "_doc",
        "_handle",
        "_headers",
        "_on_busy",
        "_on_over",
        "_rid",
        "_service",
        "_tokens",
    )

    def __init__(
        self,
        dispatcher: "Dispatcher",
        service: Service,
        handle: Handle,
        binding: Binding,
        outgoing: Outgoing,
        on_busy: Callable[[bool], None],
        on_over: Callable[[], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._service = service
        self._handle = handle
        self._binding: Binding | None = binding
        self._api = outgoing.api
        self._body = outgoing.body
        self._doc: dict[str, Any] = {}
        self._headers = outgoing.headers
        self._on_busy = on_busy
        self._on_over = on_over
        self._call: Call | None = None
        self._cuts: cuts.Cuts | None = None
        self._rid = ""
        """Of the slice that runs."""
        self._tokens = 0

    def start(self) -> None:
        """Get the ids, then let the core say when."""
        self._doc = orjson.loads(self._body)
        self._body = b""
        found = cuts.of_ids(self._doc, self._api, self._service.table.served_name, self._version())
        if found is not None:
            self._ready(found)
            return
        try:
            body = cuts.tokenize_body(self._doc, self._api)
        except orjson.JSONEncodeError:
            self._give_up(_TOO_DEEP)
            return
        self._call = self._dispatcher.ask(
            self._handle, "/v1/tokenize", body, self._headers, TOKENIZE_TIMEOUT_S, IDS_BYTES_MAX, self._on_ids
        )

    def cancel(self) -> None:
        """The request has ended or moves: nothing of it may go on here."""
        self._binding = None
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
            if self._rid:
                self._dispatcher.abort_request(self._handle, self._rid)

    def _on_ids(self, result: Answer | NoAnswer) -> None:
        self._call = None
        binding = self._binding
        if binding is None:
            return
        ids = cuts.ids_of(result.body) if isinstance(result, Answer) and result.status == 200 else None
        if ids is not None:
            name = self._service.table.served_name
            self._ready(cuts.Ids(ids, self._doc, self._api, name, self._version()), len(ids))
        elif isinstance(result, NoAnswer):
            self._give_up("no answer to /v1/tokenize")
        else:
            self._ready(cuts.of_text(self._doc, self._api, binding.prompt_tokens))

    def _version(self) -> str:
        """Of the engine; empty where it has not said."""
        info = self._handle.info
        return info.version if info is not None else ""

    def _ready(self, found: cuts.Cuts, tokens: int = 0) -> None:
        binding = self._binding
        assert binding is not None
        self._cuts = found
        self._doc = {}
        self._service.core.slices_ready(binding, tokens or binding.prompt_tokens, self._on_turn, self._dispatcher.now())

    def _on_turn(self, end: int) -> None:
        binding = self._binding
        if binding is None:
            return
        if not end:
            self._binding = None
            self._cuts = None
            self._on_over()
            return
        self._rid = self._dispatcher.new_rid()
        try:
            part = self._cuts.cut(end, self._rid) if self._cuts is not None else None
        except orjson.JSONEncodeError:
            self._give_up(_TOO_DEEP)
            return
        if part is None:
            self._give_up("no place to cut")
            return
        self._tokens = part.tokens
        self._on_busy(True)
        timeout_s = SLICE_TIMEOUT_S + 10.0 * binding.work_s
        self._call = self._dispatcher.ask(
            self._handle, part.path, part.body, self._headers, timeout_s, IDS_BYTES_MAX, self._on_slice
        )

    def _on_slice(self, result: Answer | NoAnswer) -> None:
        self._call = None
        self._rid = ""
        binding = self._binding
        if binding is None:
            return
        self._on_busy(False)
        if isinstance(result, NoAnswer):
            self._give_up("no whole answer to a slice")
            return
        usage = usage_of(result)
        if usage is None:
            self._give_up(f"a slice was answered with status {result.status}")
            return
        tokens = self._tokens
        if self._cuts is not None and not self._cuts.exact and usage.prompt_tokens is not None:
            tokens = usage.prompt_tokens
        cached_tokens = self._handle.cached_tokens(usage.cached_tokens)
        self._service.core.slice_done(binding, tokens, cached_tokens, self._dispatcher.now())

    def _give_up(self, why: str) -> None:
        binding = self._binding
        assert binding is not None
        self._rid = ""
        log.info("slices given up", service=self._service.name, replica=self._handle.name, why=why)
        self._service.core.slices_unwanted(binding, self._on_turn, self._dispatcher.now())


def usage_of(result: Answer) -> sse.Usage | None:
    """Counts of a slice that was computed; None where it was not."""
    body = result.body
    if result.status != 200 or body.find(sse.DONE) < 0:
        return None
    for event in body.split(b"\n\n"):
        if sse.event_error_code(event) is not None:
            return None
    usage = sse.last_usage(body)
    return usage if usage is not None and usage.prompt_tokens is not None else None
