"""One cluster for the operator's tests, one operator, one namespace with GPUs of its own a test."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shoal_api import keys
from shoal_local.controlplane import ControlPlane
from shoal_testing import apiserver, kinds, objects, operatorprocess
from shoal_testing.cluster import Cluster, Kubelet, Object, node, until
from shoal_testing.operatorprocess import Operator
from shoal_testing.statedouble import Farm, Traffic


@dataclass
class Stage:
    """The session's cluster with its stand-ins."""

    cluster: Cluster
    kubelet: Kubelet
    farm: Farm
    operator_kubeconfig: Path
    held_back: set[str] = field(default_factory=set)
    """Names of Pods, or namespaces, that must not become ready."""


@dataclass
class Place:
    """A namespace with a Router, and a GPU type that only it has."""

    stage: Stage
    namespace: str
    gpu: str
    traffic: Traffic

    @property
    def cluster(self) -> Cluster:
        return self.stage.cluster

    def add_node(self, gpus: int = 8) -> str:
        name = f"node-{uuid.uuid4().hex[:8]}"
        self.cluster.create(node(name, {"test/gpu": self.gpu}, gpus))
        return name

    def service(self, name: str = "m", **spec: Any) -> Object:
        """Create a ModelService of four GPUs a replica."""
        return self.cluster.create(self.manifest(name, **spec))

    def manifest(self, name: str = "m", **spec: Any) -> Object:
        wanted: Object = {
            "model": {"source": "file:///models/tiny", "servedName": f"model-{name}", "contextLength": 32768},
            "hardware": [{"gpu": self.gpu, "gpusPerReplica": 4}],
            **spec,
        }
        return {
            "apiVersion": keys.API_VERSION,
            "kind": "ModelService",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": wanted,
        }

    def patch(self, name: str = "m", **spec: Any) -> None:
        self.cluster.patch("ModelService", name, self.namespace, {"spec": spec})

    def status(self, name: str = "m") -> Object:
        found = self.cluster.get("ModelService", name, self.namespace)
        return found.get("status", {}) if found is not None else {}

    def condition(self, kind: str, name: str = "m") -> Object:
        found = [one for one in self.status(name).get("conditions", []) if one["type"] == kind]
        return found[0] if found else {}

    def sets(self) -> list[Object]:
        return self.cluster.list("StatefulSet", self.namespace)

    def set_names(self) -> set[str]:
        return {one["metadata"]["name"] for one in self.sets()}

    def ready(self, count: int, name: str = "m", deadline_s: float = 60.0) -> Object:
        """Wait until so many replicas serve and nothing moves."""

        def settled() -> Object | None:
            status = self.status(name)
            good = status.get("replicas", {}).get("summary") == f"{count}/{count}"
            moving = self.condition("Progressing", name).get("status") != "False"
            return status if good and not moving and len(self.sets()) >= count else None

        found = until(settled, f"{count}/{count} replicas of {name} serve", deadline_s)
        assert found is not None
        return found


@pytest.fixture(scope="session")
def stage(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("operator-stage")
    kinds.install(apiserver.tool("kubectl", control_plane), tmp_path_factory.mktemp("operator-crds"))
    scratch = tmp_path_factory.mktemp("operator-client")
    with objects.api(control_plane.kubeconfig, scratch) as api:
        cluster = Cluster(api.client)
        operatorprocess.install_rights(cluster)
        kubeconfig = operatorprocess.write_kubeconfig(cluster, control_plane.kubeconfig, folder / "kubeconfig")
        held_back: set[str] = set()

        def hold_back(pod: Object) -> bool:
            meta = pod["metadata"]
            return meta["name"] in held_back or meta["namespace"] in held_back

        kubelet, farm = Kubelet(cluster, hold_back), Farm(cluster)
        kubelet.start()
        farm.start()
        try:
            yield Stage(cluster, kubelet, farm, kubeconfig, held_back)
        finally:
            farm.stop()
            kubelet.stop()


@pytest.fixture(scope="session")
def operator_process(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator that leads, for all tests that do not start their own."""
    folder = tmp_path_factory.mktemp("operator")
    with operatorprocess.operator(stage.operator_kubeconfig, folder, f"one-{uuid.uuid4().hex[:6]}") as running:
        until(lambda: running.leading, "the operator leads", 60)
        yield running


@pytest.fixture
def place(stage: Stage) -> Iterator[Place]:
    """An empty namespace with a Router of one process, and one node of eight GPUs."""
    word = uuid.uuid4().hex[:8]
    namespace, gpu = f"place-{word}", f"GPU-{word}"
    cluster = stage.cluster
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    spec = {
        "gpu": gpu,
        "architecture": "sm100",
        "memory": "180Gi",
        "nodeSelector": {"test/gpu": gpu},
        "gpusPerNode": 8,
    }
    pool = {"apiVersion": keys.API_VERSION, "kind": "GPUPool", "metadata": {"name": f"pool-{word}"}, "spec": spec}
    cluster.create(pool)
    router = {
        "apiVersion": keys.API_VERSION,
        "kind": "Router",
        "metadata": {"name": "default", "namespace": namespace},
        "spec": {"replicas": 1},
    }
    cluster.create(router)
    made = Place(stage, namespace, gpu, stage.farm.traffic(namespace))
    made.add_node()
    try:
        yield made
    finally:
        for one in cluster.list("Node", labels=f"test/gpu={gpu}"):
            cluster.delete("Node", one["metadata"]["name"])
        cluster.delete("GPUPool", f"pool-{word}")
        cluster.delete("Namespace", namespace)
