"""Near its limit of open connections the router closes those that nobody uses, and none that is about to be used."""

import asyncio
from typing import Any

import pytest

from shoal_router.errors import ApiError, Shape
from shoal_router.server.connection import Connection
from shoal_router.server.listener import Limits, Listener
from shoal_router.timers import Wheel

LIMIT = 10
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"


class _Transport:
    """Remembers that it was closed."""

    def __init__(self) -> None:
        self.closed = False

    def write(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        pass

    def get_extra_info(self, name: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0


class _Handler:
    """Answers every request at once."""

    def refusal(self, connection: Connection) -> ApiError | None:
        return None

    def shape(self, connection: Connection) -> Shape:
        return "openai"

    def handle(self, connection: Connection, body: bytes) -> None:
        connection.answer(200, [], b"{}")

    def refused(self, error: ApiError) -> None:
        pass

    def stalled_write(self) -> None:
        pass


class _Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def _open(listener: Listener) -> tuple[Connection, _Transport]:
    connection, transport = Connection(listener), _Transport()
    given: Any = transport
    connection.connection_made(given)
    return connection, transport


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
async def listener(clock: _Clock) -> Listener:
    loop = asyncio.get_running_loop()
    made = Listener(loop, Wheel(loop), Limits(LIMIT), _Handler())
    made.now = clock
    return made


async def test_connections_opened_just_now_stay_until_the_limit(listener: Listener, clock: _Clock) -> None:
    opened = [_open(listener) for _ in range(LIMIT)]
    assert not any(transport.closed for _, transport in opened)
    _, refused = _open(listener)
    assert refused.closed
    assert listener.refused_connections == 1


async def test_one_that_was_never_used_makes_room_after_a_second(listener: Listener, clock: _Clock) -> None:
    opened = [_open(listener) for _ in range(LIMIT - 1)]
    clock.now_s += 1.5
    _, late = _open(listener)
    assert [transport.closed for _, transport in opened] == [True] + [False] * (LIMIT - 2)
    assert not late.closed


async def test_an_idle_one_goes_before_one_that_was_not_used_yet(listener: Listener, clock: _Clock) -> None:
    opened = [_open(listener) for _ in range(LIMIT - 1)]
    for connection, _ in opened[3:5]:
        connection.data_received(REQUEST)
    clock.now_s += 1.5
    _open(listener)
    assert [number for number, (_, transport) in enumerate(opened) if transport.closed] == [3]
