"""Puts Shoal and the quickstart into the demo's cluster with helm and kubectl, as a person would.

Blocking; the story calls it in a thread. Every call has a deadline.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from shoal_cli import kubectl

NAMESPACE = "shoal"
HELM_TIMEOUT_S = 90.0

VALUES = (
    # One router, reached at 127.0.0.1 through the local cluster's load balancer: Services do not route there.
    "router.default.spec.replicas=1",
    "router.default.spec.serviceType=LoadBalancer",
)


class InstallError(Exception):
    """helm or kubectl refused; the message is theirs."""


@dataclass(frozen=True, slots=True)
class Tools:
    """Where helm and kubectl are, and the cluster that they talk to."""

    binaries: Path
    kubeconfig: Path

    @property
    def target(self) -> kubectl.Target:
        return kubectl.Target(kubeconfig=self.kubeconfig, namespace=NAMESPACE, binary=self.binaries / "kubectl")


def install_chart(tools: Tools, chart: Path) -> str:
    command = [str(tools.binaries / "helm"), "install", "shoal", str(chart), f"--kubeconfig={tools.kubeconfig}"]
    command += ["--namespace", NAMESPACE, "--create-namespace"]
    for value in VALUES:
        command += ["--set", value]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=HELM_TIMEOUT_S, check=False)
    except (subprocess.TimeoutExpired, OSError) as error:
        raise InstallError(f"helm install: {error}") from error
    if done.returncode != 0:
        raise InstallError(f"helm install: {done.stderr.strip()}")
    return "helm install shoal charts/shoal --namespace shoal --create-namespace " + " ".join(
        f"--set {value}" for value in VALUES
    )


def apply(tools: Tools, path: Path) -> list[str]:
    """What kubectl says it made, one line an object."""
    try:
        return kubectl.output(tools.target, ["apply", "-f", str(path)], timeout_s=60).splitlines()
    except kubectl.KubectlError as error:
        raise InstallError(f"kubectl apply: {error}") from error
