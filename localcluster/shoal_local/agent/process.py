"""A container's process: started through the launcher in its own session, root and host name; signalled; joined.

The only module of the agent that starts or signals processes. Must be called from the main thread: a container dies
with the thread that started it, which is how none outlives the agent.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shoal_local.child import launcher_argv, order_file

_EXEC_DEADLINE_S: Final = 30.0
_REPORT_BYTES: Final = 4096
_OUTPUT_BYTES_MAX: Final = 4096
LAUNCH_FAILED: Final = 128


class StartError(Exception):
    """The program could not be started; the message says why."""


@dataclass(frozen=True, slots=True)
class Order:
    """All that a start needs."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    root: Mapping[str, Any] | None
    """See `launch_root`; None runs on the machine's own root."""
    no_new_privileges: bool = False


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended; `signal` is 0 when it exited by itself."""

    code: int
    signal: int


class Process:
    """A running container process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """Its process id, the same before and after the launcher has become the program."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not been reaped yet."""
        return self._process.returncode is None

    async def wait(self) -> Exit:
        """Returns when it has ended, after killing what it left behind in its process group."""
        code = await self._process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        return Exit(128 - code, -code) if code < 0 else Exit(code, 0)

    def terminate(self) -> None:
        """SIGTERM to the first process only, as a container runtime does."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the whole group."""
        if self.running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


def _order(order: Order, report: int | None, join: int | None) -> int:
    return order_file(
        {
            "parent": os.getpid(),
            "argv": list(order.argv),
            "env": dict(order.env),
            "cwd": order.cwd,
            "root": order.root,
            "no_new_privileges": order.no_new_privileges,
            **({} if report is None else {"report": report}),
            **({} if join is None else {"join": join}),
        }
    )


async def start(order: Order, log: Path) -> Process:
    """Starts a container; returns once the program itself runs. Raises StartError with the launcher's reason."""
    if not order.argv:
        raise StartError("no command specified: neither the Pod nor the image map has one")
    reading, writing = os.pipe()
    try:
        handle = _order(order, writing, None)
        try:
            with log.open("ab") as output:
                process = await asyncio.create_subprocess_exec(
                    *launcher_argv(handle),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(handle, writing),
                    start_new_session=True,
                )
        except OSError as error:
            raise StartError(str(error)) from error
        finally:
            os.close(handle)
            os.close(writing)
        started = Process(process)
        try:
            failure = await asyncio.wait_for(_until_closed(reading), _EXEC_DEADLINE_S)
        except BaseException:
            started.kill()
            await asyncio.shield(started.wait())
            raise
    finally:
        os.close(reading)
    if failure:
        await started.wait()
        raise StartError(failure.decode(errors="replace").strip())
    return started


async def _until_closed(handle: int) -> bytes:
    """What is written to a pipe until every writer has closed it; exec closes the launcher's end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bytes] = loop.create_future()
    read = bytearray()
    os.set_blocking(handle, False)

    def on_readable() -> None:
        try:
            chunk = os.read(handle, _REPORT_BYTES)
        except BlockingIOError:
            return
        read.extend(chunk[: _REPORT_BYTES - len(read)])
        if not chunk and not done.done():
            done.set_result(bytes(read))

    loop.add_reader(handle, on_readable)
    try:
        return await done
    finally:
        loop.remove_reader(handle)


async def run_inside(target: Process, order: Order, timeout_s: float) -> tuple[int, str]:
    """Runs a command in a container's namespaces (exec probes, preStop); (exit code, end of its output).

    Raises TimeoutError; the command is killed then.
    """
    join = target.pid if order.root is not None else None
    handle = _order(order, None, join)
    try:
        process = await asyncio.create_subprocess_exec(
            *launcher_argv(handle),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=(handle,),
            start_new_session=True,
        )
    finally:
        os.close(handle)
    try:
        output = await asyncio.wait_for(_read_end(process.stdout), timeout_s)
        code = await asyncio.wait_for(process.wait(), timeout_s)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())
    return code, output.decode(errors="replace")


async def _read_end(stream: asyncio.StreamReader | None) -> bytes:
    kept = b""
    if stream is not None:
        while chunk := await stream.read(_OUTPUT_BYTES_MAX):
            kept = (kept + chunk)[-_OUTPUT_BYTES_MAX:]
    return kept
