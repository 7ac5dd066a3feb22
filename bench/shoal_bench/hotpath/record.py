"""One profile: the router under one load, its CPU without the profiler and its stacks with it. Called by `run`.

The profiler stops the process for every sample, so what a request costs is measured before it begins; the profile says
how that is divided.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

import uvloop

from shoal_bench import processes
from shoal_bench.router import bodies, load, wrk

RATE_HZ: Final = 400
CONNECTIONS: Final = 32
STREAMS: Final = 2_000
PACES_MS: Final = range(190, 210)
"""Streams have one of these, so that tokens come in groups as from batches, not all at once."""
ENDLESS_TOKENS: Final = 1_000_000
ATTACH_S: Final = 3.0
"""What the profiler takes to read symbols before its first sample, and to write its file: load goes on so long."""
GRACE_S: Final = 60.0
_REFUSED: Final = ("permission denied", "operation not permitted", "eperm")


class ProfilerError(Exception):
    """No profile; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Span:
    """How long each part takes."""

    warm_s: float
    plain_s: float
    record_s: float


@dataclass(frozen=True, slots=True)
class Profile:
    """Of one load."""

    cpu_us: float
    """Of one request or chunk, taken without the profiler."""
    per_s: float
    """Requests or chunks, likewise."""
    busy: float
    """CPU seconds a second, likewise."""
    lines: tuple[str, ...]
    """Raw stacks."""


class Load(Protocol):
    """Something that asks a router for work."""

    def run(self, seconds: float) -> int:
        """For so long; how many requests or chunks came."""


class Requests:
    """One wrk script, kept connections, as fast as they are answered."""

    def __init__(self, script: Path, url: str, core: int) -> None:
        self._script, self._url, self._core = script, url, core
        self._number = 0

    def run(self, seconds: float) -> int:
        result = wrk.run(self._script, self._url, seconds, CONNECTIONS, self._number, self._core)
        if result.errors:
            raise wrk.WrkError(f"{result.errors}, of {result.requests} requests")
        self._number += 1_000_000  # no run sends what an earlier one sent
        return result.requests


class Chunks:
    """Streams that bring a token every 0.2 s; opened once, then watched."""

    def __init__(self, runner: asyncio.Runner, tally: load.Tally) -> None:
        self._runner, self._tally = runner, tally

    def run(self, seconds: float) -> int:
        before = self._tally.events
        self._runner.run(asyncio.sleep(seconds))
        if self._tally.broken:
            raise load.LoadError(f"{len(self._tally.broken)} streams broke, the first: {self._tally.broken[0]}")
        return self._tally.events - before


@contextlib.contextmanager
def chunks(url: str) -> Iterator[Chunks]:
    """Streams, each of which has begun; closed at the end."""
    parts = urlsplit(url)
    host, port = parts.hostname, parts.port
    assert host is not None
    assert port is not None
    templates = [bodies.paced(ENDLESS_TOKENS, gap_ms) for gap_ms in PACES_MS]
    tally = load.Tally()

    def request(number: int) -> bytes:
        return templates[number % len(templates)].request(f"{host}:{port}", number)

    async def begin() -> list[load.Stream]:
        opened = await load.connect(host, port, STREAMS, tally, request)
        await load.until(lambda: len(tally.first_s) >= STREAMS, tally, f"{STREAMS} streams begun")
        return opened

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        streams = runner.run(begin())
        try:
            yield Chunks(runner, tally)
        finally:
            for one in streams:
                one.abort()


def take(router: processes.Process, work: Load, span: Span, file: Path) -> Profile:
    """Raises ProfilerError, and what the load raises."""
    work.run(span.warm_s)
    cpu_s, began_s = router.cpu_s(), time.monotonic()
    count = work.run(span.plain_s)
    cpu_s, seconds = router.cpu_s() - cpu_s, time.monotonic() - began_s
    if count == 0:
        raise load.LoadError("nothing was answered")
    lines = _record(router.pid, span.record_s, file, lambda: work.run(span.record_s + ATTACH_S))
    return Profile(cpu_s / count * 1e6, count / seconds, cpu_s / seconds, lines)


def argv(pid: int, seconds: float, file: Path) -> list[str]:
    return [
        str(Path(sys.executable).parent / "py-spy"), "record", "--native", "--format", "raw", "--rate", str(RATE_HZ),
        "--duration", str(max(1, round(seconds))), "--pid", str(pid), "--output", str(file),
    ]  # fmt: skip


def refusal(output: str) -> str | None:
    """What to tell a user whom the system does not let look into processes; None where it failed otherwise."""
    if not any(word in output.lower() for word in _REFUSED):
        return None
    who = "root" if os.geteuid() == 0 else f"user {os.geteuid()}"
    return (
        f"py-spy may not read the router's memory here (it runs as {who}). It needs ptrace: run as root, in a "
        "container with --cap-add SYS_PTRACE, or with kernel.yama.ptrace_scope=0."
    )


def _record(pid: int, seconds: float, file: Path, meanwhile: Callable[[], object]) -> tuple[str, ...]:
    file.unlink(missing_ok=True)
    log = file.with_suffix(".log")
    with log.open("w") as output:
        profiler = subprocess.Popen(argv(pid, seconds, file), stdout=output, stderr=subprocess.STDOUT)
    try:
        meanwhile()
        code = profiler.wait(seconds + GRACE_S)
    except subprocess.TimeoutExpired as error:
        raise ProfilerError(f"py-spy did not end; its log is {log}") from error
    finally:
        if profiler.poll() is None:
            profiler.kill()
            profiler.wait()
    said = log.read_text()
    if code != 0 or not file.exists():
        raise ProfilerError(refusal(said) or f"py-spy failed: {said[-1000:]}")
    return tuple(file.read_text().splitlines())
