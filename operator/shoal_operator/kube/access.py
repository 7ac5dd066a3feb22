"""What the operator asks of the API: (apiGroup, resource, verbs), no more and no less.

The chart's ClusterRole and the tests' are made from or compared with this list, so that a verb used but not granted, or
granted but not used, is found before it ships. `watch` is kopf's; the other verbs are kube/client.py's.
Two entries are used through nobody's request: the operator may only create a Role with rules that it holds itself, and
a router needs `watch` on Pods and ConfigMaps.
"""

from dataclasses import dataclass
from typing import Final

from shoal_operator.kube import resources


@dataclass(frozen=True, slots=True)
class Access:
    group: str
    resource: str
    verbs: tuple[str, ...]


def _on(resource: resources.Resource, *verbs: str, subresource: str | None = None) -> Access:
    name = resource.plural if subresource is None else f"{resource.plural}/{subresource}"
    return Access(resource.group, name, verbs)


_OWNED = ("list", "patch", "delete")
_OWNED_AND_WATCHED = ("list", "watch", "patch", "delete")

ACCESS: Final = (
    _on(resources.MODEL_SERVICES, "get", "list", "watch"),
    _on(resources.MODEL_SERVICES, "update", subresource="status"),
    _on(resources.ROUTERS, "get", "list", "watch"),
    _on(resources.ROUTERS, "update", subresource="status"),
    _on(resources.DRAFT_MODELS, "get", "list", "watch"),
    _on(resources.DRAFT_MODELS, "update", subresource="status"),
    _on(resources.GPU_POOLS, "get", "list", "watch"),
    _on(resources.GPU_POOLS, "update", subresource="status"),
    _on(resources.STATEFUL_SETS, *_OWNED_AND_WATCHED),
    _on(resources.DEPLOYMENTS, *_OWNED_AND_WATCHED),
    _on(resources.SERVICES, *_OWNED),
    _on(resources.CONFIG_MAPS, "get", *_OWNED_AND_WATCHED),
    _on(resources.SERVICE_ACCOUNTS, *_OWNED),
    _on(resources.ROLES, *_OWNED),
    _on(resources.ROLE_BINDINGS, *_OWNED),
    _on(resources.DISRUPTION_BUDGETS, *_OWNED),
    _on(resources.PODS, "get", "list", "watch"),
    _on(resources.NODES, "list", "watch"),
    _on(resources.EVENTS, "create"),
    Access("apiextensions.k8s.io", "customresourcedefinitions", ("list", "watch")),
)
"""Cluster-wide rights."""

LEASE_ACCESS: Final = (_on(resources.LEASES, "get", "create", "update"),)
"""Rights in the operator's own namespace only."""
