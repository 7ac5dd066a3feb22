"""What the operator asks of the API: (apiGroup, resource, verbs), no more and no less.

The chart's ClusterRole and the tests' are made from or compared with this list, so that a verb used but not granted,
or granted but not used, is found before it ships. `watch` is kopf's; the other verbs are kube/client.py's. A
server-side apply needs `patch`, and `create` where there is nothing yet. What is owned goes by garbage collection,
hence few deletes. The operator may only make a Role with rules that it holds itself: routers get, list and watch Pods
and ConfigMaps.
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


ACCESS: Final = (
    _on(resources.MODEL_SERVICES, "get", "list", "watch"),
    _on(resources.MODEL_SERVICES, "update", subresource="status"),
    _on(resources.ROUTERS, "get", "list", "watch"),
    _on(resources.ROUTERS, "update", subresource="status"),
    _on(resources.DRAFT_MODELS, "get", "list", "watch"),
    _on(resources.DRAFT_MODELS, "update", subresource="status"),
    _on(resources.GPU_POOLS, "get", "list", "watch"),
    _on(resources.GPU_POOLS, "update", subresource="status"),
    _on(resources.STATEFUL_SETS, "list", "watch", "create", "patch", "delete"),
    _on(resources.DEPLOYMENTS, "list", "watch", "create", "patch"),
    _on(resources.CONTROLLER_REVISIONS, "list", "create", "delete"),
    _on(resources.SERVICES, "get", "create", "patch"),
    _on(resources.CONFIG_MAPS, "get", "list", "watch", "create", "patch"),
    _on(resources.SERVICE_ACCOUNTS, "create", "patch"),
    _on(resources.ROLES, "create", "patch"),
    _on(resources.ROLE_BINDINGS, "create", "patch"),
    _on(resources.DISRUPTION_BUDGETS, "create", "patch"),
    _on(resources.PODS, "get", "list", "watch"),
    _on(resources.NODES, "list", "watch"),
    _on(resources.EVENTS, "create"),
    Access("apiextensions.k8s.io", "customresourcedefinitions", ("list", "watch")),
)
"""Cluster-wide rights."""

LEASE_ACCESS: Final = (_on(resources.LEASES, "get", "create", "update"),)
"""Rights in the operator's own namespace only."""
