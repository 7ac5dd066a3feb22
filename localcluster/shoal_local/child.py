"""One long-running program of ours (a control plane component, the node agent): started, watched, stopped.

Output goes to a log file; `failure` gives its end when the program has died. The program dies with the thread that
started it (see `launch`), so callers start from a thread that lives as long as they do.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_LAUNCHER = Path(__file__).with_name("launch.py")
_LOG_BYTES_MAX = 50 * 1024**2
_TAIL_LINES = 15


def order_file(order: Mapping[str, object]) -> int:
    """An inheritable, nameless file with the launcher's order; the caller closes it."""
    handle = os.memfd_create("shoal-launch")
    os.write(handle, json.dumps(order).encode())
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def launcher_argv(handle: int) -> list[str]:
    """The launcher's command line for an order."""
    return [sys.executable, "-I", "-S", str(_LAUNCHER), str(handle)]


def tail(path: Path, lines: int = _TAIL_LINES, bytes_max: int = 16384) -> str:
    """The last lines of a log, empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - bytes_max))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""


class Child:
    """A program with a name and a log file; `start` may be called again after `stop`."""

    def __init__(self, name: str, argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.argv = list(argv)
        self.log = log
        self._env = dict(os.environ if env is None else env)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Starts the program in a session of its own, so that Ctrl-C reaches us only and we stop it in order."""
        if self.pid is not None:
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if self.log.exists() and self.log.stat().st_size > _LOG_BYTES_MAX:
            self.log.replace(self.log.with_suffix(".old.log"))
        handle = order_file({"parent": os.getpid(), "argv": self.argv, "env": self._env, "cwd": str(self.log.parent)})
        try:
            with self.log.open("ab") as output:
                self._process = subprocess.Popen(
                    launcher_argv(handle),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=(handle,),
                    start_new_session=True,
                )
        finally:
            os.close(handle)

    def failure(self) -> str | None:
        """None while it runs or was never started; else how it ended and the end of its log."""
        if self._process is None or self._process.poll() is None:
            return None
        return f"{self.name} ended with exit code {self._process.returncode}; end of {self.log}:\n{tail(self.log)}"

    def stop(self, grace_s: float = 10.0) -> None:
        """SIGTERM, then after `grace_s` SIGKILL, to the program and what it started; returns when it has gone."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(grace_s)
            except subprocess.TimeoutExpired:
                process.kill()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
