"""Puts Shoal and the quickstart into the demo's cluster with helm and kubectl, as a person would.

Blocking; the story calls it in a thread. Every call has a deadline.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from shoal_cli import kubectl

NAMESPACE = "shoal"
HELM_TIMEOUT_S = 90.0
LOG_LINES = 60

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
    command += ["--namespace", NAMESPACE, "--create-namespace", "--wait", f"--timeout={HELM_TIMEOUT_S:.0f}s"]
    for value in VALUES:
        command += ["--set", value]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=HELM_TIMEOUT_S + 10, check=False)
    except (subprocess.TimeoutExpired, OSError) as error:
        raise InstallError(f"helm install: {error}") from error
    if done.returncode != 0:
        raise InstallError(f"helm install: {done.stderr.strip()}")
    return "helm install shoal charts/shoal --namespace shoal --create-namespace --wait " + " ".join(
        f"--set {value}" for value in VALUES
    )


def apply(tools: Tools, path: Path) -> list[str]:
    """What kubectl says it made, one line an object."""
    try:
        return kubectl.output(tools.target, ["apply", "-f", str(path)], timeout_s=60).splitlines()
    except kubectl.KubectlError as error:
        raise InstallError(f"kubectl apply: {error}") from error


def diagnose(tools: Tools) -> str:
    """Pods, events and the ends of the Pods' logs: what one would ask for first when it does not work."""
    asked = [["get", "modelservices.shoal.dev,routers.shoal.dev,pods", "-o", "wide"], ["get", "events"]]
    parts = [_answer(tools, arguments) for arguments in asked]
    names = _answer(tools, ["get", "pods", "-o", "name"]).split()
    parts += [_answer(tools, ["logs", name, f"--tail={LOG_LINES}"]) for name in names if name.startswith("pod/")]
    return "\n".join(parts)


def _answer(tools: Tools, arguments: list[str]) -> str:
    line = f"$ kubectl {' '.join(arguments)}\n" if arguments[-1] != "name" else ""
    try:
        return line + kubectl.output(tools.target, arguments)
    except kubectl.KubectlError as error:
        return f"{line}{error}\n"
