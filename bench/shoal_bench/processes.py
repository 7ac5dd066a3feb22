"""Processes of a benchmark: started on chosen cores with a log file, watched through /proc, always stopped.

Built on `shoal_local.child`: a program dies with the benchmark that started it, whatever ends that. Used by
`peers.launch` and by every benchmark that starts engines or routers.

    with contextlib.ExitStack() as stack:
        engine = processes.start("engine", [sys.executable, "-m", ...], folder, core=1)
        stack.callback(engine.stop)
        processes.wait_http(engine, "http://127.0.0.1:30000/health", deadline_s=20)
"""

import os
import resource
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shoal_local.child import Child

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_MB: Final = 1_000_000
_POLL_S: Final = 0.05


class NotReadyError(Exception):
    """A program ended, or was not ready in time; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Process:
    """A running program and all that it started."""

    name: str
    child: Child
    url: str = ""
    """Where clients reach it, without a slash at its end; empty for what serves nobody."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What else its starter knows, such as the address of its admin port."""

    @property
    def pid(self) -> int:
        pid = self.child.pid
        if pid is None:
            raise NotReadyError(self.child.failure() or f"{self.name} is not running")
        return pid

    def pids(self) -> list[int]:
        """It and its descendants."""
        return list(_tree(self.pid))

    def cpu_s(self) -> float:
        """Seconds of CPU so far, user and system: all threads, descendants, and those descendants that have ended."""
        return sum(_cpu_ticks(pid) for pid in self.pids()) / _TICKS_PER_S

    def rss_mb(self) -> float:
        """Resident memory in megabytes (10^6 bytes), descendants added."""
        return sum(_rss_bytes(pid) for pid in self.pids()) / _MB

    def stop(self, grace_s: float = 3.0) -> None:
        self.child.stop(grace_s)


def start(
    name: str,
    argv: Sequence[str],
    folder: Path,
    *,
    core: int | Collection[int] | None = None,
    env: Mapping[str, str] | None = None,
    url: str = "",
    facts: Mapping[str, str] | None = None,
) -> Process:
    """Starts a program; its output goes to `<folder>/<name>.log`, `env` is added to ours.

    `core`: the cores it may use. Set before the program starts, since thread pools are sized at start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    child = Child(name, [*pin_argv(core), *argv], folder / f"{name}.log", {**os.environ, **(env or {})})
    child.start()
    return Process(name, child, url, dict(facts or {}))


def pin_argv(core: int | Collection[int] | None) -> list[str]:
    """Words to put before a command that pin it; none for None."""
    if core is None:
        return []
    cores = [core] if isinstance(core, int) else sorted(core)
    return ["taskset", "--cpu-list", ",".join(map(str, cores))]


def wait_http(
    process: Process, url: str, deadline_s: float, text: str = "", accept: Callable[[str], bool] | None = None
) -> None:
    """Until a GET is answered with 200 and a body that contains `text` and that `accept` accepts."""
    end = time.monotonic() + deadline_s
    last = "no answer"
    while time.monotonic() < end:
        failure = process.child.failure()
        if failure is not None:
            raise NotReadyError(failure)
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                body = answer.read().decode(errors="replace")
                if text in body and (accept is None or accept(body)):
                    return
                last = body[:500]
        except urllib.error.HTTPError as error:
            with error:
                last = f"HTTP {error.code}"
        except OSError as error:
            last = str(error)
        time.sleep(_POLL_S)
    raise NotReadyError(f"{process.name} was not ready in {deadline_s} s at {url} ({last}); log: {process.child.log}")


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def raise_file_limit() -> int:
    """Raises the limit of open files as far as this user may, for us and what we start; returns it."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except FileNotFoundError:
        return
    for thread in threads:
        try:
            children = Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        for one in children:
            yield from _tree(int(one))


def _cpu_ticks(pid: int) -> int:
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    # The name in parentheses may hold spaces: fields are counted from its end. Fields 14 to 17 of proc(5).
    return sum(int(word) for word in line.rpartition(")")[2].split()[11:15])


def _rss_bytes(pid: int) -> int:
    try:
        words = Path(f"/proc/{pid}/statm").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE")
