"""`shoal local` as a user calls it: up, status, env, logs, fault, down, and recovery of what dies in between."""

import os
import shlex
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from shoal_local import cluster
from shoal_local.cli import local
from shoal_testing.apiserver import Tool
from shoal_testing.nodeagent import wait_until

pytestmark = [pytest.mark.apiserver, pytest.mark.slow, pytest.mark.timeout(240)]

POD = """
apiVersion: v1
kind: Pod
metadata: {name: sleeper}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: shoal/router, command: [sh, -c, "echo hello; exec sleep 600"]}]
"""


def shoal(folder: Path, *arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(local, [*arguments, "--folder", str(folder)])
    assert done.exit_code == code, f"{arguments}: {done.output}"
    return done.output


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    try:
        yield tmp_path / "cluster"
    finally:
        shoal(tmp_path / "cluster", "down")


def pids(folder: Path) -> dict[str, int]:
    state = cluster.read_state(folder)
    return {} if state is None else state.pids


def test_from_up_to_down(folder: Path, control_plane_binaries: Path, tmp_path: Path) -> None:
    assert "No local cluster" in shoal(folder, "status")
    said = shoal(folder, "up", "--speedup", "10", "--port", "18080")
    assert f"export KUBECONFIG={shlex.quote(str(folder / 'kubeconfig'))}" in said
    assert "runs already" in shoal(folder, "up")
    kubectl = Tool(control_plane_binaries / "kubectl", folder / "kubeconfig", tmp_path)
    kubectl("wait", "serviceaccount/default", "--for=create", "--timeout=30s")
    kubectl("apply", "-f", "-", stdin=POD)
    kubectl("wait", "pod/sleeper", "--for=condition=Ready", "--timeout=40s")
    status = shoal(folder, "status")
    for part in ("kube-apiserver", "node-agent", "b300-0", "nvidia.com/gpu 0 of 8 in use", "none yet"):
        assert part in status
    assert "hello" in shoal(folder, "logs", "sleeper")
    assert "no log called nothing" in shoal(folder, "logs", "nothing", code=1)

    assert "SIGKILL to process" in shoal(folder, "fault", "kill", "sleeper")

    def restarts() -> str:
        return kubectl("get", "pod", "sleeper", "-o", "jsonpath={.status.containerStatuses[0].restartCount}").stdout

    wait_until(lambda: restarts() == "1", "restarted after the fault")
    assert "no running container of Pod nobody" in shoal(folder, "fault", "kill", "nobody", code=1)

    for name in ("node-agent", "kube-scheduler"):
        before = pids(folder)[name]
        os.kill(before, signal.SIGKILL)
        wait_until(lambda name=name, before=before: pids(folder).get(name, before) != before, f"{name} is back", 60)
    wait_until(lambda: restarts() == "2", "the Pod was taken up by the new agent", 60)
    assert "restarted 1 times" in shoal(folder, "status")

    shoal(folder, "down", "--keep")
    assert "stopped" in shoal(folder, "status")
    shoal(folder, "up")
    wait_until(lambda: restarts() == "3", "the Pod is back after down --keep", 60)

    running = cluster.read_state(folder)
    assert running is not None
    everything = {*running.pids.values(), running.supervisor}
    os.kill(running.supervisor, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() and cluster.process_started(pid) is not None for pid in everything):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert "failed" in shoal(folder, "status")
    shoal(folder, "down")
    assert not (folder / "etcd").exists()
    assert "No local cluster" in shoal(folder, "status")
