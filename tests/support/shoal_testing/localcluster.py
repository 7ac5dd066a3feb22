"""A local cluster with Shoal installed by helm, for end-to-end tests: the product as a user has it.

with shoal_cluster(folder, speedup=20) as cluster:
    cluster.kubectl("apply", "-n", NAMESPACE, "-f", "examples/quickstart")
    cluster.wait_ready("coder")
    httpx.post(f"{cluster.url}/v1/chat/completions", ...)
"""

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

from shoal_local import binaries
from shoal_local import cluster as local
from shoal_testing.apiserver import Tool

ROOT = Path(__file__).parents[3]
NAMESPACE = "shoal"
ADDRESS_ANNOTATION = "shoal.dev/local-address"
_POLL_S = 0.2
_T = TypeVar("_T")


def wait_for(what: str, look: Callable[[], _T | None], deadline_s: float) -> _T:
    """The first answer that is not None or False; AssertionError with what was seen last otherwise."""
    until = time.monotonic() + deadline_s
    while True:
        seen = look()
        if seen is not None and seen is not False:
            return seen
        assert time.monotonic() < until, f"not within {deadline_s:.0f} s: {what}"
        time.sleep(_POLL_S)


@dataclass(frozen=True)
class ShoalCluster:
    """A running cluster; `url` is the default Router's endpoint."""

    folder: Path
    kubectl: Tool
    helm: Tool
    url: str

    def get(self, *arguments: str) -> dict[str, Any]:
        """An object, or a list, as JSON."""
        found: dict[str, Any] = json.loads(self.kubectl("get", "-n", NAMESPACE, *arguments, "-o", "json").stdout)
        return found

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get("modelservice", name).get("status") or {}
        return found

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        """One condition of a ModelService; empty if it is not there, or about an older spec."""
        item = self.get("modelservice", name)
        for one in (item.get("status") or {}).get("conditions") or ():
            if one["type"] == kind and one["observedGeneration"] == item["metadata"]["generation"]:
                return dict(one)
        return {}

    def wait_ready(self, name: str, *, deadline_s: float = 90.0) -> dict[str, Any]:
        """Waits for Ready=True at the newest generation; gives the status."""

        def ready() -> bool:
            return self.condition(name, "Ready").get("status") == "True"

        try:
            wait_for(f"{name} Ready", ready, deadline_s)
        except AssertionError as error:
            told = self.kubectl("describe", "-n", NAMESPACE, "modelservice", name).stdout
            raise AssertionError(f"{error}\n{told}") from error
        return self.status(name)

    def engine_pods(self, service: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("pods", "-l", f"shoal.dev/service={service}")["items"]
        return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def shoal_cluster(folder: Path, *, routers: int = 1, **settings: Any) -> Iterator[ShoalCluster]:
    """`settings` are those of `shoal local up`: engine, engine_env, speedup, profile."""
    found = binaries.find()
    assert found is not None, "run `make controlplane` first"
    lines: list[str] = []
    asked = local.ClusterSettings(binaries=found, port=free_port(), **settings)
    try:
        local.up(folder, asked, lines.append)
        kubectl, helm = (Tool(found / name, folder / "kubeconfig", folder / "home") for name in ("kubectl", "helm"))
        helm(
            *("install", "shoal", ROOT / "charts/shoal", "--namespace", NAMESPACE, "--create-namespace"),
            *("--set", f"router.default.spec.replicas={routers}"),
            *("--set", "router.default.spec.serviceType=LoadBalancer"),
        )
        yield ShoalCluster(folder, kubectl, helm, _endpoint(kubectl))
    finally:
        local.down(folder, keep_data=False, progress=lines.append)


def _endpoint(kubectl: Tool) -> str:
    def look() -> str | None:
        done = kubectl("get", "service", "shoal-router-default", "-n", NAMESPACE, "-o", "json", check=False)
        if done.returncode != 0:
            return None
        address = json.loads(done.stdout)["metadata"].get("annotations", {}).get(ADDRESS_ANNOTATION)
        if address is None:
            return None
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"http://{address}/v1/models", timeout=2).status_code == 200:
                return f"http://{address}"
        return None

    return wait_for("the default Router answers", look, 60)
