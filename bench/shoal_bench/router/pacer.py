"""Calls back at a constant rate with microsecond timers; the event loop's own have milliseconds.

Built on a timer file descriptor, which the loop watches like a socket, so that waiting costs no CPU: the generator
shares its core with engines. A tick that comes late is followed at once by those that it delayed: arrivals do not
wait for answers. Called by `load`.
"""

import asyncio
import ctypes
import errno
import os
import time
from collections.abc import Callable
from typing import Final

_CLOCK_MONOTONIC: Final = 1
_NONBLOCK: Final = os.O_NONBLOCK | os.O_CLOEXEC
_ABSOLUTE: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class _Time(ctypes.Structure):
    _fields_ = (("s", ctypes.c_long), ("ns", ctypes.c_long))


class _Timer(ctypes.Structure):
    _fields_ = (("interval", _Time), ("first", _Time))


class Pacer:
    """From `start` to `stop`, `on_tick(due_s)` at the rate; `due_s` is when the tick should have come, by
    `time.monotonic`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rate_per_s: float, on_tick: Callable[[float], None]) -> None:
        self._loop = loop
        self._interval_ns = max(1, round(1e9 / rate_per_s))
        self._on_tick = on_tick
        self._handle = -1
        self._due_ns = 0

    def start(self) -> None:
        handle: int = _LIBC.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK)
        if handle < 0:
            _raise("timerfd_create")
        self._handle = handle
        self._due_ns = time.monotonic_ns() + self._interval_ns
        timer = _Timer(_time(self._interval_ns), _time(self._due_ns))
        if _LIBC.timerfd_settime(handle, _ABSOLUTE, ctypes.byref(timer), None) != 0:
            _raise("timerfd_settime")
        self._loop.add_reader(handle, self._on_readable)

    def stop(self) -> None:
        if self._handle >= 0:
            self._loop.remove_reader(self._handle)
            os.close(self._handle)
            self._handle = -1

    def _on_readable(self) -> None:
        try:
            ticks = int.from_bytes(os.read(self._handle, 8), "little")
        except BlockingIOError:
            return
        for _ in range(ticks):
            due_ns = self._due_ns
            self._due_ns += self._interval_ns
            self._on_tick(due_ns / 1e9)


def _time(ns: int) -> _Time:
    return _Time(ns // 1_000_000_000, ns % 1_000_000_000)


def _raise(call: str) -> None:
    number = ctypes.get_errno()
    raise OSError(number, f"{call}: {errno.errorcode.get(number, '?')}")
