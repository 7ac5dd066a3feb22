"""Bodies that arrive slowly on many connections are bounded together, and what they held comes back."""

import asyncio
from typing import Any

import pytest

from shoal_router.errors import ApiError, Shape
from shoal_router.server.connection import Connection, State
from shoal_router.server.listener import Limits, Listener
from shoal_router.timers import Wheel

_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n%b\r\n\r\n"


class _Transport:
    """Keeps what is written to it."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        pass

    def get_extra_info(self, name: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return False


class _Handler:
    """Takes every request."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def refusal(self, connection: Connection) -> ApiError | None:
        return None

    def shape(self, connection: Connection) -> Shape:
        return "openai"

    def handle(self, connection: Connection, body: bytes) -> None:
        self.bodies.append(body)

    def refused(self, error: ApiError) -> None:
        pass

    def stalled_write(self) -> None:
        pass


def _open(listener: Listener) -> tuple[Connection, _Transport]:
    connection, transport = Connection(listener), _Transport()
    made: Any = transport
    connection.connection_made(made)
    return connection, transport


@pytest.mark.parametrize("chunked", [True, False])
async def test_bodies_on_their_way_are_bounded_together(chunked: bool) -> None:
    loop = asyncio.get_running_loop()
    handler = _Handler()
    listener = Listener(loop, Wheel(loop), Limits(100, receiving_bytes=1000), handler)
    framing = b"transfer-encoding: chunked" if chunked else b"content-length: 500"
    part = b"190\r\n" + bytes(400) + b"\r\n" if chunked else bytes(400)
    rest = b"64\r\n" + bytes(100) + b"\r\n0\r\n\r\n" if chunked else bytes(100)
    first, second, third = (_open(listener) for _ in range(3))
    for connection, _ in (first, second, third):
        connection.data_received(_HEAD % framing)
    for connection, _ in (first, second, third):
        connection.data_received(part)
    assert (first[1].written, second[1].written) == (b"", b"")
    assert b" 503 " in third[1].written
    assert b"retry-after: 1\r\n" in third[1].written
    assert third[0].state is State.LINGER
    assert listener.receiving_bytes == 800
    first[0].data_received(rest)
    assert handler.bodies == [bytes(500)]
    assert listener.receiving_bytes == 400
    second[0].connection_lost(None)
    third[0].connection_lost(None)
    assert listener.receiving_bytes == 0
