"""From a Pod's JSON to a `Target`. Pure; called by discovery.kubernetes."""

from collections.abc import Iterable, Mapping
from typing import Any

from shoal_api import keys
from shoal_router.discovery.target import Target


def target(pod: Mapping[str, Any]) -> Target | None:
    """The engine in a Pod; None while it has no address or once it has ended."""
    metadata = pod.get("metadata", {})
    status = pod.get("status", {})
    labels = metadata.get("labels", {})
    service = labels.get(keys.LABEL_SERVICE)
    address = status.get("podIP")
    if not service or not address or status.get("phase") in ("Succeeded", "Failed"):
        return None
    name = metadata.get("name", "")
    return Target(
        name=labels.get(keys.LABEL_REPLICA) or name,
        service=service,
        host=address,
        port=_port(pod.get("spec", {})),
        uid=f"{metadata.get('uid', '')}/{_started(status)}",
        revision=labels.get(keys.LABEL_REVISION, ""),
        gpu=labels.get(keys.LABEL_GPU, ""),
        ready=any(
            condition.get("type") == "Ready" and condition.get("status") == "True"
            for condition in status.get("conditions") or ()
        ),
        terminating="deletionTimestamp" in metadata,
    )


def targets(pods: Iterable[Mapping[str, Any]]) -> dict[str, Target]:
    """By replica name. Where a Pod and its successor exist together, the one that can serve counts."""
    return by_name(target(pod) for pod in pods)


def by_name(read: Iterable[Target | None]) -> dict[str, Target]:
    """See `targets`."""
    found: dict[str, Target] = {}
    for one in read:
        if one is not None and (one.name not in found or _rank(one) > _rank(found[one.name])):
            found[one.name] = one
    return found


def _rank(one: Target) -> tuple[bool, bool]:
    return (not one.terminating, one.ready)


def _engine(containers: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    return next((one for one in containers if one.get("name") == keys.ENGINE_CONTAINER), {})


def _port(spec: Mapping[str, Any]) -> int:
    ports = _engine(spec.get("containers") or ()).get("ports") or ()
    return next((port["containerPort"] for port in ports if port.get("name") == "http"), keys.ENGINE_PORT)


def _started(status: Mapping[str, Any]) -> str:
    engine = _engine(status.get("containerStatuses") or ())
    started = engine.get("state", {}).get("running", {}).get("startedAt", "")
    return f"{engine.get('restartCount', 0)}/{started}"
