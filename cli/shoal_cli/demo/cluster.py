"""The demo's local cluster: started in a folder of its own, stopped by id, replicas killed in it.

A thin layer over `shoal_local`'s own functions, which block; they run in threads here.
"""

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shoal_local import cluster, default_images, faults, gobuild, identity, images

ADDRESS_ANNOTATION = identity.ADDRESS_ANNOTATION
LOAD_S = 16.0
"""Simulated seconds in which an engine loads its weights; the timing profile's own 60 would be most of the demo."""


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


def prepare(folder: Path, progress: Callable[[str], None], speedup: float) -> cluster.ClusterSettings:
    """Settings with the control plane built; a first build takes minutes and says so."""
    variables = {
        "PYTHONUNBUFFERED": "1",
        "SHOAL_SIM_SPEEDUP": f"{speedup:g}",
        "SHOAL_SIM_LOAD_SECONDS": f"{LOAD_S:g}",
    }
    try:
        entries = [default_images.simulated_engine(image, variables) for image in default_images.ENGINE_IMAGES]
        path = folder / "demo-images.yaml"
        path.write_text(images.render_images(entries))
        return cluster.build_settings(progress, speedup=speedup, images=path)
    except (gobuild.BuildError, default_images.EngineEnvironmentError) as error:
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
