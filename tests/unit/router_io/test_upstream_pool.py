"""Connections to engines: who asked gets the one it asked for, and only connections in order are used again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from shoal_router.upstream.connection import Connection, Failure, Headers
from shoal_router.upstream.pool import Pool
from shoal_testing.waiting import until


class _Asker:
    """Asks pools for connections and notes what it gets."""

    def __init__(self) -> None:
        self.awaited: object | None = None
        self.got: list[Connection] = []
        self.failures: list[Failure] = []
        self.ended = 0

    def on_connection(self, connection: Connection) -> None:
        self.got.append(connection)

    def on_failed(self, failure: Failure) -> None:
        self.failures.append(failure)

    def on_head(self, status: int, headers: Headers) -> None:
        pass

    def on_body(self, data: bytes) -> None:
        pass

    def on_end(self) -> None:
        self.ended += 1


class _Engine(asyncio.Protocol):
    """Says nothing; or answers at once, before it has read the request, and never reads the rest."""

    def __init__(self, answers: bool, transports: list[asyncio.Transport]) -> None:
        self._answers = answers
        self._transports = transports

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transports.append(transport)

    def data_received(self, data: bytes) -> None:
        if self._answers:
            self._transports[-1].pause_reading()
            self._transports[-1].write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")


@contextlib.asynccontextmanager
async def _pool(answers: bool = False) -> AsyncIterator[Pool]:
    loop = asyncio.get_running_loop()
    transports: list[asyncio.Transport] = []
    server = await loop.create_server(lambda: _Engine(answers, transports), "127.0.0.1", 0)
    pool = Pool(loop, "127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        yield pool
    finally:
        server.close()
        for transport in transports:
            transport.abort()
        pool.abort()
        await until(lambda: not pool._connections)
        await server.wait_closed()


async def test_connection_that_comes_late_is_not_for_one_that_asked_elsewhere_meanwhile() -> None:
    async with _pool() as first, _pool() as second:
        asker = _Asker()
        first.acquire(asker)
        asker.awaited = None  # its replica is lost
        second.acquire(asker)
        await until(lambda: len(first._idle) == 1)
        await until(lambda: bool(asker.got))
        assert [connection._pool for connection in asker.got] == [second]
        assert not asker.failures


async def test_failure_that_comes_late_is_not_for_one_that_asked_elsewhere_meanwhile() -> None:
    async with _pool() as second:
        asker = _Asker()
        refused = Pool(asyncio.get_running_loop(), "127.0.0.1", 1)
        refused.acquire(asker)
        asker.awaited = None
        second.acquire(asker)
        await until(lambda: bool(asker.got) and not refused._connects)
        assert not asker.failures


async def test_connection_whose_request_was_not_read_to_its_end_is_not_used_again() -> None:
    async with _pool(answers=True) as pool:
        asker = _Asker()
        pool.acquire(asker)
        await until(lambda: bool(asker.got))
        body = bytes(64 << 20)
        asker.got[0].send(asker, [b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body), body])
        await until(lambda: asker.ended == 1)
        assert not pool._idle
