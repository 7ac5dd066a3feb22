"""The demo's local cluster: started in a folder of its own, stopped by id, replicas killed in it.

A thin layer over `shoal_local`'s own functions, which block; they run in threads here.
"""

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shoal_local import cluster, faults, gobuild, identity

ADDRESS_ANNOTATION = identity.ADDRESS_ANNOTATION
KILL_S = 10.0


class LocalError(Exception):
    """The local cluster did not do what was asked; the message is its own."""


@dataclass(frozen=True, slots=True)
class Cluster:
    folder: Path
    binaries: Path

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    async def kill(self, namespace: str, pod: str, container: str) -> None:
        """SIGKILL to a container's processes."""
        try:
            target = await asyncio.to_thread(faults.find_container, self.folder, pod, namespace, container)
            await asyncio.to_thread(faults.send, target, signal.SIGKILL)
        except faults.FaultError as error:
            raise LocalError(str(error)) from error


def prepare(progress: Callable[[str], None], speedup: float) -> cluster.ClusterSettings:
    """Settings with the control plane built; a first build takes minutes and says so."""
    try:
        return cluster.build_settings(progress, speedup=speedup)
    except gobuild.BuildError as error:
        raise LocalError(str(error)) from error


def start(folder: Path, settings: cluster.ClusterSettings, progress: Callable[[str], None]) -> Cluster:
    """A cluster whose nodes are Ready."""
    try:
        cluster.up(folder, settings, progress)
    except cluster.ClusterError as error:
        raise LocalError(str(error)) from error
    return Cluster(folder, settings.binaries)


def stop(folder: Path, progress: Callable[[str], None]) -> None:
    try:
        cluster.down(folder, False, progress)
    except cluster.ClusterError as error:
        raise LocalError(str(error)) from error
