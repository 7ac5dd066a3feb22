"""What the client port answers: finds the route, the model and the service; refuses what no engine should see.

Implements `server.connection.Handler`. The model list and every error before admission are answered here; the rest
goes to the dispatcher as an exchange.
"""

import dataclasses
import time
from collections import Counter
from typing import Any, Final

import orjson

from shoal_api import routes
from shoal_router.dispatch import api as apis
from shoal_router.dispatch import checks
from shoal_router.dispatch.api import BY_PATH, Api
from shoal_router.dispatch.dispatcher import Dispatcher
from shoal_router.dispatch.service import Service
from shoal_router.errors import ApiError, Shape
from shoal_router.index import caller, session
from shoal_router.index import request as requests
from shoal_router.server import head
from shoal_router.server.connection import Connection

_MODELS: Final = b"/v1/models"
_MODEL: Final = b"/v1/models/"
_JSON: Final[head.Headers] = [(b"content-type", b"application/json")]
_EXPLAIN: Final = b"x-shoal-explain"
_MODEL_HEADER: Final = b"x-shoal-model"
NOT_SYNCED: Final = ApiError(
    503, "This router has not read its route table yet.", "not_synced", type="overloaded_error", retry_after_s=2.0
)


class Frontend:
    """One a process."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self.fleet = dispatcher.fleet
        self._created_s = int(time.time())
        self._session_order: tuple[str, ...] = ()
        self._read_names: frozenset[bytes] = frozenset()
        self.refusals: Counter[tuple[int, str]] = Counter()
        """Errors answered before a service was known, by status and reason."""
        self.write_stalls = 0

    def on_table(self, table: routes.RouteTable) -> None:
        self._session_order = tuple(name.lower() for name in table.session_headers)
        names = (*self._session_order, *session.PARENT_HEADERS, *caller.HEADERS)
        self._read_names = frozenset(name.encode() for name in names)

    # server.connection.Handler

    def refusal(self, connection: Connection) -> ApiError | None:
        path = connection.path
        if path is None:
            return ApiError(400, "The request target is not understood.", "malformed_http")
        if path in BY_PATH:
            if connection.method != "POST":
                return _not_allowed(connection.method, "POST")
            return _content_type_refusal(connection.head.content)
        if path == _MODELS or path.startswith(_MODEL):
            return None if connection.method == "GET" else _not_allowed(connection.method, "GET")
        return ApiError(404, f"No such path: {path[:200].decode('ascii', 'replace')}", "unknown_path", code="not_found")

    def shape(self, connection: Connection) -> Shape:
        api = BY_PATH.get(connection.path or b"")
        return api.shape if api is not None else "openai"

    def refused(self, error: ApiError) -> None:
        self.refusals[error.status, error.reason] += 1

    def stalled_write(self) -> None:
        self.write_stalls += 1

    def handle(self, connection: Connection, body: bytes) -> None:
        path = connection.path or b""
        api = BY_PATH.get(path)
        if api is None:
            self._answer_models(connection, path)
            return
        error = self._open(connection, api, body)
        if error is not None:
            self.refused(error)
            connection.answer_error(error, api.shape)

    # Requests for an engine

    def _open(self, connection: Connection, api: Api, body: bytes) -> ApiError | None:
        doc = checks.parse(body)
        if isinstance(doc, ApiError):
            return doc
        service = self._service(api, doc, connection.head.internal)
        if isinstance(service, ApiError):
            return service
        checked = checks.check(api, doc, service.vocab_size, service.context_tokens)
        if isinstance(checked, ApiError):
            return checked
        request = None
        if api.prompt is not None:
            told = self._policy_headers(connection.head)
            request = self._dispatcher.read(api.prompt, checked, len(body), told, self._session_order)
        exchange = self._dispatcher.open(
            service,
            connection,
            api,
            checked,
            body,
            connection.head.passed,
            request,
            (_EXPLAIN, b"1") in connection.head.internal,
        )
        connection.exchange = exchange
        exchange.start()
        return None

    def _service(self, api: Api, doc: dict[str, Any], headers: head.Headers) -> Service | ApiError:
        if self.fleet.table is None:
            return NOT_SYNCED
        name = doc.get("model")
        if api is apis.GENERATE:
            return self._native_service(name, headers)
        if name is None:
            return checks.invalid("'model' is required.", "model")
        if type(name) is not str or not name:
            return checks.invalid("'model' must be a non-empty string.", "model")
        return self.fleet.find(name) or _unknown_model(name)

    def _native_service(self, name: object, headers: head.Headers) -> Service | ApiError:
        """`/generate` has no model of its own: a header or a field may name it, a single service needs no name."""
        named = next((value.decode("utf-8", "replace") for key, value in headers if key == _MODEL_HEADER), name)
        if named is None and len(self.fleet.services) == 1:
            return next(iter(self.fleet.services.values()))
        if type(named) is not str or not named:
            return checks.invalid("Several models are served: name one in the header x-shoal-model.", "model")
        return self.fleet.find(named) or _unknown_model(named)

    def _policy_headers(self, found: head.Head) -> dict[str, str]:
        names = self._read_names
        told: dict[str, str] = {}
        for name, value in found.passed:
            if name in names:
                told[name.decode()] = value.decode("utf-8", "replace")
        for name, value in found.internal:
            if name in names:
                told[name.decode()] = value.decode("utf-8", "replace")
        return told

    def explain(self, body: bytes) -> dict[str, Any] | ApiError:
        """Every candidate for a request with its cost terms, cheapest first; the API is told by the body's fields."""
        doc = checks.parse(body)
        if isinstance(doc, ApiError):
            return doc
        api = apis.CHAT if "messages" in doc else apis.COMPLETIONS if "prompt" in doc else apis.GENERATE
        service = self._service(api, doc, [])
        if isinstance(service, ApiError):
            return service
        checked = checks.check(api, doc, service.vocab_size, service.context_tokens)
        if isinstance(checked, ApiError):
            return checked
        kind = api.prompt or requests.Api.GENERATE
        request = self._dispatcher.read(kind, checked, len(body), {}, self._session_order)
        now_s = self._dispatcher.now()
        terms = service.core.explain(request, now_s)
        return {
            "service": service.name,
            "slices": service.core.slices_expected(request, terms[0].replica, now_s) if terms else 0,
            "waiting": service.core.waiting,
            "candidates": [dataclasses.asdict(term) for term in terms],
            "other_replicas": {
                name: handle.state.value
                for name, handle in service.handles.items()
                if name not in {term.replica for term in terms}
            },
        }

    # Models

    def _answer_models(self, connection: Connection, path: bytes) -> None:
        if self.fleet.table is None:
            self.refused(NOT_SYNCED)
            connection.answer_error(NOT_SYNCED, "openai")
            return
        if path == _MODELS:
            listed = [self._model(name, service) for name, service in self.fleet.by_model.items()]
            connection.answer(200, _JSON, orjson.dumps({"object": "list", "data": listed}))
            return
        name = head.model_id(path, _MODEL)
        service = self.fleet.by_model.get(name) if name is not None else None
        if name is None or service is None:
            error = _unknown_model(name or "")
            self.refused(error)
            connection.answer_error(error, "openai")
            return
        connection.answer(200, _JSON, orjson.dumps(self._model(name, service)))

    def _model(self, name: str, service: Service) -> dict[str, Any]:
        served = service.table.served_name
        return {
            "id": name,
            "object": "model",
            "created": self._created_s,
            "owned_by": "shoal",
            "root": served,
            "parent": served if name != served else None,
            "max_model_len": service.context_tokens,
        }


def _unknown_model(name: str) -> ApiError:
    return ApiError(
        404, f"The model '{name[:200]}' does not exist.", "model_not_found", param="model", code="model_not_found"
    )


def _not_allowed(method: str, allowed: str) -> ApiError:
    return ApiError(405, f"The method {method[:20]} is not allowed here.", "wrong_method", allow=allowed)


def _content_type_refusal(headers: head.Headers) -> ApiError | None:
    """Absent is taken for JSON; a form or plain text is what a browser sends across origins without asking."""
    for name, value in headers:
        if name == b"content-type":
            kind = value.partition(b";")[0].strip().lower()
            if kind != b"application/json":
                return ApiError(400, "The content type must be application/json.", "invalid_request")
        elif name == b"content-encoding" and value.lower() != b"identity":
            return ApiError(415, "Encoded request bodies are not accepted.", "invalid_request")
    return None
