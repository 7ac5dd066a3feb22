"""Connections to one replica: kept-alive ones are reused last in, first out; a new one is opened when none is idle.

Why idle ones are dropped after 4 s: SGLang's server closes an idle connection after 5 s, and a request that meets that
close has to be sent again. Used by dispatch (requests, probes).
"""

import asyncio
import socket
import time
from collections import deque
from typing import Any, Final, Protocol

from shoal_router.upstream.connection import RECEIVE_BUFFER_BYTES, Connection, Failure

_monotonic: Final = time.monotonic
CONNECT_TIMEOUT_S: Final = 1.0
IDLE_S: Final = 4.0
IDLE_MAX: Final = 512
USER_TIMEOUT_MS: Final = 10_000
"""Sent bytes that nobody acknowledges for so long end the connection: a peer that vanished without a word."""


class Waiter(Protocol):
    """Who asked for a connection: gets exactly one of these calls, perhaps before `acquire` returns."""

    awaited: object | None
    """The connection it waits for, set by the pool; cleared by a waiter that has lost interest. One that then asks
    elsewhere waits for another: what the first attempt brings, late, is not for it."""

    def on_connection(self, connection: Connection) -> None: ...

    def on_failed(self, failure: Failure) -> None: ...


class Pool:
    """All connections to one address."""

    __slots__ = ("_closed", "_connections", "_connects", "_idle", "_loop", "authority", "host", "last_byte_s", "port")

    def __init__(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> None:
        self._loop = loop
        self.host = host
        self.port = port
        self.authority = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}").encode()
        """For the Host header."""
        self._idle: deque[Connection] = deque()
        self._connections: set[Connection] = set()
        self._connects: set[asyncio.Task[None]] = set()
        self._closed = False
        self.last_byte_s = 0.0
        """Monotonic time at which any byte came from this replica."""

    def on_bytes(self) -> None:
        self.last_byte_s = _monotonic()

    def acquire(self, waiter: Waiter, fresh: bool = False) -> None:
        """Give the waiter a connection: an idle one at once, else a new one unless it cannot be had in time."""
        now_s = _monotonic()
        idle = self._idle
        while idle and idle[0].idle_since_s < now_s - IDLE_S:
            idle.popleft().close()
        waiter.awaited = None
        while idle and not fresh:
            connection = idle.pop()
            if connection.usable:
                connection.reused_s = now_s
                waiter.on_connection(connection)
                return
        waiter.awaited = attempt = object()
        task = self._loop.create_task(self._connect(waiter, attempt))
        self._connects.add(task)
        task.add_done_callback(self._connects.discard)

    def release(self, connection: Connection) -> None:
        """Take back a connection whose response is complete."""
        if self._closed or len(self._idle) >= IDLE_MAX:
            connection.close()
            return
        connection.idle_since_s = self.last_byte_s  # it is released by the last byte of its response
        self._idle.append(connection)

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if connection.receiver is None and connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        """Close idle connections now and busy ones when their response ends."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def abort(self) -> None:
        """Drop everything; receivers of busy connections hear nothing."""
        self._closed = True
        for task in self._connects:
            task.cancel()
        for connection in list(self._connections):
            connection.abort()
        self._idle.clear()

    def _protocol(self) -> Any:
        return Connection(self)

    async def _connect(self, waiter: Waiter, attempt: object) -> None:
        connection: Connection | None = None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, connection = await self._loop.create_connection(self._protocol, sock=await self._dial())
        except OSError:  # TimeoutError is one
            pass
        if connection is None or not connection.usable:
            if waiter.awaited is attempt:
                waiter.awaited = None
                waiter.on_failed(Failure.CONNECT)
            return
        self._connections.add(connection)
        if waiter.awaited is attempt:
            waiter.awaited = None
            waiter.on_connection(connection)
        else:
            self.release(connection)

    async def _dial(self) -> socket.socket:
        """A connected socket. The receive buffer has to be set before connecting, or its window is not bounded."""
        family, kind, proto, _, address = (await self._loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM))[
            0
        ]
        sock = socket.socket(family, kind, proto)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
            await self._loop.sock_connect(sock, address)
        except BaseException:
            sock.close()
            raise
        return sock
