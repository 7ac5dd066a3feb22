"""A cluster for operator tests: a real control plane, with a stand-in for what has no place there.

`Cluster` is a thin synchronous client. `Kubelet` does to Pods what the kubelet would do, as envtest's users do it:
nodes are kept ready, bound Pods get an address and become ready, terminating ones go. Everything else (StatefulSets,
scheduling, garbage collection, RBAC) is Kubernetes' own.
"""

import itertools
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx

Object = dict[str, Any]
T = TypeVar("T")

PATHS = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/{ns}/pods",
    "Service": "/api/v1/namespaces/{ns}/services",
    "ConfigMap": "/api/v1/namespaces/{ns}/configmaps",
    "ServiceAccount": "/api/v1/namespaces/{ns}/serviceaccounts",
    "Event": "/api/v1/namespaces/{ns}/events",
    "StatefulSet": "/apis/apps/v1/namespaces/{ns}/statefulsets",
    "Deployment": "/apis/apps/v1/namespaces/{ns}/deployments",
    "ControllerRevision": "/apis/apps/v1/namespaces/{ns}/controllerrevisions",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ModelService": "/apis/shoal.dev/v1alpha1/namespaces/{ns}/modelservices",
    "Router": "/apis/shoal.dev/v1alpha1/namespaces/{ns}/routers",
    "DraftModel": "/apis/shoal.dev/v1alpha1/namespaces/{ns}/draftmodels",
    "GPUPool": "/apis/shoal.dev/v1alpha1/gpupools",
}


def until(condition: Callable[[], T], what: str, deadline_s: float = 60.0, every_s: float = 0.1) -> T:
    """The first true value of `condition`; AssertionError with `what` when none comes in time."""
    deadline = time.monotonic() + deadline_s
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {deadline_s:.0f} s: {what}; last seen: {found!r}")
        time.sleep(every_s)


@dataclass
class Cluster:
    """Requests as administrator; every method raises with the API's own message."""

    client: httpx.Client

    def list(self, kind: str, namespace: str = "", labels: str = "") -> list[Object]:
        path = PATHS[kind].format(ns=namespace) if namespace else PATHS[kind].replace("/namespaces/{ns}", "")
        answer = self._send("GET", path, params={"labelSelector": labels} if labels else {})
        return list(answer["items"])

    def get(self, kind: str, name: str, namespace: str = "") -> Object | None:
        response = self.client.get(f"{PATHS[kind].format(ns=namespace)}/{name}")
        return None if response.status_code == 404 else self._checked(response)

    def create(self, item: Object) -> Object:
        path = PATHS[item["kind"]].format(ns=item["metadata"].get("namespace", ""))
        return self._send("POST", path, json=item)

    def patch(self, kind: str, name: str, namespace: str, patch: Object, subresource: str = "") -> Object:
        path = f"{PATHS[kind].format(ns=namespace)}/{name}{subresource}"
        headers = {"content-type": "application/merge-patch+json"}
        return self._send("PATCH", path, json=patch, headers=headers)

    def delete(self, kind: str, name: str, namespace: str = "", grace_s: int | None = None) -> None:
        params = {} if grace_s is None else {"gracePeriodSeconds": str(grace_s)}
        response = self.client.delete(f"{PATHS[kind].format(ns=namespace)}/{name}", params=params)
        if response.status_code != 404:
            self._checked(response)

    def _send(self, method: str, path: str, **more: Any) -> Object:
        return self._checked(self.client.request(method, path, **more))

    @staticmethod
    def _checked(response: httpx.Response) -> Object:
        if response.status_code >= 400:
            raise AssertionError(f"{response.request.method} {response.request.url}: {response.text}")
        found: Object = response.json()
        return found


def node(name: str, labels: dict[str, str], gpus: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": {"cpu": "64", "memory": "1Ti", "pods": "250", "nvidia.com/gpu": str(gpus)},
            "allocatable": {"cpu": "64", "memory": "1Ti", "pods": "250", "nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok"}],
        },
    }


