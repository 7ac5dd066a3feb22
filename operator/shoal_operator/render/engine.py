"""One replica: a StatefulSet of one Pod and its headless Service. Pure; fresh dictionaries on every call.

`render_replica` picks the rendering by the revision's render version, so that an operator upgrade leaves what runs as
it was. The StatefulSet never updates its Pod (`OnDelete`): replacement is the planner's business, by a new replica.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from shoal_api import keys
from shoal_operator.domain import fit, naming, revision, values
from shoal_operator.render import meta, volumes
from shoal_operator.sglang import launch

LOAD_BYTES_PER_S: Final = 512 << 20
"""Weights are assumed to load at least this fast, whatever they are read from."""
LOAD_MARGIN: Final = 2.0
COMPILE_S: Final = 900.0
"""Start-up beside loading: imports, kernels compiled on a cold cache, graphs captured."""
LOAD_UNKNOWN_S: Final = 3600.0
STARTUP_PERIOD_S: Final = 2
GRACE_MARGIN_S: Final = 30
"""After the drain budget: the engine polls for its last request every 5 s and takes some seconds to go."""
FAILED_GRACE_S: Final = 60
"""An engine that failed its start-up or liveness probe has no streams to finish: it need not hold its GPUs for the
whole drain budget when it does not hear SIGTERM."""
READY_SINCE: Final = (0, 5, 23)
"""First known engine version with `/ready`; older ones, which run under `engine.unchecked`, are asked for `/health`."""


def render_replica(
    service: values.Service,
    current: revision.Revision,
    number: int,
    profile: values.Profile,
    owner: values.Owner | None = None,
) -> list[meta.Manifest]:
    """Headless Service and StatefulSet of one replica, in the order in which they are applied. ValueError for a render
    version that this operator does not know."""
    rendering = _RENDERINGS.get(current.render_version)
    if rendering is None:
        known = ", ".join(sorted(_RENDERINGS))
        raise ValueError(f"render version {current.render_version!r} is not known; this operator renders {known}")
    return rendering(service, current, number, profile, owner)


def startup_budget_s(service: values.Service, profile: values.Profile) -> float:
    """How long a replica may take to get ready: loading at the assumed rate, with margin, and compiling."""
    if service.shape is None:
        return LOAD_UNKNOWN_S + COMPILE_S
    weights = fit.weight_bytes_per_gpu(service.shape, fit.weight_format(service), profile.parallelism) * profile.gpus
    return weights / LOAD_BYTES_PER_S * LOAD_MARGIN + COMPILE_S


def _render_v1(
    service: values.Service,
    current: revision.Revision,
    number: int,
    profile: values.Profile,
    owner: values.Owner | None,
) -> list[meta.Manifest]:
    name = naming.replica_name(service.name, current.short, number)
    labels = meta.replica_labels(service, current.short, name, profile.gpu)
    annotations = {keys.ANNOTATION_REVISION: current.hash, keys.ANNOTATION_RENDER_VERSION: current.render_version}
    match = {keys.LABEL_REPLICA: name}
    headless: meta.Manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta.metadata(name, service.namespace, labels, owner),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            # Peers and probes must find the Pod while it loads.
            "publishNotReadyAddresses": True,
            "selector": dict(match),
            "ports": [{"name": "http", "port": keys.ENGINE_PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    }
    stateful_set: meta.Manifest = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": meta.metadata(name, service.namespace, labels, owner, annotations),
        "spec": {
            "serviceName": name,
            "replicas": 1,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "revisionHistoryLimit": 1,
            "selector": {"matchLabels": dict(match)},
            "template": {"metadata": {"labels": dict(labels)}, "spec": _pod(service, profile)},
        },
    }
    return [headless, stateful_set]


def _pod(service: values.Service, profile: values.Profile) -> meta.Manifest:
    mounts = volumes.render_volumes(service, profile)
    pod: meta.Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": math.ceil(service.rollout.drain_timeout_s) + GRACE_MARGIN_S,
        "nodeSelector": dict(profile.pool.node_selector),
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "topologySpreadConstraints": [_spread(service, key) for key in ("kubernetes.io/hostname", _ZONE)],
        "containers": [_container(service, profile, mounts.mounts)],
        "volumes": mounts.volumes,
    }
    if profile.pool.tolerations:
        pod["tolerations"] = [dict(one) for one in profile.pool.tolerations]
    return pod


_ZONE: Final = "topology.kubernetes.io/zone"


def _spread(service: values.Service, key: str) -> dict[str, Any]:
    """One lost node or zone should not take all replicas; but a crowded one is better than none."""
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {keys.LABEL_SERVICE: service.name}},
    }


def _variable(name: str, value: values.EnvValue) -> dict[str, Any]:
    if isinstance(value, str):
        return {"name": name, "value": value}
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": value.name, "key": value.key}}}


def _container(service: values.Service, profile: values.Profile, mounts: list[dict[str, Any]]) -> meta.Manifest:
    started = launch.render_launch(service, profile)
    gpus = {profile.pool.resource_name: str(profile.gpus)}
    ready = _ready_path(service.engine.version)
    pod_ip = {"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}
    return {
        "name": keys.ENGINE_CONTAINER,
        "image": service.engine.image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(started.command),
        "args": list(started.argv),
        "env": [pod_ip, *(_variable(name, value) for name, value in started.env)],
        "ports": [{"name": "http", "containerPort": keys.ENGINE_PORT, "protocol": "TCP"}],
        "resources": {"limits": dict(gpus), "requests": dict(gpus)},
        "startupProbe": {
            **_http_probe(ready, timeout_s=5, period_s=STARTUP_PERIOD_S),
            "failureThreshold": math.ceil(startup_budget_s(service, profile) / STARTUP_PERIOD_S),
            "terminationGracePeriodSeconds": FAILED_GRACE_S,
        },
        "readinessProbe": {**_http_probe(ready, timeout_s=3, period_s=2), "failureThreshold": 2},
        # A draining or pausing engine answers 503 on every health path though its streams go on: only a process that
        # takes no connection is dead to Kubernetes. SGLang's own watchdog ends a hung scheduler.
        "livenessProbe": {
            "tcpSocket": {"port": "http"},
            "timeoutSeconds": 5,
            "periodSeconds": 10,
            "failureThreshold": 6,
            "terminationGracePeriodSeconds": FAILED_GRACE_S,
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }


def _ready_path(version: str) -> str:
    numbers = [int("".join(itertools.takewhile(str.isdecimal, part)) or "0") for part in version.split(".")[:3]]
    return "/ready" if tuple(numbers) >= READY_SINCE else "/health"


def _http_probe(path: str, *, timeout_s: int, period_s: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
        "timeoutSeconds": timeout_s,
        "periodSeconds": period_s,
    }


_Rendering = Callable[
    [values.Service, revision.Revision, int, values.Profile, values.Owner | None], list[meta.Manifest]
]
_RENDERINGS: Final[Mapping[str, _Rendering]] = {"1": _render_v1}
