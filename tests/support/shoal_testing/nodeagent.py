"""A session-wide local cluster for tests: the control plane of `apiserver` plus a node agent with two nodes.

`local_cluster` starts the agent once; `python` is an image that stands for the tests' own interpreter.
"""

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal_local.agent.settings import Settings
from shoal_local.controlplane import ControlPlane
from shoal_local.identity import cluster_id_of, memory_root
from shoal_local.images import Environment, render_images
from shoal_local.node_agent import NodeAgent

NODES = """
nodes:
  - {name: cpu-0, cpu: "32", memory: 64Gi}
  - {name: b200-0, cpu: "64", memory: 512Gi, gpu: {type: B200, count: 8, memoryGiB: 180}}
"""


def wait_until(fact: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    """Waits for a condition with a deadline; the failure names it."""
    deadline = time.monotonic() + timeout_s
    while not fact():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        time.sleep(0.1)


def make_settings(control_plane: ControlPlane, folder: Path, images: list[Environment], **more: Any) -> Settings:
    """Settings of an agent with short back-offs."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nodes.yaml").write_text(NODES)
    (folder / "images.yaml").write_text(render_images(images))
    short = {"backoff_base_s": 0.5, "backoff_max_s": 2.0, "refresh_period_s": 1.0, "lease_period_s": 5.0}
    return Settings(
        folder=folder,
        kubeconfig=control_plane.kubeconfig,
        pki=control_plane.folder / "pki",
        images=folder / "images.yaml",
        nodes=folder / "nodes.yaml",
        **{**short, **more},
    )


@contextlib.contextmanager
def running_agent(control_plane: ControlPlane, **more: Any) -> Iterator[NodeAgent]:
    """A node agent on a control plane: one CPU node and one of 8 x B200. `more` are settings of it."""
    python = Environment(image="python", path=(str(Path(sys.executable).parent),), keep=(sys.prefix,))
    agent = NodeAgent(control_plane, make_settings(control_plane, control_plane.folder / "agent", [python], **more))
    try:
        agent.start()
        yield agent
    finally:
        agent.stop()
        shutil.rmtree(memory_root(cluster_id_of(agent.settings.folder)), ignore_errors=True)


@pytest.fixture(scope="session")
def local_cluster(control_plane: ControlPlane) -> Iterator[NodeAgent]:
    """A node agent on `control_plane`."""
    with running_agent(control_plane) as agent:
        yield agent
