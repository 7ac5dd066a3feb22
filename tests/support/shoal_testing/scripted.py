"""A server on loopback that answers each request as the test says: for how clients take streams that go wrong.

It is not a model of an engine (the simulator is); it sends what it is given, byte for byte, and may cut the line.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

READ_DEADLINE_S = 10.0


@dataclass(frozen=True, slots=True)
class Request:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """`hold` keeps the line open without a byte after `chunks`; `cut` closes it without the end of the body."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    chunks: tuple[bytes, ...] = ()
    cut: bool = False
    hold: bool = False


@dataclass(slots=True)
class Server:
    url: str
    requests: list[Request] = field(default_factory=list)


@contextlib.asynccontextmanager
async def serve(script: Callable[[Request, int], Reply]) -> AsyncIterator[Server]:
    """`script` gets each request and its number from 0."""
    writers: set[asyncio.StreamWriter] = set()
    server = Server("")

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        try:
            while (request := await _read(reader)) is not None:
                server.requests.append(request)
                if not await _answer(writer, script(request, len(server.requests) - 1)):
                    return
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            return
        finally:
            writers.discard(writer)
            writer.close()

    listener = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    host, port = listener.sockets[0].getsockname()[:2]
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        listener.close()
        for writer in list(writers):
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    async with asyncio.timeout(READ_DEADLINE_S):
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(first.split(" ")[1], headers, body)


async def _answer(writer: asyncio.StreamWriter, reply: Reply) -> bool:
    """Returns whether the connection can be used again."""
    headers = {"content-type": "text/event-stream", "transfer-encoding": "chunked", **reply.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"HTTP/1.1 {reply.status} Scripted\r\n{lines}\r\n".encode())
    for chunk in reply.chunks:
        writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        await writer.drain()
    if reply.hold:
        await asyncio.sleep(READ_DEADLINE_S)
    if reply.cut or reply.hold:
        return False
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True
