"""The admin port: /livez, /readyz, /metrics, /state, /debug/route. Plain asyncio, off the data path."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import orjson

from shoal_api import state
from shoal_router.errors import REASONS, ApiError
from shoal_router.server import metrics
from shoal_router.server.frontend import Frontend
from shoal_router.server.listener import Listener

READ_TIMEOUT_S: Final = 10.0
HEAD_BYTES_MAX: Final = 64 << 10
_JSON: Final = b"application/json"
_TEXT: Final = b"text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes
    content_type: bytes = _TEXT


class Admin:
    """One a process."""

    def __init__(self, frontend: Frontend, listener: Listener, router: str, instance: str) -> None:
        self._frontend = frontend
        self._listener = listener
        self._router = router
        self._instance = instance
        self._started_at_s = time.time()
        self._now = listener.now
        self._server: asyncio.Server | None = None
        self._routes: dict[tuple[str, str], Callable[[bytes], Reply]] = {
            ("GET", "/livez"): lambda _: Reply(200, b"ok\n"),
            ("GET", "/readyz"): lambda _: self._ready(),
            ("GET", "/metrics"): lambda _: self._metrics(),
            ("GET", "/state"): lambda _: self._state(),
            ("POST", "/debug/route"): self._explain,
        }

    async def listen(self, host: str, port: int) -> int:
        self._server = await asyncio.start_server(self._serve, host, port, limit=HEAD_BYTES_MAX)
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request a connection."""
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                reply = await self._read(reader)
                head = b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (
                    reply.status,
                    REASONS[reply.status],
                    reply.content_type,
                    len(reply.body),
                )
                writer.write(head + reply.body)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # whoever asked has gone, or did not speak HTTP
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Reply:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
        if length > self._listener.limits.body_bytes:
            return Reply(413, b"too large\n")
        body = await reader.readexactly(length)
        path = target.partition("?")[0]
        handler = self._routes.get((method, path))
        if handler is None:
            known = any(path == listed for _, listed in self._routes)
            return Reply(405 if known else 404, b"")
        return handler(body)

    def _ready(self) -> Reply:
        """Ready once discovery is synced: a router without replicas must be reachable to say so with a 503."""
        if self._listener.draining:
            return Reply(503, b"draining\n")
        if not self._frontend.fleet.synced:
            return Reply(503, b"discovery is not synced\n")
        return Reply(200, b"ok\n")

    def _metrics(self) -> Reply:
        page = metrics.render(self._frontend.fleet, self._frontend, self._listener, self._now())
        return Reply(200, page, metrics.CONTENT_TYPE)

    def router_state(self) -> state.RouterState:
        fleet = self._frontend.fleet
        return state.RouterState(
            router=self._router,
            instance=self._instance,
            started_at_s=self._started_at_s,
            routes_generation=fleet.table.generation if fleet.table is not None else None,
            discovery_synced=fleet.synced,
            draining=self._listener.draining,
            services=tuple(service.core.state(self._now()) for service in fleet.services.values()),
        )

    def _state(self) -> Reply:
        return Reply(200, self.router_state().model_dump_json().encode(), _JSON)

    def _explain(self, body: bytes) -> Reply:
        """Dry run: the body of a request in, every candidate with its cost terms out. Nothing is reserved."""
        found = self._frontend.explain(body)
        if isinstance(found, ApiError):
            return Reply(found.status, found.body("openai"), _JSON)
        return Reply(200, orjson.dumps(found), _JSON)
