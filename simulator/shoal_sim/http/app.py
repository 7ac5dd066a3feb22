"""Routes, authorization, and turning errors into answers."""

from collections.abc import Awaitable, Callable

import orjson

from shoal_sim.http import asgi, chat, control, info, probes
from shoal_sim.http.asgi import ClientGone, Exchange
from shoal_sim.http.errors import ApiError
from shoal_sim.runtime import Runtime
from shoal_sim.tokens import VocabularyError

Handler = Callable[[Runtime, Exchange], Awaitable[None]]

ROUTES: dict[str, dict[str, Handler]] = {
    "/": {"GET": info.root},
    "/health": {"GET": probes.health},
    "/health_generate": {"GET": probes.health_generate},
    "/ready": {"GET": probes.ready},
    "/v1/models": {"GET": info.models},
    "/model_info": {"GET": info.model_info},
    "/get_model_info": {"GET": info.model_info},
    "/server_info": {"GET": info.server_info},
    "/get_server_info": {"GET": info.server_info},
    "/v1/chat/completions": {"POST": chat.serve},
    "/abort_request": {"POST": control.abort},
    "/flush_cache": {"GET": control.flush, "POST": control.flush},
    "/pause_generation": {"POST": control.pause},
    "/continue_generation": {"POST": control.resume},
    "/admin/fault": {"POST": control.fault},
}


class App:
    """The ASGI application of one engine."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        exchange = asgi.exchange(scope, receive, send)
        try:
            await self._dispatch(exchange)
        except ApiError as error:
            await _answer(exchange, error)
        except ClientGone:
            return

    async def _dispatch(self, exchange: Exchange) -> None:
        methods = ROUTES.get(exchange.path)
        if methods is None and exchange.path.startswith("/v1/models/"):
            methods = {"GET": info.model}
        if methods is None:
            raise ApiError(404, {"detail": "Not Found"})
        handler = methods.get(exchange.method)
        if handler is None:
            allow = (b"allow", ", ".join(methods).encode())
            await exchange.reply(405, orjson.dumps({"detail": "Method Not Allowed"}), asgi.JSON, (allow,))
            return
        await handler(self._runtime, exchange)


async def _answer(exchange: Exchange, error: ApiError) -> None:
    if error.text is not None:
        await exchange.reply(error.status, error.text.encode(), asgi.TEXT)
    else:
        await exchange.reply(error.status, orjson.dumps(error.body), asgi.JSON)
