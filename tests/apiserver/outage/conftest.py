"""A control plane of its own: its tests stop kube-apiserver and the node agent, and nodes are given up soon."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal_local.components import Tuning
from shoal_local.controlplane import ControlPlane
from shoal_local.node_agent import NodeAgent
from shoal_testing.nodeagent import running_agent


@pytest.fixture(scope="session")
def control_plane(control_plane_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """10 s in place of 40 s until a silent node is NotReady."""
    tuning = Tuning(node_monitor_grace_s=10)
    with ControlPlane(tmp_path_factory.mktemp("outage"), control_plane_binaries, tuning=tuning) as running:
        yield running


@pytest.fixture(scope="session")
def local_cluster(control_plane: ControlPlane) -> Iterator[NodeAgent]:
    """A node agent that renews its Leases accordingly."""
    with running_agent(control_plane, lease_period_s=1.0) as agent:
        yield agent
