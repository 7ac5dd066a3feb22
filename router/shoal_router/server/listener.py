"""The client listener: accepts, counts and bounds connections, and stops in the order that loses no request.

Closing: `stop_accepting` closes the socket and idle connections; busy ones close with their answer (`Connection:
close`); `wait_empty` waits for them, `abort_all` does not. Used by runtime.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from shoal_router.server.connection import Connection, Handler
from shoal_router.timers import Wheel

BACKLOG: Final = 4096
NEAR_LIMIT: Final = 0.9
UNUSED_S: Final = 1.0
"""A connection that has sent nothing for so long may be closed to make room."""


@dataclass(slots=True)
class Limits:
    """Bounds of client connections. The route table changes most of them at run time."""

    connections: int
    header_bytes: int = 64 << 10
    body_bytes: int = 64 << 20
    receiving_bytes: int = 512 << 20
    """Of all bodies that have not arrived whole."""
    header_s: float = 10.0
    body_s: float = 30.0
    """Longest silence inside a body."""
    idle_s: float = 620.0
    write_stall_s: float = 60.0


class Listener:
    """All client connections of this process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wheel: Wheel, limits: Limits, handler: Handler) -> None:
        self._loop = loop
        self.wheel = wheel
        self.limits = limits
        self.handler = handler
        self.now = wheel.now
        self.draining = False
        """Every answer from now on closes its connection."""
        self._open: set[Connection] = set()
        self._new: dict[Connection, float] = {}
        """Accepted, and no request yet: when, in that order."""
        self._idle: dict[Connection, None] = {}
        """In the order in which they became idle."""
        self._server: Any = None
        """uvloop's server, whose type differs from asyncio's."""
        self._empty = asyncio.Event()
        self.refused_connections = 0
        self.receiving_bytes = 0
        """Parts of bodies that have not arrived whole; connections keep it."""

    async def listen(self, host: str, port: int) -> int:
        """Start; returns the port, which the system chooses where `port` is 0."""
        self._server = await self._loop.create_server(self._accept, host, port, backlog=BACKLOG)
        return int(self._server.sockets[0].getsockname()[1])

    def _accept(self) -> Any:
        return Connection(self)

    @property
    def open_connections(self) -> int:
        return len(self._open)

    def opened(self, connection: Connection) -> bool:
        """False: there is no room for this one."""
        now_s = self.now()
        if len(self._open) >= self.limits.connections * NEAR_LIMIT:
            self._make_room(now_s)
        if len(self._open) >= self.limits.connections:
            self.refused_connections += 1
            return False
        self._open.add(connection)
        self._new[connection] = now_s
        return True

    def _make_room(self, now_s: float) -> None:
        """Close the connection that has been idle longest; where none is, one that was opened and never used. One that
        was opened just now is about to send its request."""
        oldest = next(iter(self._idle), None)
        if oldest is None:
            oldest = next(iter(self._new), None)
            if oldest is None or self._new[oldest] > now_s - UNUSED_S:
                return
        self._forget(oldest)
        oldest.close_idle()

    def _forget(self, connection: Connection) -> None:
        self._new.pop(connection, None)
        self._idle.pop(connection, None)

    def closed(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._forget(connection)
        if not self._open:
            self._empty.set()

    def busy(self, connection: Connection) -> None:
        self._forget(connection)

    def idle(self, connection: Connection) -> None:
        self._idle[connection] = None
        self.wheel.arm(connection, self.now() + self.limits.idle_s)

    def stop_accepting(self) -> None:
        """Close the socket and every connection without a request."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in (*self._new, *self._idle):
            connection.close_idle()
        if not self._open:
            self._empty.set()

    async def wait_empty(self) -> None:
        """Until no connection is open."""
        while self._open:
            self._empty.clear()
            await self._empty.wait()

    def abort_all(self) -> int:
        """Cut what is left; returns how many connections that were."""
        left = list(self._open)
        for connection in left:
            connection.abort()
        return len(left)
