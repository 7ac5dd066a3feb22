"""The downward API: fields and resources of a Pod as text. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shoal_local.agent import quantities
from shoal_local.agent.references import ConfigError

_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a Pod runs: what fields say about it that the Pod's own spec does not."""

    pod_ip: str
    host_ip: str
    allocatable: Mapping[str, str]
    """Of the node; stands in for limits that a container does not set."""


def field_value(pod: Mapping[str, Any], path: str, place: Place) -> str:
    """The value of a fieldRef; ConfigError when there is no such field."""
    meta, spec = pod["metadata"], pod["spec"]
    keyed = _KEYED.fullmatch(path)
    if keyed:
        return str((meta.get(keyed[1]) or {}).get(keyed[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        pairs = meta.get(path.removeprefix("metadata.")) or {}
        return "\n".join(f'{key}="{_escaped(value)}"' for key, value in sorted(pairs.items()))
    simple = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta["namespace"],
        "metadata.uid": meta["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.podIP": place.pod_ip,
        "status.podIPs": place.pod_ip,
        "status.hostIP": place.host_ip,
        "status.hostIPs": place.host_ip,
    }
    if path not in simple:
        raise ConfigError(f"unsupported fieldPath: {path}")
    return str(simple[path])


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_value(pod: Mapping[str, Any], reference: Mapping[str, Any], container: str | None, place: Place) -> str:
    """The value of a resourceFieldRef, in units of its divisor."""
    wanted = reference.get("containerName") or container
    every = [*pod["spec"].get("containers", []), *pod["spec"].get("initContainers", [])]
    found = next((each for each in every if each["name"] == wanted), None)
    kind, _, resource = str(reference["resource"]).partition(".")
    if found is None or kind not in ("limits", "requests"):
        raise ConfigError(f"resourceFieldRef {reference['resource']} of container {wanted!r} cannot be resolved")
    resources = found.get("resources") or {}
    quantity = (resources.get(kind) or {}).get(resource)
    if quantity is None and kind == "limits":
        quantity = place.allocatable.get(resource)
    return str(quantities.divided(quantity or 0, reference.get("divisor") or 1))
