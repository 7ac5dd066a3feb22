"""Metadata that everything rendered shares: labels, annotations, owner. Pure."""

from collections.abc import Mapping
from typing import Any

from shoal_api import keys
from shoal_operator.domain import values

Manifest = dict[str, Any]


def metadata(
    name: str,
    namespace: str,
    labels: Mapping[str, str],
    owner: values.Owner | None,
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    """`metadata` of one object; no owner only for offline rendering."""
    made: Manifest = {"name": name, "namespace": namespace, "labels": dict(labels)}
    if annotations:
        made["annotations"] = dict(annotations)
    if owner is not None:
        made["ownerReferences"] = [owner.reference()]
    return made


def engine_labels(service: values.Service) -> dict[str, str]:
    """Of everything that belongs to a service's engines."""
    return {
        keys.LABEL_MANAGED_BY: keys.FIELD_MANAGER,
        keys.LABEL_COMPONENT: "engine",
        keys.LABEL_SERVICE: service.name,
        keys.LABEL_ROUTER: service.router,
    }


def replica_labels(service: values.Service, revision8: str, name: str, gpu: str) -> dict[str, str]:
    """Of one replica's objects and its Pod."""
    return {
        **engine_labels(service),
        keys.LABEL_REVISION: revision8,
        keys.LABEL_REPLICA: name,
        keys.LABEL_GPU: gpu,
    }


def router_labels(router: str) -> dict[str, str]:
    """Of everything that belongs to a Router."""
    return {
        keys.LABEL_MANAGED_BY: keys.FIELD_MANAGER,
        keys.LABEL_COMPONENT: "router",
        keys.LABEL_ROUTER: router,
    }


def selector(labels: Mapping[str, str]) -> str:
    """Labels as the text of a selector, for status and the scale subresource."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def service_selector(service: str) -> str:
    """Selector of a service's engine Pods."""
    return selector({keys.LABEL_SERVICE: service})
