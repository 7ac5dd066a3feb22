"""Routes, authorization, counting, and turning errors into answers."""

import hmac
from collections.abc import Awaitable, Callable

import orjson

from shoal_sim import metrics_text
from shoal_sim.faults import crash
from shoal_sim.http import asgi, chat, completions, control, generate, info, loads, probes, tokenize
from shoal_sim.http.asgi import ClientGoneError, Exchange
from shoal_sim.http.errors import ApiError, flat
from shoal_sim.runtime import Runtime
from shoal_sim.tokens import VocabularyError

Handler = Callable[[Runtime, Exchange], Awaitable[None]]

MODEL_ROUTE = "/v1/models/{model:path}"
UNKNOWN_ROUTE = "unknown"
OPEN_ROUTES = frozenset(("/health", "/health_generate", "/ready", "/metrics"))
ADMIN_ROUTES = frozenset(("/abort_request", "/flush_cache", "/pause_generation", "/continue_generation"))
_METRICS_TYPE = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")


async def embeddings(runtime: Runtime, exchange: Exchange) -> None:
    raise flat(
        "This model does not appear to be an embedding model by default. "
        "Please add `--is-embedding` when launching the server or try another model."
    )


ROUTES: dict[str, dict[str, Handler]] = {
    "/": {"GET": info.root},
    "/health": {"GET": probes.health},
    "/health_generate": {"GET": probes.health_generate},
    "/ready": {"GET": probes.ready},
    "/ping": {"GET": probes.ready},
    "/v1/models": {"GET": info.models},
    MODEL_ROUTE: {"GET": info.model},
    "/model_info": {"GET": info.model_info},
    "/get_model_info": {"GET": info.model_info},
    "/server_info": {"GET": info.server_info},
    "/get_server_info": {"GET": info.server_info},
    "/v1/loads": {"GET": loads.loads},
    "/v1/chat/completions": {"POST": chat.serve},
    "/v1/completions": {"POST": completions.serve},
    "/v1/embeddings": {"POST": embeddings},
    "/generate": {"POST": generate.serve, "PUT": generate.serve},
    "/v1/tokenize": {"POST": tokenize.tokenize},
    "/tokenize": {"POST": tokenize.tokenize},
    "/v1/detokenize": {"POST": tokenize.detokenize},
    "/detokenize": {"POST": tokenize.detokenize},
    "/abort_request": {"POST": control.abort},
    "/flush_cache": {"GET": control.flush, "POST": control.flush},
    "/pause_generation": {"POST": control.pause},
    "/continue_generation": {"POST": control.resume},
    "/admin/fault": {"GET": control.show_faults, "POST": control.fault},
}


class App:
    """The ASGI application of one engine."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._families = metrics_text.load_families()
        self._routes = dict(ROUTES)
        if runtime.settings.metrics:
            self._routes["/metrics"] = {"GET": self._metrics}

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        exchange = asgi.exchange(scope, receive, send)
        route = self._route(exchange.path)
        telemetry = self._runtime.telemetry
        telemetry.http_began(route, exchange.method)
        try:
            await self._dispatch(route, exchange)
        except ApiError as error:
            await _answer(exchange, error)
        except VocabularyError as error:
            # The engine does not check ids: one outside the vocabulary kills its scheduler, and with it the server.
            crash(f"token id outside the vocabulary: {error}")
        except ClientGoneError:
            return
        finally:
            telemetry.http_ended(route, exchange.method, exchange.status)

    def _route(self, path: str) -> str:
        if path in self._routes:
            return path
        return MODEL_ROUTE if path.startswith("/v1/models/") else UNKNOWN_ROUTE

    async def _dispatch(self, route: str, exchange: Exchange) -> None:
        if exchange.method == "OPTIONS" and "origin" in exchange.headers:
            await _preflight(exchange)
            return
        if not self._allowed(route, exchange.headers.get("authorization", "")):
            await exchange.reply(401, b'{"error":"Unauthorized"}', asgi.JSON, vary=False)
            return
        methods = self._routes.get(route)
        if methods is None:
            raise ApiError(404, {"detail": "Not Found"})
        handler = methods.get(exchange.method)
        if handler is None:
            allow = (b"allow", ", ".join(methods).encode())
            await exchange.reply(405, orjson.dumps({"detail": "Method Not Allowed"}), asgi.JSON, (allow,))
            return
        await handler(self._runtime, exchange)

    def _allowed(self, route: str, authorization: str) -> bool:
        settings = self._runtime.settings
        if route in OPEN_ROUTES:
            return True
        key = settings.api_key
        if route in ADMIN_ROUTES and settings.admin_api_key:
            key = settings.admin_api_key
        return key is None or hmac.compare_digest(authorization.encode(), f"Bearer {key}".encode())

    async def _metrics(self, runtime: Runtime, exchange: Exchange) -> None:
        """Chunked, as the engine's metrics application sends it."""
        page = metrics_text.render(self._families, runtime).encode()
        exchange.status = 200
        headers = [_METRICS_TYPE, asgi.VARY]
        await exchange.send({"type": "http.response.start", "status": 200, "headers": headers})
        await exchange.send({"type": "http.response.body", "body": page, "more_body": True})
        await exchange.send({"type": "http.response.body", "body": b""})


async def _preflight(exchange: Exchange) -> None:
    """CORS is open."""
    names = ("Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers")
    vary = ", ".join((*names, "Access-Control-Request-Private-Network")).encode()
    headers = [
        (b"vary", vary),
        (b"access-control-allow-methods", b"DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT, QUERY"),
        (b"access-control-max-age", b"600"),
        (b"access-control-allow-credentials", b"true"),
        (b"access-control-allow-origin", exchange.headers["origin"].encode("latin-1")),
        (b"content-length", b"2"),
        (b"content-type", asgi.TEXT),
    ]
    exchange.status = 200
    await exchange.send({"type": "http.response.start", "status": 200, "headers": headers})
    await exchange.send({"type": "http.response.body", "body": b"OK"})


async def _answer(exchange: Exchange, error: ApiError) -> None:
    if error.text is not None:
        # Answered outside of the engine's CORS layer, so without its header.
        await exchange.reply(error.status, error.text.encode(), asgi.TEXT, vary=False)
    else:
        await exchange.reply(error.status, orjson.dumps(error.body), asgi.JSON)