@dataclass
class Kubelet:
    """Plays every node of the cluster in one thread. `hold_back(pod)` keeps a Pod from becoming ready."""

    cluster: Cluster
    hold_back: Callable[[Object], bool] = lambda pod: False
    addresses: dict[str, str] = field(default_factory=dict)
    """Addresses that Pods should get, by name; others get a free one of the loopback network."""

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)
        self._renewed_s: dict[str, float] = {}
        self._free = (f"127.{a}.{b}.{c}" for a, b, c in _shuffled_addresses())

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(20)

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            try:
                for one in self.cluster.list("Node"):
                    self._renew(one)
                for pod in self.cluster.list("Pod"):
                    self._sync(pod)
            except (AssertionError, httpx.HTTPError, ValueError):
                continue  # kube-apiserver is away, or somebody was faster: next round

    def _renew(self, item: Object) -> None:
        """A node without a fresh Lease becomes NotReady after 40 s; the kubelet says so when it is well again."""
        name = item["metadata"]["name"]
        conditions = [one for one in item["status"].get("conditions", []) if one["type"] == "Ready"]
        if [one["status"] for one in conditions] != ["True"]:
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok"}
            self.cluster.patch("Node", name, "", {"status": {"conditions": [ready]}}, "/status")
        if time.monotonic() - self._renewed_s.get(name, float("-inf")) < 10:
            return
        self._renewed_s[name] = time.monotonic()
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now},
        }
        if self.cluster.get("Lease", name, "kube-node-lease") is None:
            self.cluster.create(lease)
        else:
            self.cluster.patch("Lease", name, "kube-node-lease", {"spec": lease["spec"]})

    def _sync(self, pod: Object) -> None:
        meta, status = pod["metadata"], pod.get("status", {})
        if not pod["spec"].get("nodeName"):
            return
        if "deletionTimestamp" in meta:
            self.cluster.delete("Pod", meta["name"], meta["namespace"], grace_s=0)
            return
        ready = {one["type"]: one["status"] for one in status.get("conditions", [])}.get("Ready") == "True"
        if ready:
            return
        started = not self.hold_back(pod)
        if not started and status.get("phase") == "Running":
            return
        ip = status.get("podIP") or self.addresses.get(meta["name"]) or next(self._free)
        self.set_status(pod, ready=started, ip=ip)

    def set_status(self, pod: Object, *, ready: bool, ip: str, **container: Any) -> None:
        """Running, and ready or not; `container` overrides fields of each containerStatus."""
        meta = pod["metadata"]
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        kept = [one for one in pod.get("status", {}).get("conditions", []) if one["type"] == "PodScheduled"]
        statuses = [
            {
                "name": one["name"],
                "image": one["image"],
                "imageID": one["image"],
                "containerID": f"test://{meta['uid']}",
                "restartCount": 0,
                "ready": ready,
                "started": ready,
                "state": {"running": {"startedAt": now}},
                **container,
            }
            for one in pod["spec"]["containers"]
        ]
        conditions = [
            {"type": name, "status": "True" if ready else "False", "lastTransitionTime": now}
            for name in ("Ready", "ContainersReady")
        ]
        patch = {
            "status": {
                "phase": "Running",
                "podIP": ip,
                "podIPs": [{"ip": ip}],
                "startTime": now,
                "conditions": [*kept, *conditions],
                "containerStatuses": statuses,
            }
        }
        self.cluster.patch("Pod", meta["name"], meta["namespace"], patch, "/status")


def _shuffled_addresses() -> "itertools.product[tuple[int, int, int]]":
    """Loopback addresses in an order of their own, so that test sessions side by side do not meet."""
    chooser = random.Random()
    ranges = [chooser.sample(range(1, 255), 254) for _ in range(3)]
    return itertools.product(*ranges)  # type: ignore[return-value]
