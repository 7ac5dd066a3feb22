"""Simulated engines for tests: real processes on free loopback ports, started together, stopped in any case.

    with engines(3) as fleet:
        httpx.post(f"{fleet[0].url}/v1/chat/completions", json=...)

An engine is ready when the context opens (or `wait_ready=False`). `fault` switches faults on, `kill` is SIGKILL.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from shoal_testing import bound

SIMULATOR: Final = Path(__file__).resolve().parents[3] / "simulator"
START_DEADLINE_S: Final = 20.0
STOP_DEADLINE_S: Final = 5.0
PORT_TRIES: Final = 3
MODEL: Final = "tiny-llama"
DEFAULT_ARGS: Final = ("--page-size", "64", "--enable-cache-report", "--enable-metrics")


@dataclass(slots=True)
class SimulatedEngine:
    """One engine process; `url` has no slash at its end."""

    host: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path
    command: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def fault(self, **settings: Any) -> None:
        """Replaces the engine's faults (stall, crash_after_tokens, slow_ready_s, reject); none switches all off."""
        body = json.dumps(settings).encode()
        request = urllib.request.Request(
            f"{self.url}/admin/fault", data=body, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            answer.read()

    def kill(self) -> None:
        """SIGKILL, and waits until the process is gone."""
        self.process.kill()
        self.process.wait(STOP_DEADLINE_S)

    def stop_signal(self) -> None:
        """SIGSTOP: the process hangs, its connections stay open. `continue_signal` undoes it."""
        self.process.send_signal(signal.SIGSTOP)

    def continue_signal(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        self.process.terminate()

    def status_of(self, path: str) -> int | None:
        """HTTP status of a GET, or None where nothing answers."""
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=2) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return None


@contextlib.contextmanager
def engines(
    count: int = 1,
    *args: str,
    model: str = MODEL,
    speedup: float = 1.0,
    profile: str = "tiny",
    env: dict[str, str] | None = None,
    wait_ready: bool = True,
    hosts: Sequence[str] | None = None,
) -> Iterator[list[SimulatedEngine]]:
    """Starts `count` engines with `args` after DEFAULT_ARGS. `hosts` gives each its loopback address."""
    fleet: list[SimulatedEngine] = []
    with tempfile.TemporaryDirectory(prefix="shoal-engines-") as folder:
        try:
            for index in range(count):
                host = hosts[index] if hosts else "127.0.0.1"
                log = Path(folder) / f"engine-{index}.log"
                fleet.append(_start(host, args, model, speedup, profile, env or {}, log))
            if wait_ready:
                for engine in fleet:
                    _wait_or_move(engine)
            yield fleet
        finally:
            for engine in fleet:
                if engine.process.poll() is None:
                    engine.process.kill()
            for engine in fleet:
                engine.process.wait(STOP_DEADLINE_S)


def wait_until_ready(engine: SimulatedEngine, deadline_s: float = START_DEADLINE_S) -> None:
    """Raises with the engine's log when it ends or is not ready in time."""
    end = time.monotonic() + deadline_s
    while engine.status_of("/ready") != 200 or engine.process.poll() is not None:
        if engine.process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"engine on {engine.address} is not ready:\n{engine.log.read_text()[-4000:]}")
        time.sleep(0.02)


def _wait_or_move(engine: SimulatedEngine) -> None:
    """A port that was free a moment ago may be taken by another test's server: then another one is tried."""
    for _ in range(PORT_TRIES):
        try:
            wait_until_ready(engine)
            return
        except RuntimeError:
            if "address already in use" not in engine.log.read_text():
                raise
            engine.port = free_port(engine.host)
            engine.process = _spawn(engine.command, engine.host, engine.port, engine.environment, engine.log)
    wait_until_ready(engine)


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def _start(
    host: str, args: Sequence[str], model: str, speedup: float, profile: str, env: dict[str, str], log: Path
) -> SimulatedEngine:
    command = ["--model-path", f"/models/{model}", "--served-model-name", model, *DEFAULT_ARGS, *args]
    command += ["--speedup", str(speedup), "--profile", profile]
    environment = {**os.environ, "PYTHONPATH": str(SIMULATOR), "PYTHONUNBUFFERED": "1", **env}
    port = free_port(host)
    process = _spawn(command, host, port, environment, log)
    return SimulatedEngine(host, port, process, log, command, environment)


def _spawn(
    command: list[str], host: str, port: int, environment: dict[str, str], log: Path
) -> "subprocess.Popen[bytes]":
    whole = [sys.executable, "-m", "shoal_sim", "engine", "--host", host, "--port", str(port), *command]
    with log.open("wb") as output:
        return bound.popen(whole, environment, output)
