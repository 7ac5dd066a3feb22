"""Processes that an earlier agent of the same cluster has left behind (it was killed): found by their environment."""

import os
import signal
from pathlib import Path

from shoal_local.identity import CLUSTER_VARIABLE


def cluster_processes(cluster_id: str) -> list[int]:
    """Ids of all processes that were started as containers of a cluster."""
    marker = f"{CLUSTER_VARIABLE}={cluster_id}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:  # gone, or another user's
            continue
        if marker in environment.split(b"\0"):
            found.append(int(entry.name))
    return found


def kill_cluster_processes(cluster_id: str) -> int:
    """Kills them, by id; how many there were."""
    found = cluster_processes(cluster_id)
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    return len(found)
