"""Reading and writing over ASGI, and nothing about the engine.

Header names, their order and the framing are those of the captured engine: content-length for whole bodies, chunked
for streams with every event in a chunk of its own, `vary: Origin` on everything.
"""

import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import orjson

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
EVENTS = b"text/event-stream; charset=utf-8"
VARY = (b"vary", b"Origin")

DONE = b"data: [DONE]\n\n"


@dataclass(slots=True)
class Exchange:
    """One request and the means to answer it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    receive: Receive
    send: Send
    status: int = field(default=0)
    received_s: float = field(default=0.0)
    """When the whole body was there, by the monotonic clock; 0 before."""

    async def body(self) -> bytes:
        parts: list[bytes] = []
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            part = message.get("body", b"")
            if part:
                parts.append(part)
            if not message.get("more_body"):
                self.received_s = time.monotonic()
                return parts[0] if len(parts) == 1 else b"".join(parts)

    async def gone(self) -> None:
        """Returns when the client has closed the connection. Only after the body was read."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def reply(
        self,
        status: int,
        body: bytes = b"",
        content_type: bytes | None = None,
        extra: tuple[tuple[bytes, bytes], ...] = (),
        vary: bool = True,
    ) -> None:
        headers = [*extra, (b"content-length", str(len(body)).encode())]
        if content_type is not None:
            headers.append((b"content-type", content_type))
        if vary:
            headers.append(VARY)
        self.status = status
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    async def reply_json(self, value: object, status: int = 200) -> None:
        await self.reply(status, orjson.dumps(value), JSON)

    async def start_events(self) -> None:
        self.status = 200
        headers = [(b"content-type", EVENTS), VARY]
        await self.send({"type": "http.response.start", "status": 200, "headers": headers})

    async def event(self, data: bytes) -> None:
        """Sends one SSE event, given with its `data: ` and blank line."""
        await self.send({"type": "http.response.body", "body": data, "more_body": True})

    async def end_events(self) -> None:
        await self.event(DONE)
        await self.send({"type": "http.response.body", "body": b""})


class ClientGoneError(Exception):
    """The client closed the connection before its request was complete."""


def exchange(scope: Scope, receive: Receive, send: Send) -> Exchange:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    return Exchange(scope["method"], scope["path"], query, headers, receive, send)


def sse(value: object) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"
