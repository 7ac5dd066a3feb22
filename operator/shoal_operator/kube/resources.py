"""Every resource of the API that the operator reads or writes, and how its paths are spelled.

A fixed table instead of discovery: the operator knows its kinds, needs no request to find a path, and the chart's RBAC
is tested against the same names (see access.py).
"""

from dataclasses import dataclass
from typing import Any, Final

from shoal_api import keys

Object = dict[str, Any]
"""One Kubernetes object as JSON gives it."""


@dataclass(frozen=True, slots=True)
class Resource:
    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part is not None]
        return "/".join(parts)


MODEL_SERVICES: Final = Resource(keys.GROUP, keys.VERSION, "modelservices", "ModelService")
ROUTERS: Final = Resource(keys.GROUP, keys.VERSION, "routers", "Router")
DRAFT_MODELS: Final = Resource(keys.GROUP, keys.VERSION, "draftmodels", "DraftModel")
GPU_POOLS: Final = Resource(keys.GROUP, keys.VERSION, "gpupools", "GPUPool", namespaced=False)
STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
CONTROLLER_REVISIONS: Final = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")
SERVICES: Final = Resource("", "v1", "services", "Service")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
PODS: Final = Resource("", "v1", "pods", "Pod")
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
EVENTS: Final = Resource("", "v1", "events", "Event")
ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS: Final = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
DISRUPTION_BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")

ALL: Final = (
    MODEL_SERVICES,
    ROUTERS,
    DRAFT_MODELS,
    GPU_POOLS,
    STATEFUL_SETS,
    DEPLOYMENTS,
    CONTROLLER_REVISIONS,
    SERVICES,
    CONFIG_MAPS,
    SERVICE_ACCOUNTS,
    PODS,
    NODES,
    EVENTS,
    ROLES,
    ROLE_BINDINGS,
    DISRUPTION_BUDGETS,
    LEASES,
)
_BY_KIND: Final = {(resource.api_version, resource.kind): resource for resource in ALL}


def of_manifest(manifest: Object) -> Resource:
    """The resource of an object that we render; KeyError for a kind that the table lacks (a programming error)."""
    return _BY_KIND[manifest["apiVersion"], manifest["kind"]]
