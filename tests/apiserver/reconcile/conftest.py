"""Fixtures of the operator's tests against a real control plane of their own: a stand-in plays all of its nodes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal_local.controlplane import ControlPlane
from shoal_testing.stage import operator_process, place, stage

__all__ = ["operator_process", "place", "stage"]


@pytest.fixture(scope="session")
def control_plane(control_plane_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """All four components; test_watches stops kube-apiserver, and is the last to use it."""
    with ControlPlane(tmp_path_factory.mktemp("reconcile"), control_plane_binaries) as running:
        yield running
