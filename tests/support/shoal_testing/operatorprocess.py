"""The operator as a process of its own, with a ServiceAccount's token and exactly the rights of `kube/access.py`."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import yaml

from shoal_local import ports
from shoal_operator.kube import access
from shoal_testing import bound
from shoal_testing.cluster import Cluster, Object

NAMESPACE = "shoal-system"
ACCOUNT = "shoal-operator"


def install_rights(cluster: Cluster) -> None:
    """Namespace, ServiceAccount, and roles made from the list that the chart is tested against."""
    if cluster.get("Namespace", NAMESPACE) is not None:
        return
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    cluster.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": NAMESPACE}}
    )
    for kind, rules, namespace in (
        ("ClusterRole", access.ACCESS, None),
        ("Role", access.LEASE_ACCESS, NAMESPACE),
    ):
        meta = {"name": ACCOUNT} if namespace is None else {"name": ACCOUNT, "namespace": namespace}
        api = "rbac.authorization.k8s.io/v1"
        cluster.create(
            {
                "apiVersion": api,
                "kind": kind,
                "metadata": meta,
                "rules": [
                    {"apiGroups": [one.group], "resources": [one.resource], "verbs": list(one.verbs)} for one in rules
                ],
            }
        )
        cluster.create(
            {
                "apiVersion": api,
                "kind": f"{kind}Binding",
                "metadata": meta,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": ACCOUNT},
                "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
            }
        )


def write_kubeconfig(cluster: Cluster, admin: Path, path: Path) -> Path:
    """A kubeconfig with a token of the operator's ServiceAccount."""
    url = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    answer = cluster.client.post(url, json=request)
    answer.raise_for_status()
    config: Object = yaml.safe_load(admin.read_text())
    config["users"] = [{"name": ACCOUNT, "user": {"token": answer.json()["status"]["token"]}}]
    config["contexts"][0]["context"]["user"] = ACCOUNT
    path.write_text(yaml.safe_dump(config))
    return path


@dataclass
class Operator:
    """A running operator."""

    process: subprocess.Popen[bytes]
    log: Path
    metrics_url: str
    health_url: str

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry these labels."""
        total = 0.0
        for line in httpx.get(f"{self.metrics_url}/metrics", timeout=5).text.splitlines():
            if line.startswith((f"{name}{{", f"{name} ")) and all(
                f'{key}="{value}"' in line for key, value in labels.items()
            ):
                total += float(line.rsplit(" ", 1)[1])
        return total

    @property
    def leading(self) -> bool:
        try:
            return self.metric("shoal_operator_leader") == 1
        except httpx.HTTPError:
            return False

    def alive(self) -> bool:
        try:
            return httpx.get(f"{self.health_url}/livez", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False


@contextmanager
def operator(kubeconfig: Path, folder: Path, identity: str, *arguments: str) -> Iterator[Operator]:
    """Start one and wait until it answers; SIGTERM at the end, SIGKILL if that is not enough."""
    metrics_port, health_port = ports.pick_ports(2)
    log = folder / f"{identity}.log"
    argv = [
        *(sys.executable, "-P", "-m", "shoal_operator", "run", "--host", "127.0.0.1"),
        *("--metrics-port", str(metrics_port), "--health-port", str(health_port)),
        *("--kubeconfig", str(kubeconfig), "--namespace", NAMESPACE, "--identity", identity),
        *("--router-image", "registry.example/shoal-router:test", "--tick-seconds", "0.5", *arguments),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with log.open("ab") as output:
        process = bound.popen(argv, environment, output)
    running = Operator(process, log, f"http://127.0.0.1:{metrics_port}", f"http://127.0.0.1:{health_port}")
    try:
        _wait(running)
        yield running
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)


def _wait(running: Operator) -> None:
    deadline = time.monotonic() + 90
    pause = threading.Event()
    while not running.alive():
        code = running.process.poll()
        if code is not None or time.monotonic() > deadline:
            raise AssertionError(f"the operator did not start (exit {code}): {running.log.read_text()[-3000:]}")
        pause.wait(0.1)
