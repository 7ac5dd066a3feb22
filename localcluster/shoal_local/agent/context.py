"""What the parts of the node agent share: settings, and the open connections. Built by `__main__`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from shoal_local.agent.addresses import PodAddresses
from shoal_local.agent.backoff import BackoffPolicy
from shoal_local.agent.events import Recorder
from shoal_local.agent.settings import Settings
from shoal_local.kube import Kube


@dataclass(frozen=True, slots=True)
class Abilities:
    """What this machine allows; tried once at the start."""

    private_root: bool
    """Volumes at their true paths (mount namespaces)."""
    reason: str = ""
    """Why not."""


@dataclass(frozen=True, slots=True)
class NodePlace:
    """Where a node is."""

    address: str
    allocatable: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Context:
    """Handed to every worker."""

    settings: Settings
    kube: Kube
    recorder: Recorder
    session: aiohttp.ClientSession
    """For probes."""
    nodes: Mapping[str, NodePlace]
    addresses: PodAddresses
    abilities: Abilities
    backoff: BackoffPolicy
    cluster_id: str
    api_host: str
    api_port: int

    @property
    def pods_folder(self) -> Path:
        """One folder a Pod."""
        return self.settings.folder / "pods"

    @property
    def old_logs_folder(self) -> Path:
        """Logs of Pods that have gone."""
        return self.settings.folder / "logs" / "pods"

    def cluster_variables(self) -> dict[str, str]:
        """Variables that every container gets, as from a kubelet."""
        return {
            "KUBERNETES_SERVICE_HOST": self.api_host,
            "KUBERNETES_SERVICE_PORT": str(self.api_port),
            "KUBERNETES_SERVICE_PORT_HTTPS": str(self.api_port),
            "KUBERNETES_PORT": f"tcp://{self.api_host}:{self.api_port}",
        }


def pod_folder_name(pod: Mapping[str, Any]) -> str:
    """Name of a Pod's folder; `shoal local` finds Pods by its first two parts."""
    meta = pod["metadata"]
    return f"{meta['namespace']}_{meta['name']}_{meta['uid']}"
