"""PersistentVolumeClaims as folders: the provisioner of the storage class `local-folder`, the cluster's default.

Claims of that class get a PersistentVolume of type hostPath below the cluster's folder; the volume controller of
Kubernetes binds them. A released volume is deleted together with its folder.
"""

import asyncio
import logging
import shutil
from pathlib import Path
from typing import Any, Final

from shoal_local.kube import ERRORS, Kube, KubeError, watch_forever

log = logging.getLogger(__name__)

Object = dict[str, Any]
PROVISIONER: Final = "shoal.dev/local-folder"
CLASS: Final = "local-folder"
_RETRY_S: Final = 1.0
_CLASS_PATH: Final = "/apis/storage.k8s.io/v1/storageclasses"


def render_class() -> Object:
    """The default storage class."""
    return {
        "metadata": {"name": CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }


def render_volume(claim: Object, folder: Path) -> Object:
    """The PersistentVolume of one claim."""
    meta, spec = claim["metadata"], claim["spec"]
    return {
        "metadata": {
            "name": f"pvc-{meta['uid']}",
            "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER},
        },
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": CLASS,
            "hostPath": {"path": str(folder), "type": "DirectoryOrCreate"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
            },
        },
    }


class ClaimProvisioner:
    """Follows claims and volumes; `run` never ends."""

    def __init__(self, kube: Kube, folder: Path) -> None:
        self._kube = kube
        self._folder = folder
        self._claims: dict[str, Object] = {}
        self._volumes: dict[str, Object] = {}
        self._dirty = asyncio.Event()

    async def run(self) -> None:
        """Provisions and reclaims for ever."""
        async with asyncio.TaskGroup() as group:
            for path, kept in (
                ("/api/v1/persistentvolumeclaims", self._claims),
                ("/api/v1/persistentvolumes", self._volumes),
            ):
                group.create_task(self._follow(path, kept))
            group.create_task(self._reconcile_forever())

    async def _follow(self, path: str, kept: dict[str, Object]) -> None:
        def on_list(found: list[Object]) -> None:
            kept.clear()
            kept.update({each["metadata"]["uid"]: each for each in found})
            self._dirty.set()

        def on_event(kind: str, each: Object) -> None:
            if kind == "DELETED":
                kept.pop(each["metadata"]["uid"], None)
            else:
                kept[each["metadata"]["uid"]] = each
            self._dirty.set()

        await watch_forever(self._kube, path, on_list, on_event)

    async def _reconcile_forever(self) -> None:
        made = False
        while True:
            try:
                if not made:
                    await self._make_class()
                    made = True
                await self._reconcile()
            except ERRORS as error:
                log.warning("Claims: %s", error or type(error).__name__)
                await asyncio.sleep(_RETRY_S)
                continue
            await self._dirty.wait()
            self._dirty.clear()

    async def _make_class(self) -> None:
        try:
            await self._kube.create(_CLASS_PATH, render_class())
        except KubeError as error:
            if error.status != 409:
                raise

    async def _reconcile(self) -> None:
        names = {each["metadata"]["name"] for each in self._volumes.values()}
        for uid, claim in list(self._claims.items()):
            waiting = (claim.get("status") or {}).get("phase") == "Pending" and not claim["spec"].get("volumeName")
            if waiting and claim["spec"].get("storageClassName") == CLASS and f"pvc-{uid}" not in names:
                folder = self._folder / f"{claim['metadata']['namespace']}_{claim['metadata']['name']}_{uid}"
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(0o777)
                try:
                    await self._kube.create("/api/v1/persistentvolumes", render_volume(claim, folder))
                except KubeError as error:
                    if error.status != 409:
                        raise
        for volume in list(self._volumes.values()):
            await self._reclaim(volume)

    async def _reclaim(self, volume: Object) -> None:
        spec, meta = volume["spec"], volume["metadata"]
        ours = (meta.get("annotations") or {}).get("pv.kubernetes.io/provisioned-by") == PROVISIONER
        released = (volume.get("status") or {}).get("phase") == "Released"
        if not ours or not released or spec.get("persistentVolumeReclaimPolicy") != "Delete":
            return
        folder = Path(spec["hostPath"]["path"])
        if folder.is_relative_to(self._folder):
            await asyncio.to_thread(shutil.rmtree, folder, True)
        try:
            await self._kube.delete(f"/api/v1/persistentvolumes/{meta['name']}")
        except KubeError as error:
            if error.status != 404:
                raise
