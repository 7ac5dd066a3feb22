"""Volumes of one Pod: each a file or folder on the machine, and the mounts that show them to a container."""

import contextlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal_local.agent import expansion, projection, quantities
from shoal_local.agent.fields import Place
from shoal_local.agent.references import ConfigError, References
from shoal_local.kube import Kube, KubeError


@dataclass(frozen=True, slots=True)
class Mount:
    """What `launch_root` binds where."""

    source: str
    target: str
    read_only: bool

    def as_order(self) -> dict[str, Any]:
        """As the launcher reads it."""
        return {"source": self.source, "target": self.target, "read_only": self.read_only}


@dataclass(frozen=True, slots=True)
class SizeExceeded:
    """An emptyDir that has outgrown its limit."""

    volume: str
    used_bytes: int
    limit: str


class PodVolumes:
    """Prepares volumes, keeps those made of files up to date, and removes all when the Pod has gone."""

    def __init__(self, kube: Kube, pod: Mapping[str, Any], folder: Path, memory_folder: Path, place: Place) -> None:
        self._kube = kube
        self._pod = pod
        self._folder = folder
        self._memory = memory_folder
        self._place = place
        self._tokens = projection.Tokens(kube, pod)
        self._sources: dict[str, str] = {}
        self._volumes: list[Mapping[str, Any]] = pod["spec"].get("volumes") or []

    @property
    def refreshable(self) -> bool:
        """Whether any volume follows objects that may change."""
        return any(projection.projected_kind(volume) for volume in self._volumes)

    @property
    def size_limited(self) -> bool:
        """Whether any emptyDir has a limit."""
        return any((volume.get("emptyDir") or {}).get("sizeLimit") for volume in self._volumes)

    async def prepare(self) -> None:
        """Makes every volume; ConfigError or KubeError when one cannot be made yet."""
        for volume in self._volumes:
            self._sources[volume["name"]] = await self._prepare(volume)

    async def refresh(self) -> None:
        """Brings volumes made of files up to date and renews tokens."""
        sources = self._content_sources()
        for volume in self._volumes:
            if projection.projected_kind(volume):
                payload = await projection.collect(volume, sources)
                projection.write_payload(self._folder / volume["name"], payload)

    def mounts(self, container: Mapping[str, Any], environment: Mapping[str, str]) -> list[Mount]:
        """Mounts of one container, parents first."""
        return [
            Mount(self._mount_source(each, environment), each["mountPath"], self._read_only(each))
            for each in container.get("volumeMounts") or []
        ]

    def exceeded(self) -> SizeExceeded | None:
        """The first emptyDir over its limit; reads the disk."""
        for volume in self._volumes:
            limit = (volume.get("emptyDir") or {}).get("sizeLimit")
            if limit and volume["name"] in self._sources:
                used = _folder_bytes(Path(self._sources[volume["name"]]))
                if used > quantities.parse_quantity(limit):
                    return SizeExceeded(volume["name"], used, str(limit))
        return None

    def remove(self) -> None:
        """Deletes what belongs to the Pod alone."""
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.rmtree(self._memory, ignore_errors=True)
        with contextlib.suppress(OSError):  # others have theirs there, or it never was
            self._memory.parent.rmdir()

    def _content_sources(self) -> projection.Sources:
        namespace = self._pod["metadata"]["namespace"]
        return projection.Sources(self._pod, self._place, References(self._kube, namespace), self._tokens)

    async def _prepare(self, volume: Mapping[str, Any]) -> str:
        name = volume["name"]
        own = self._folder / name
        if projection.projected_kind(volume):
            projection.write_payload(own, await projection.collect(volume, self._content_sources()))
            return str(own)
        if "emptyDir" in volume:
            in_memory = (volume["emptyDir"] or {}).get("medium") == "Memory" and os.access(
                self._memory.parent.parent, os.W_OK
            )
            place = self._memory / name if in_memory else own
            place.mkdir(parents=True, exist_ok=True)
            place.chmod(0o777)
            return str(place)
        if "hostPath" in volume:
            return _host_path(volume["hostPath"])
        if "persistentVolumeClaim" in volume:
            return await self._claim(volume["persistentVolumeClaim"]["claimName"])
        if "ephemeral" in volume:
            return await self._claim(f"{self._pod['metadata']['name']}-{name}")
        kind = next((key for key in volume if key != "name"), "?")
        raise ConfigError(f"volume {name}: type {kind} is not available in the local cluster")

    async def _claim(self, claim_name: str) -> str:
        namespace = self._pod["metadata"]["namespace"]
        try:
            claim = await self._kube.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim_name}")
            if (claim.get("status") or {}).get("phase") != "Bound":
                raise ConfigError(f"persistentvolumeclaim {claim_name!r} is not bound yet")
            volume = await self._kube.get(f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}")
        except KubeError as error:
            if error.status == 404:
                raise ConfigError(f"persistentvolumeclaim {claim_name!r} not found") from error
            raise
        spec = volume["spec"]
        if "hostPath" in spec:
            return _host_path({**spec["hostPath"], "type": "DirectoryOrCreate"})
        if "local" in spec:
            return _host_path(spec["local"])
        raise ConfigError(f"the volume of claim {claim_name!r} is neither hostPath nor local")

    def _mount_source(self, mount: Mapping[str, Any], environment: Mapping[str, str]) -> str:
        source = self._sources.get(mount["name"])
        if source is None:
            raise ConfigError(f"volume {mount['name']!r} of mount {mount['mountPath']} is not in the Pod")
        sub = mount.get("subPath") or expansion.expand(mount.get("subPathExpr") or "", environment)
        if not sub:
            return source
        if sub.startswith("/") or ".." in sub.split("/"):
            raise ConfigError(f"subPath {sub!r} must stay inside the volume")
        path = Path(source) / sub
        if not path.exists():
            path.mkdir(parents=True)
        return str(path.resolve())

    def _read_only(self, mount: Mapping[str, Any]) -> bool:
        volume = next((each for each in self._volumes if each["name"] == mount["name"]), {})
        return bool(mount.get("readOnly")) or projection.projected_kind(volume) is not None


def _folder_bytes(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def _host_path(volume: Mapping[str, Any]) -> str:
    path, kind = Path(volume["path"]), volume.get("type") or ""
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif kind == "FileOrCreate":
        path.touch()
    checks = {
        "": path.exists,
        "Directory": path.is_dir,
        "DirectoryOrCreate": path.is_dir,
        "File": path.is_file,
        "FileOrCreate": path.is_file,
        "Socket": path.is_socket,
        "CharDevice": path.is_char_device,
        "BlockDevice": path.is_block_device,
    }
    if not checks.get(kind, path.exists)():
        raise ConfigError(f"hostPath {path} is not there or is no {kind or 'file'}")
    return str(path)
