"""Volumes made of files: configMap, secret, downwardAPI and projected, ServiceAccount tokens among them.

`collect` gathers the content, `write_payload` puts it into a folder so that readers see all of it change at once, as
a kubelet does: a new hidden folder, then `..data` is switched to it.
"""

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shoal_local.agent import fields
from shoal_local.agent.fields import Place
from shoal_local.agent.references import ConfigError, References
from shoal_local.kube import Kube

_DATA: Final = "..data"
_MODE: Final = 0o644
_TOKEN_RENEW_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True)
class File:
    """One file of a payload."""

    content: bytes
    mode: int


Payload = dict[str, File]
"""By path relative to the volume."""


@dataclass(slots=True)
class _Token:
    value: bytes
    renew_at: float


class Tokens:
    """ServiceAccount tokens of one Pod, bound to it, renewed when four fifths of their time are over."""

    def __init__(self, kube: Kube, pod: Mapping[str, Any]) -> None:
        self._kube = kube
        self._pod = pod
        self._held: dict[tuple[str, int], _Token] = {}

    async def token(self, audience: str, expiration_s: int) -> bytes:
        """A token that is good for a while yet."""
        held = self._held.get((audience, expiration_s))
        if held is not None and time.monotonic() < held.renew_at:
            return held.value
        meta = self._pod["metadata"]
        account = self._pod["spec"].get("serviceAccountName") or "default"
        bound = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
        spec: dict[str, Any] = {"expirationSeconds": expiration_s, "boundObjectRef": bound}
        if audience:
            spec["audiences"] = [audience]
        path = f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts/{account}/token"
        made = await self._kube.create(
            path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        )
        value = str(made["status"]["token"]).encode()
        self._held[audience, expiration_s] = _Token(value, time.monotonic() + _TOKEN_RENEW_SHARE * expiration_s)
        return value


@dataclass(frozen=True, slots=True)
class Sources:
    """Where content comes from."""

    pod: Mapping[str, Any]
    place: Place
    references: References
    tokens: Tokens


def projected_kind(volume: Mapping[str, Any]) -> str | None:
    """The kind of a volume that is made of files; None for others."""
    return next((kind for kind in ("configMap", "secret", "downwardAPI", "projected") if kind in volume), None)


async def collect(volume: Mapping[str, Any], sources: Sources) -> Payload:
    """The content of a volume of files; ConfigError when something is missing."""
    kind = projected_kind(volume)
    if kind is None:
        raise ValueError(f"volume {volume['name']} is not made of files")
    if kind != "projected":
        return await _source(kind, volume[kind], volume[kind].get("defaultMode", _MODE), sources)
    payload: Payload = {}
    for each in volume["projected"].get("sources") or []:
        for name, source in each.items():
            payload |= await _source(name, source, volume["projected"].get("defaultMode", _MODE), sources)
    return payload


async def _source(kind: str, source: Mapping[str, Any], mode: int, sources: Sources) -> Payload:
    if kind == "serviceAccountToken":
        token = await sources.tokens.token(source.get("audience", ""), int(source.get("expirationSeconds", 3600)))
        return {source["path"]: File(token, 0o600 if mode == _MODE else mode)}
    if kind == "downwardAPI":
        return {each["path"]: File(_downward(each, sources), each.get("mode", mode)) for each in source["items"]}
    if kind not in ("configMap", "secret"):
        raise ConfigError(f"projected source {kind} is not available in the local cluster")
    name = source.get("name") or source.get("secretName")
    optional = bool(source.get("optional"))
    data = await sources.references.data("configmaps" if kind == "configMap" else "secrets", str(name), optional)
    if data is None:
        return {}
    if not source.get("items"):
        return {key: File(content, mode) for key, content in data.items()}
    payload: Payload = {}
    for item in source["items"]:
        if item["key"] in data:
            payload[item["path"]] = File(data[item["key"]], item.get("mode", mode))
        elif not optional:
            raise ConfigError(f"references non-existent {kind} key: {name}/{item['key']}")
    return payload


def _downward(item: Mapping[str, Any], sources: Sources) -> bytes:
    if "fieldRef" in item:
        return fields.field_value(sources.pod, item["fieldRef"]["fieldPath"], sources.place).encode()
    return fields.resource_value(sources.pod, item["resourceFieldRef"], None, sources.place).encode()


def write_payload(folder: Path, payload: Payload) -> bool:
    """Makes the folder show exactly the payload, in one step; False when it already did."""
    folder.mkdir(parents=True, exist_ok=True)
    if _current(folder) == payload:
        return False
    for path in payload:
        if path.startswith("/") or ".." in path.split("/"):
            raise ConfigError(f"invalid path in volume: {path!r}")
    fresh = folder / f"..{uuid.uuid4().hex}"
    for path, file in payload.items():
        target = fresh / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(file.mode)
    fresh.mkdir(exist_ok=True)
    old = os.readlink(folder / _DATA) if (folder / _DATA).is_symlink() else None
    (folder / f"{_DATA}.new").symlink_to(fresh.name)
    (folder / f"{_DATA}.new").rename(folder / _DATA)
    tops = {path.split("/")[0] for path in payload}
    for top in tops:
        with contextlib.suppress(FileExistsError):
            (folder / top).symlink_to(f"{_DATA}/{top}")
    for entry in folder.iterdir():
        if not entry.name.startswith("..") and entry.name not in tops:
            entry.unlink()
    if old is not None:
        shutil.rmtree(folder / old, ignore_errors=True)
    return True


def _current(folder: Path) -> Payload | None:
    base = folder / _DATA
    if not base.is_symlink():
        return None
    root = base.resolve()
    files = [path for path in root.rglob("*") if path.is_file()]
    return {path.relative_to(root).as_posix(): File(path.read_bytes(), path.stat().st_mode & 0o7777) for path in files}
