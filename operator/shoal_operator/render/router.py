"""Everything of one Router but its route table's content: account, rights, Deployment, Service, budget. Pure.

Routers hold the rights that the data path needs and no more: to watch Pods of their namespace and their own route
table. They run under the restricted Pod Security profile.
"""

from typing import Any, Final

from shoal_api import keys, router, routes
from shoal_operator.domain import naming, values
from shoal_operator.render import meta

COMMAND: Final = "shoal-router"
GRACE_S: Final = 1800
"""How long a router may finish its streams after SIGTERM; the default drain budget of engines."""
GRACE_MARGIN_S: Final = 30
"""The router ends what is left this long before the kubelet would, so that clients get an error event."""
SESSION_AFFINITY_S: Final = 3 * 3600


def render_router(
    name: str, namespace: str, spec: router.RouterSpec, default_image: str, owner: values.Owner | None = None
) -> list[meta.Manifest]:
    """In the order in which they are applied. The route table's ConfigMap is `render_route_table`."""
    full = naming.router_name(name)
    labels = meta.router_labels(name)
    made = meta.metadata(full, namespace, labels, owner)
    match = {keys.LABEL_ROUTER: name, keys.LABEL_COMPONENT: "router"}
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": _copy(made),
            "automountServiceAccountToken": False,
        },
        _role(made, name),
        _role_binding(made, full, namespace),
        _deployment(made, match, name, namespace, spec, default_image),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _copy(made),
            "spec": {
                "type": spec.service_type,
                **_affinity(spec.service_type),
                "selector": dict(match),
                "ports": [{"name": "http", "port": keys.ROUTER_PORT, "targetPort": "http", "protocol": "TCP"}],
            },
        },
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": _copy(made),
            "spec": {
                "maxUnavailable": 1,
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
                "selector": {"matchLabels": dict(match)},
            },
        },
    ]


def render_route_table(
    name: str, namespace: str, table: routes.RouteTable, owner: values.Owner | None = None
) -> meta.Manifest:
    """The ConfigMap that routers watch."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": meta.metadata(keys.routes_config_map(name), namespace, meta.router_labels(name), owner),
        "data": {keys.ROUTES_KEY: table.model_dump_json()},
    }


def url(name: str, namespace: str) -> str:
    """Where clients in the cluster reach a Router."""
    return f"http://{naming.router_name(name)}.{namespace}.svc:{keys.ROUTER_PORT}"


def balancer_url(service: meta.Manifest) -> str | None:
    """Where the load balancer of a stored Service is reached; None until it has an address."""
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    address = next((one.get("hostname") or one.get("ip") for one in ingress), None)
    if not address:
        return None
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{keys.ROUTER_PORT}"


def _copy(made: meta.Manifest) -> meta.Manifest:
    """Manifests share nothing: a change to one must not show in another."""
    copied = {**made, "labels": dict(made["labels"])}
    if "ownerReferences" in made:
        copied["ownerReferences"] = [dict(one) for one in made["ownerReferences"]]
    return copied


def _role(made: meta.Manifest, name: str) -> meta.Manifest:
    verbs = ["get", "list", "watch"]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": _copy(made),
        "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": list(verbs)},
            {
                "apiGroups": [""],
                "resources": ["configmaps"],
                "resourceNames": [keys.routes_config_map(name)],
                "verbs": list(verbs),
            },
        ],
    }


def _role_binding(made: meta.Manifest, full: str, namespace: str) -> meta.Manifest:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": _copy(made),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": full},
        "subjects": [{"kind": "ServiceAccount", "name": full, "namespace": namespace}],
    }


def _deployment(
    made: meta.Manifest,
    match: dict[str, str],
    name: str,
    namespace: str,
    spec: router.RouterSpec,
    default_image: str,
) -> meta.Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _copy(made),
        "spec": {
            "replicas": spec.replicas,
            "revisionHistoryLimit": 3,
            # A router that goes takes its cache mirror along: never fewer, and one new one at a time.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "selector": {"matchLabels": dict(match)},
            "template": {
                "metadata": {"labels": dict(made["labels"])},
                "spec": {
                    "serviceAccountName": made["name"],
                    "automountServiceAccountToken": True,
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": GRACE_S,
                    "securityContext": {
                        # No user id: the image has one, and OpenShift gives its own.
                        "runAsNonRoot": True,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "topologySpreadConstraints": [
                        {
                            "maxSkew": 1,
                            "topologyKey": "kubernetes.io/hostname",
                            "whenUnsatisfiable": "ScheduleAnyway",
                            "labelSelector": {"matchLabels": dict(match)},
                        }
                    ],
                    "containers": [_container(name, namespace, spec, spec.image or default_image)],
                },
            },
        },
    }


def _affinity(service_type: str) -> dict[str, Any]:
    """Each router knows the caches by what went through itself: a client's turns belong to one of them.

    Some clouds make no load balancer for a Service with affinity, and behind one nodes would stand for clients."""
    if service_type == "LoadBalancer":
        return {}
    seconds = {"clientIP": {"timeoutSeconds": SESSION_AFFINITY_S}}
    return {"sessionAffinity": "ClientIP", "sessionAffinityConfig": seconds}


def _container(name: str, namespace: str, spec: router.RouterSpec, image: str) -> dict[str, Any]:
    probe = {"timeoutSeconds": 2, "periodSeconds": 2, "failureThreshold": 3}
    return {
        "name": "router",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [COMMAND],
        "args": [
            *("--router", name),
            *("--namespace", namespace),
            *("--host", "$(POD_IP)"),
            *("--port", str(keys.ROUTER_PORT)),
            *("--admin-port", str(keys.ROUTER_ADMIN_PORT)),
            *("--grace-s", str(GRACE_S - GRACE_MARGIN_S)),
        ],
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
        ],
        "ports": [
            {"name": "http", "containerPort": keys.ROUTER_PORT, "protocol": "TCP"},
            {"name": "admin", "containerPort": keys.ROUTER_ADMIN_PORT, "protocol": "TCP"},
        ],
        "resources": spec.resources.as_object(),
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "admin", "scheme": "HTTP"}, **probe},
        # Slow to judge: a router that is busy with long prompts must not be killed with all its streams.
        "livenessProbe": {
            "httpGet": {"path": "/livez", "port": "admin", "scheme": "HTTP"},
            **probe,
            "periodSeconds": 10,
            "failureThreshold": 6,
            "timeoutSeconds": 5,
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
