"""Fixtures with a real Kubernetes control plane, one a test process, in a folder and on ports of its own.

`control_plane` has all four components; `api_server` has etcd and kube-apiserver only, which is quicker and enough for
schemas and CEL. `kubectl`, `helm` and `namespace` go with `control_plane`, `api_kubectl` with `api_server`.
Tests that install other things on it, or stop it, have another one: their folder's conftest overrides `control_plane`.
"""

import os
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shoal_local import binaries
from shoal_local.controlplane import ControlPlane

_COMMAND_DEADLINE_S = 50.0


@dataclass(frozen=True)
class Tool:
    """kubectl or helm against one cluster: `kubectl("get", "pods").stdout`. Raises with stderr when it fails."""

    program: Path
    kubeconfig: Path
    home: Path

    def __call__(
        self,
        *arguments: str | Path,
        stdin: str | None = None,
        check: bool = True,
        timeout_s: float = _COMMAND_DEADLINE_S,
    ) -> subprocess.CompletedProcess[str]:
        # The discovery cache is keyed by address, and ports come back: it must not be shared between clusters.
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(self.home / "kube"),
            "HELM_CACHE_HOME": str(self.home / "helm-cache"),
            "HELM_CONFIG_HOME": str(self.home / "helm-config"),
            "HELM_DATA_HOME": str(self.home / "helm-data"),
        }
        done = subprocess.run(
            [str(self.program), *map(str, arguments)],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{self.program.name} {' '.join(map(str, arguments))}: {done.stderr}{done.stdout}")
        return done


def tool(name: str, control_plane: ControlPlane) -> Tool:
    """A program of the control plane's folder bound to its administrator."""
    return Tool(control_plane.binaries / name, control_plane.kubeconfig, control_plane.folder / "home")


@pytest.fixture(scope="session")
def control_plane_binaries() -> Path:
    """Folder with etcd, kube-apiserver, ... ; built before the tests, because it takes minutes."""
    found = binaries.find()
    if found is None:
        pytest.fail("the control plane is not built yet: run `make controlplane` (about 7 minutes, once)")
    return found


@pytest.fixture(scope="session")
def control_plane(control_plane_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd, kube-apiserver, kube-controller-manager, kube-scheduler; no nodes."""
    with ControlPlane(tmp_path_factory.mktemp("control-plane"), control_plane_binaries) as running:
        yield running


@pytest.fixture(scope="session")
def api_server(control_plane_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver only."""
    folder = tmp_path_factory.mktemp("api-server")
    with ControlPlane(folder, control_plane_binaries, controllers=False) as running:
        yield running


@pytest.fixture
def kubectl(control_plane: ControlPlane) -> Tool:
    """kubectl on `control_plane` as administrator."""
    return tool("kubectl", control_plane)


@pytest.fixture
def api_kubectl(api_server: ControlPlane) -> Tool:
    """kubectl on `api_server` as administrator."""
    return tool("kubectl", api_server)


@pytest.fixture
def helm(control_plane: ControlPlane) -> Tool:
    """helm on `control_plane` as administrator."""
    return tool("helm", control_plane)


@pytest.fixture
def namespace(kubectl: Tool) -> Iterator[str]:
    """A fresh namespace on `control_plane`, deleted afterwards without waiting."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    kubectl("create", "namespace", name)
    try:
        yield name
    finally:
        kubectl("delete", "namespace", name, "--wait=false", check=False)
