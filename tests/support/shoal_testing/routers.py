"""Router processes for tests: real `shoal-router` processes on free loopback ports, discovery from files.

    with router(replicas={"a": fleet[0].url}) as one:
        httpx.post(f"{one.url}/v1/chat/completions", json=...)

`routes` and `replicas` may be rewritten while it runs. Logs are JSON lines in `log`.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from shoal_testing import bound, routerbuild
from shoal_testing.engines import MODEL

ROOT: Final = Path(__file__).resolve().parents[3]
START_DEADLINE_S: Final = 20.0
STOP_DEADLINE_S: Final = 5.0
SERVICE: Final = "svc"


def service(name: str = SERVICE, served_name: str = MODEL, **fields: Any) -> dict[str, Any]:
    """One service of a route table."""
    return {"name": name, "served_name": served_name, **fields}


@dataclass(slots=True)
class RunningRouter:
    """One router process; `url` and `admin` have no slash at their end."""

    url: str
    admin: str
    process: subprocess.Popen[bytes]
    folder: Path
    log: Path
    table: dict[str, Any] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://").partition(":")[0]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def write_routes(self, services: Sequence[Mapping[str, Any]], generation: str, **fields: Any) -> None:
        self.table = {"generation": generation, "services": list(services), **fields}
        _write(self.folder / "routes.json", self.table)

    def write_replicas(self, replicas: Mapping[str, str], service_name: str = SERVICE) -> None:
        listed = [{"name": name, "service": service_name, "url": url} for name, url in replicas.items()]
        _write(self.folder / "replicas.json", {"replicas": listed})

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of an admin page."""
        try:
            with urllib.request.urlopen(f"{self.admin}{path}", timeout=5) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def state(self) -> dict[str, Any]:
        status, body = self.get("/state")
        assert status == 200
        found: dict[str, Any] = json.loads(body)
        return found

    def service_state(self, name: str = SERVICE) -> dict[str, Any]:
        return next(one for one in self.state()["services"] if one["name"] == name)

    def states(self, name: str = SERVICE) -> dict[str, str]:
        """State of each replica."""
        found = [one for one in self.state()["services"] if one["name"] == name]
        return {replica["name"]: replica["state"] for one in found for replica in one["replicas"]}

    def metric(self, name: str, **labels: str) -> float:
        """Sum of the samples of one metric that have these labels."""
        total = 0.0
        for line in self.get("/metrics")[1].decode().splitlines():
            series, _, value = line.rpartition(" ")
            if series.partition("{")[0] == name and all(f'{key}="{want}"' in series for key, want in labels.items()):
                total += float(value)
        return total

    def wait(self, condition: Callable[["RunningRouter"], object], deadline_s: float = 10.0) -> None:
        """Until `condition` holds. Raises with the router's log."""
        end = time.monotonic() + deadline_s
        while not condition(self):
            if time.monotonic() > end or self.process.poll() is not None:
                raise AssertionError(f"condition not met; log of the router:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.02)

    def wait_routable(self, *names: str) -> None:
        self.wait(lambda one: all(one.states().get(name) == "Routable" for name in names))

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)


@contextlib.contextmanager
def router(
    replicas: Mapping[str, str],
    *args: str,
    services: Sequence[Mapping[str, Any]] | None = None,
    wait_ready: bool = True,
    table: Mapping[str, Any] | None = None,
    host: str = "127.0.0.1",
) -> Iterator[RunningRouter]:
    """Starts a router whose replicas, all of `services`' first one, are routable when the context opens."""
    with tempfile.TemporaryDirectory(prefix="shoal-router-") as name:
        folder = Path(name)
        listed = list(services) if services is not None else [service()]
        _write(folder / "routes.json", {"generation": "g1", "services": listed, **(table or {})})
        named = (
            [{"name": key, "service": listed[0]["name"], "url": url} for key, url in replicas.items()] if listed else []
        )
        _write(folder / "replicas.json", {"replicas": named})
        files = ("--routes", str(folder / "routes.json"), "--replicas", str(folder / "replicas.json"))
        with router_process(folder, host, *files, *args) as one:
            if wait_ready:
                one.wait(lambda it: it.get("/readyz")[0] == 200)
                if listed:
                    first = listed[0]["name"]
                    one.wait(lambda it: all(it.states(first).get(key) == "Routable" for key in replicas))
            yield one


@contextlib.contextmanager
def router_process(
    folder: Path, host: str, *args: str, env: Mapping[str, str] | None = None
) -> Iterator[RunningRouter]:
    """Starts a router with these arguments; ports are the system's choice."""
    log = folder / "router.log"
    paths = os.pathsep.join((str(routerbuild.folder()), str(ROOT / "crds")))
    environment = {**os.environ, "PYTHONPATH": paths, **(env or {})}
    command = [sys.executable, "-m", "shoal_router", "--host", host, "--port", "0", "--admin-port", "0", *args]
    with log.open("wb") as output:
        process = bound.popen(command, environment, output)
    try:
        port, admin_port = _ports(process, log)
        yield RunningRouter(f"http://{host}:{port}", f"http://{host}:{admin_port}", process, folder, log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(STOP_DEADLINE_S)


def _ports(process: subprocess.Popen[bytes], log: Path) -> tuple[int, int]:
    end = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < end and process.poll() is None:
        for line in log.read_text().splitlines():
            if line.startswith("{") and line.endswith("}"):
                found = json.loads(line)
                if found.get("message") == "listening":
                    return found["port"], found["admin_port"]
        time.sleep(0.02)
    raise AssertionError(f"the router did not start:\n{log.read_text()[-4000:]}")


def _write(path: Path, value: object) -> None:
    """Atomically, as Kubernetes updates a volume: a reader never sees half a file."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(value))
    fresh.replace(path)
