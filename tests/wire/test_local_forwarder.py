"""The local cluster's TCP forwarder over real sockets."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
import uvloop

from shoal_local.agent.forwarder import Address, Forwarder, reset
from shoal_local.ports import pick_ports

pytestmark = pytest.mark.wire

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
    writer.close()


class Running:
    """A forwarder with changeable targets; closes every connection of a test at its end."""

    def __init__(self) -> None:
        self.targets: list[Address] = []
        self.forwarder = Forwarder("test", lambda: self.targets)
        self.port = pick_ports(1)[0]
        self._writers: list[asyncio.StreamWriter] = []
        self._servers: list[asyncio.Server] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        return reader, writer

    async def serve(self, handler: Handler) -> Address:
        async def noted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._writers.append(writer)
            await handler(reader, writer)

        server = await asyncio.start_server(noted, "127.0.0.1", 0)
        self._servers.append(server)
        host, port = server.sockets[0].getsockname()[:2]
        return host, port

    async def close(self) -> None:
        await self.forwarder.close()
        for server in self._servers:
            server.close()
        for writer in self._writers:
            writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def on_uvloop(scenario: Callable[[Running], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test on uvloop, as the agent runs: its transports differ in when they start to read."""

    async def whole() -> None:
        running = Running()
        await running.forwarder.listen("127.0.0.1", running.port)
        try:
            await scenario(running)
        finally:
            await running.close()

    def test() -> None:
        uvloop.run(whole())

    return test


async def until(fact: Callable[[], bool]) -> None:
    """Waits for a fact, ten seconds at most."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 10
    while not fact():
        assert loop.time() < deadline
        await asyncio.sleep(0.01)


@on_uvloop
async def test_bytes_and_half_close_pass_both_ways(running: Running) -> None:
    address = await running.serve(echo)
    running.targets = [address]
    reader, writer = await running.connect()
    content = bytes(range(256)) * 20_000
    writer.write(content)
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(-1), 10) == content
    writer.close()


@on_uvloop
async def test_connections_are_spread_and_a_dead_target_is_passed_over(running: Running) -> None:
    seen: list[int] = []

    def named(index: int) -> Handler:
        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen.append(index)
            await reader.read(-1)
            writer.close()

        return handler

    one, two = await running.serve(named(1)), await running.serve(named(2))
    running.targets = [one, ("127.0.0.1", pick_ports(1)[0]), two]
    open_ones = [await running.connect() for _ in range(10)]

    await until(lambda: len(seen) == 10)
    assert sorted((seen.count(1), seen.count(2))) == [5, 5]
    for _, writer in open_ones:
        writer.close()


@on_uvloop
async def test_without_targets_a_connection_is_reset(running: Running) -> None:
    reader, writer = await running.connect()
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.read(1), 10)
    writer.close()


@on_uvloop
async def test_reset_of_the_pod_reaches_the_client_as_a_reset(running: Running) -> None:
    async def breaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"half an ans")
        await writer.drain()
        await reader.readexactly(2)
        reset(writer.transport)

    address = await running.serve(breaks)
    running.targets = [address]
    reader, writer = await running.connect()
    assert await asyncio.wait_for(reader.readexactly(11), 10) == b"half an ans"
    writer.write(b"go")
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.read(1), 10)
    writer.close()


@on_uvloop
async def test_slow_reader_stops_the_sender(running: Running) -> None:
    sent = 0
    full = asyncio.Event()

    async def pours(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        chunk = b"x" * 65536
        for _ in range(2000):  # 131 MB, far more than any buffer on the way
            writer.write(chunk)
            try:
                await asyncio.wait_for(writer.drain(), 1.0)
            except TimeoutError:
                full.set()
                break
            sent += len(chunk)
        writer.transport.abort()

    address = await running.serve(pours)
    running.targets = [address]
    await running.connect()  # and never reads
    await asyncio.wait_for(full.wait(), 20)
    assert sent < 64 * 1024**2


@on_uvloop
async def test_counts_come_down_when_connections_end(running: Running) -> None:
    address = await running.serve(echo)
    running.targets = [address, ("127.0.0.1", pick_ports(1)[0])]
    for _ in range(5):
        reader, writer = await running.connect()
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(-1), 10) == b""
        writer.close()

    await until(lambda: running.forwarder.connections == 0)
