"""Every label, annotation, port and well-known name, each with who writes it and who reads it."""

from typing import Final

GROUP: Final = "shoal.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

FIELD_MANAGER: Final = "shoal"
"""The one server-side-apply field manager; written by the operator on every apply."""

LABEL_SERVICE: Final = "shoal.dev/service"
"""Name of the ModelService a Pod serves. Operator writes it on engine Pods; routers select Pods by it."""
LABEL_REVISION: Final = "shoal.dev/revision"
"""First eight hex digits of the revision hash. Operator writes it on StatefulSets and Pods; routers read it."""
LABEL_REPLICA: Final = "shoal.dev/replica"
"""Name of the replica group (its StatefulSet). Operator writes it; routers use it as the replica's name."""
LABEL_GPU: Final = "shoal.dev/gpu"
"""GPU type of the hardware profile a replica runs on. Operator writes it; routers pick timing constants by it."""
LABEL_ROUTER: Final = "shoal.dev/router"
"""Name of the Router a Pod or object belongs to. Operator writes it; the operator finds router Pods by it."""
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
"""`shoal` on everything the operator applies; the operator prunes by it together with the owner reference."""
LABEL_COMPONENT: Final = "app.kubernetes.io/component"
"""`engine`, `router` or `operator`."""

ANNOTATION_REVISION: Final = "shoal.dev/revision-hash"
"""The whole revision hash, on StatefulSets. Operator writes and reads it."""
ANNOTATION_RENDER_VERSION: Final = "shoal.dev/render-version"
"""Version of the rendering that made a StatefulSet. Operator writes it and renders old revisions by it."""
ANNOTATION_DRAIN_SINCE: Final = "shoal.dev/drain-since"
"""RFC 3339 time at which draining of a replica began, on its StatefulSet; survives an operator restart."""

ENGINE_CONTAINER: Final = "engine"
ENGINE_PORT: Final = 30000
"""HTTP port of every engine."""
ROUTER_PORT: Final = 8080
"""Client port of a router."""
ROUTER_ADMIN_PORT: Final = 8081
"""Admin port of a router: /livez /readyz /metrics /state /debug/route."""
OPERATOR_METRICS_PORT: Final = 9090
OPERATOR_HEALTH_PORT: Final = 8082

ROUTES_KEY: Final = "routes.json"
"""Key of the route table in the ConfigMap `<router>-routes`."""


def routes_config_map(router: str) -> str:
    """Name of the ConfigMap that holds the route table of one Router."""
    return f"{router}-routes"
