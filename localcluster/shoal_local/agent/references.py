"""ConfigMaps and Secrets that a Pod refers to, fetched when a container starts or a volume is refreshed."""

import base64
from typing import Any, Literal

from shoal_local.kube import Kube, KubeError

Kind = Literal["configmaps", "secrets"]


class ConfigError(Exception):
    """A container cannot be set up as its Pod says; the message is shown in the Pod's status."""


class References:
    """Remembers what it has fetched: one instance for one container start, so that all its parts agree."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._seen: dict[tuple[Kind, str], dict[str, bytes] | None] = {}

    async def data(self, kind: Kind, name: str, optional: bool) -> dict[str, bytes] | None:
        """All keys of an object; None when it is missing and optional. Raises ConfigError when it is missing."""
        key = (kind, name)
        if key not in self._seen:
            self._seen[key] = await self._fetch(kind, name)
        found = self._seen[key]
        if found is None and not optional:
            raise ConfigError(f"{kind.removesuffix('s')} {name!r} not found in namespace {self._namespace!r}")
        return found

    async def value(self, kind: Kind, selector: dict[str, Any]) -> bytes | None:
        """The value of a `configMapKeyRef` or `secretKeyRef`; None when it is missing and optional."""
        name, key, optional = str(selector["name"]), str(selector["key"]), bool(selector.get("optional"))
        found = await self.data(kind, name, optional)
        if found is None:
            return None
        if key not in found and not optional:
            raise ConfigError(f"couldn't find key {key} in {kind.removesuffix('s')} {self._namespace}/{name}")
        return found.get(key)

    async def _fetch(self, kind: Kind, name: str) -> dict[str, bytes] | None:
        try:
            found = await self._kube.get(f"/api/v1/namespaces/{self._namespace}/{kind}/{name}")
        except KubeError as error:
            if error.status == 404:
                return None
            raise
        data: dict[str, str] = found.get("data") or {}
        if kind == "secrets":
            return {key: base64.b64decode(value) for key, value in data.items()}
        binary: dict[str, str] = found.get("binaryData") or {}
        return {key: value.encode() for key, value in data.items()} | {
            key: base64.b64decode(value) for key, value in binary.items()
        }
