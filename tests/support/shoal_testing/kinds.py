"""Fixtures with Shoal's CRDs on the kube-apiserver of the session (`api_server`, no controllers)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal_api import crd
from shoal_local.controlplane import ControlPlane
from shoal_testing import apiserver, objects


def install(kubectl: apiserver.Tool, folder: Path) -> None:
    """Apply the CRDs as the models give them, and wait until they are served."""
    crd.write_definitions(folder)
    kubectl("apply", "--server-side", "--force-conflicts", "-f", folder)
    kubectl("wait", "--for=condition=Established", "--timeout=20s", "-f", folder)


@pytest.fixture(scope="session")
def kinds_server(api_server: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    """`api_server` with the CRDs."""
    install(apiserver.tool("kubectl", api_server), tmp_path_factory.mktemp("crds"))
    return api_server


@pytest.fixture(scope="session")
def kinds_api(kinds_server: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[objects.Api]:
    """Requests for Shoal's kinds as administrator."""
    with objects.api(kinds_server.kubeconfig, tmp_path_factory.mktemp("client")) as client:
        yield client


@pytest.fixture
def kinds_kubectl(kinds_server: ControlPlane) -> apiserver.Tool:
    """kubectl where the CRDs are."""
    return apiserver.tool("kubectl", kinds_server)
