"""Volumes of an engine Pod: shared memory, cache, and where the weights come from. Pure; `engine` calls it."""

from dataclasses import dataclass
from typing import Any, Final

from shoal_operator.domain import values
from shoal_operator.sglang import launch

SHM_GIB_MIN: Final = 8
SHM_GIB_PER_GPU: Final = 4
"""NCCL and the tensor-parallel ranks' message queues live in /dev/shm; Kubernetes' own 64 MiB is too little for two
ranks. Memory that is not used is not taken."""


@dataclass(frozen=True, slots=True)
class Volumes:
    """What goes into the Pod, and what into its container."""

    volumes: list[dict[str, Any]]
    mounts: list[dict[str, Any]]


def render_volumes(service: values.Service, profile: values.Profile) -> Volumes:
    """In a fixed order: shared memory, cache, weights, draft."""
    shm_gib = max(SHM_GIB_MIN, SHM_GIB_PER_GPU * profile.gpus)
    volumes: list[dict[str, Any]] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{shm_gib}Gi"}},
        {"name": "cache", "emptyDir": {}},
    ]
    mounts: list[dict[str, Any]] = [
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 the engine's own shared memory
        {"name": "cache", "mountPath": launch.CACHE_PATH},
    ]
    sources = [("model", service.source, launch.MODELS_PATH)]
    if service.draft is not None and service.draft.source:
        sources.append(("draft", service.draft.source, launch.DRAFT_PATH))
    for name, source, path in sources:
        _add_source(name, source, path, volumes, mounts)
    return Volumes(volumes, mounts)


def _add_source(name: str, source: str, path: str, volumes: list[dict[str, Any]], mounts: list[dict[str, Any]]) -> None:
    """Claims and node paths are mounted read-only; everything else the engine fetches into its cache."""
    scheme, _, rest = source.partition("://")
    if scheme == "pvc":
        claim = rest.partition("/")[0]
        volumes.append({"name": name, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}})
        mounts.append({"name": name, "mountPath": path, "readOnly": True})
    elif scheme == "file":
        volumes.append({"name": name, "hostPath": {"path": rest, "type": "Directory"}})
        mounts.append({"name": name, "mountPath": rest, "readOnly": True})
