"""A TCP forwarder: accepts on one port and relays each connection to one of several addresses.

Protocols over transports, without streams: the demo's token streams go through here. What is read is written at once;
a side that cannot take more stops the reading of the other (the transports' marks bound what is held).
"""

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Final, cast

log = logging.getLogger(__name__)

Address = tuple[str, int]
_CONNECT_DEADLINE_S: Final = 3.0
_HIGH_WATER_BYTES: Final = 256 * 1024
_BACKLOG: Final = 1024


def reset(transport: asyncio.BaseTransport) -> None:
    """Cuts a connection so that the other end sees a reset, not an end: `abort` alone sends an ordinary FIN."""
    connected = transport.get_extra_info("socket")
    if connected is not None:
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    cast("asyncio.Transport", transport).abort()


class _Half(asyncio.Protocol):
    """One side of a relayed connection; `peer` is the other."""

    def __init__(self, on_lost: Callable[[], None]) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer: _Half | None = None
        self._on_lost = on_lost
        self._eof = False
        self._early = bytearray()
        """What came before there was a peer; reading stops at the first of it."""
        self._early_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self.transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)

    def data_received(self, data: bytes) -> None:
        peer = self.peer
        if peer is not None:
            if peer.transport is not None:
                peer.transport.write(data)
            return
        self._early += data
        if self.transport is not None and not self._early_paused:
            # Not in connection_made: there, uvloop starts to read afterwards whatever was asked.
            self._early_paused = True
            self.transport.pause_reading()

    def join(self, peer: "_Half") -> None:
        """Relays to `peer` from now on, first what has come already."""
        self.peer = peer
        if peer.transport is not None:
            if self._early:
                peer.transport.write(bytes(self._early))
                self._early.clear()
            if self._eof and peer.transport.can_write_eof():
                peer.transport.write_eof()
        if self._early_paused and self.transport is not None:
            self._early_paused = False
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.resume_reading()

    def eof_received(self) -> bool:
        """Passes a half-close on and keeps the other direction open."""
        self._eof = True
        peer = self.peer
        if peer is None:
            return True  # `join` passes it on
        if peer.transport is None:
            return False
        if peer.transport.can_write_eof():
            peer.transport.write_eof()
        return not peer._eof

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        peer, self.peer = self.peer, None
        if peer is not None and peer.transport is not None:
            # A reset must arrive as one: an aborted stream is not a finished one.
            if exc is not None:
                reset(peer.transport)
            else:
                peer.transport.close()
        self._on_lost()


class Forwarder:
    """Listens on 127.0.0.1 and spreads connections over what `targets` names, the least busy first."""

    def __init__(self, name: str, targets: Callable[[], Sequence[Address]]) -> None:
        self._name = name
        self._targets = targets
        self._server: asyncio.Server | None = None
        self._open: dict[Address, int] = {}
        self._turn = 0
        self._halves: set[_Half] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def connections(self) -> int:
        """Connections to targets that are open or being opened."""
        return sum(self._open.values())

    async def listen(self, host: str, port: int) -> None:
        """Starts to accept; OSError when the port is taken."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, host, port, backlog=_BACKLOG)

    async def close(self) -> None:
        """Stops accepting and cuts what is open."""
        if self._server is not None:
            self._server.close()
        for half in list(self._halves):
            if half.transport is not None:
                half.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def order(self) -> list[Address]:
        """Targets to try for one connection: least connections first, ties in turn."""
        targets = list(self._targets())
        self._turn += 1
        turned = targets[self._turn % len(targets) :] + targets[: self._turn % len(targets)] if targets else []
        return sorted(turned, key=lambda each: self._open.get(each, 0))

    def _accept(self) -> asyncio.Protocol:
        client = _Client(self)
        self._halves.add(client)
        return client

    def forget(self, half: _Half) -> None:
        """A side is closed."""
        self._halves.discard(half)

    def connect_for(self, client: _Half) -> None:
        """Finds a target for a fresh client."""
        task = asyncio.get_running_loop().create_task(self._connect(client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, client: _Half) -> None:
        loop = asyncio.get_running_loop()
        for address in self.order():
            self._open[address] = self._open.get(address, 0) + 1
            upstream = _Upstream(self, address)
            try:
                async with asyncio.timeout(_CONNECT_DEADLINE_S):
                    await loop.create_connection(lambda half=upstream: half, *address)  # type: ignore[misc]
            except (OSError, TimeoutError):
                if upstream.transport is None:
                    self.release(address)
                continue
            self._join(client, upstream)
            return
        if client.transport is not None:
            log.info("No Pod takes connections of %s", self._name)
            reset(client.transport)

    def _join(self, client: _Half, upstream: _Half) -> None:
        if client.transport is None:  # gone meanwhile
            if upstream.transport is not None:
                upstream.transport.close()
            return
        self._halves.add(upstream)
        client.join(upstream)
        upstream.join(client)

    def release(self, address: Address) -> None:
        """One connection fewer to an address."""
        left = self._open.get(address, 0) - 1
        if left > 0:
            self._open[address] = left
        else:
            self._open.pop(address, None)


class _Client(_Half):
    """The accepted side; looks for somebody to write to as soon as it is there."""

    def __init__(self, owner: Forwarder) -> None:
        super().__init__(lambda: owner.forget(self))
        self._owner = owner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._owner.connect_for(self)


class _Upstream(_Half):
    """The side towards a Pod."""

    def __init__(self, owner: Forwarder, address: Address) -> None:
        super().__init__(self._lost)
        self._owner = owner
        self._address = address

    def _lost(self) -> None:
        self._owner.forget(self)
        self._owner.release(self._address)
