"""A control plane of the chart's own: CRDs that other tests applied would conflict with those that helm installs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal_local.controlplane import ControlPlane


@pytest.fixture(scope="session")
def control_plane(control_plane_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """All four components; no nodes, no CRDs."""
    with ControlPlane(tmp_path_factory.mktemp("chart"), control_plane_binaries) as running:
        yield running
