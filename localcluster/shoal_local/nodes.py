"""Nodes of a local cluster: read from YAML, rendered as the Node objects that a GPU machine's kubelet would register.

The scheduler sees only these objects, so what a file says here is what "fits" means in the cluster. Pure, but for
`read_nodes`.
"""

from pathlib import Path
from typing import Any, Final

import pydantic

from shoal_local.yamlfile import InvalidFileError, parse_yaml

PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
GPU_RESOURCE: Final = "nvidia.com/gpu"
_PODS_MAX: Final = "250"


class _Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Gpu(_Strict):
    """The accelerators of a node."""

    type: str
    count: int = pydantic.Field(ge=1, le=64)
    memory_gib: int = pydantic.Field(alias="memoryGiB", ge=1)
    product: str | None = None
    """Value of the label that GPU feature discovery writes; `NVIDIA-<type>` when left out."""
    resource: str = GPU_RESOURCE
    taint: bool = True
    """Whether Pods without the GPU toleration are kept away, as managed clusters do."""


class Taint(_Strict):
    """A taint as Kubernetes writes it."""

    key: str
    value: str = ""
    effect: str = pydantic.Field(pattern="^(NoSchedule|PreferNoSchedule|NoExecute)$")


class NodeSpec(_Strict):
    """One entry of the file; `count` above 1 makes `<name>-0`, `<name>-1`, ..."""

    name: str = pydantic.Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=50)
    count: int = pydantic.Field(default=1, ge=1, le=200)
    cpu: str = "8"
    memory: str = "32Gi"
    storage: str = "200Gi"
    zone: str = "zone-a"
    region: str = "local"
    instance_type: str = pydantic.Field(default="local", alias="instanceType")
    gpu: Gpu | None = None
    resources: dict[str, str] = pydantic.Field(default_factory=dict)
    """More extended resources, such as `rdma/hca: "8"`."""
    labels: dict[str, str] = pydantic.Field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


class NodesFile(_Strict):
    """The whole file."""

    nodes: tuple[NodeSpec, ...] = pydantic.Field(min_length=1)


DEFAULT_NODES: Final = """\
# Nodes of the local cluster; what is written here is what the scheduler sees.
nodes:
  - {name: cpu, count: 2, cpu: "32", memory: 128Gi, instanceType: general}
  - name: b200
    count: 2
    cpu: "224"
    memory: 2Ti
    instanceType: hgx-b200
    gpu: {type: B200, count: 8, memoryGiB: 180}
    resources: {rdma/hca: "8"}
  - name: b300-0
    cpu: "224"
    memory: 3Ti
    zone: zone-b
    instanceType: hgx-b300
    gpu: {type: B300, count: 8, memoryGiB: 270}
    resources: {rdma/hca: "8"}
  - name: h200-0
    cpu: "192"
    memory: 2Ti
    zone: zone-b
    instanceType: hgx-h200
    gpu: {type: H200, count: 8, memoryGiB: 141}
    resources: {rdma/hca: "8"}
"""


def parse_nodes(text: str, origin: str) -> list[NodeSpec]:
    """The nodes of a file's text, counts unrolled, names unique."""
    parsed = parse_yaml(NodesFile, text, origin)
    unrolled = []
    for spec in parsed.nodes:
        names = [spec.name] if spec.count == 1 else [f"{spec.name}-{index}" for index in range(spec.count)]
        unrolled += [spec.model_copy(update={"name": name, "count": 1}) for name in names]
    names = [spec.name for spec in unrolled]
    for name in names:
        if names.count(name) > 1:
            raise InvalidFileError(f"{origin}: two nodes are called {name}")
    return unrolled


def read_nodes(path: Path | None) -> list[NodeSpec]:
    """The nodes of a file, or the default ones."""
    return parse_nodes(DEFAULT_NODES, "default nodes") if path is None else parse_nodes(path.read_text(), str(path))


def render_labels(spec: NodeSpec) -> dict[str, str]:
    """Labels that kubelet, cloud and GPU feature discovery would write; the file's own win."""
    labels = {
        "kubernetes.io/hostname": spec.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": spec.instance_type,
        "topology.kubernetes.io/zone": spec.zone,
        "topology.kubernetes.io/region": spec.region,
    }
    if spec.gpu is not None:
        labels |= {
            PRODUCT_LABEL: spec.gpu.product or f"NVIDIA-{spec.gpu.type}",
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.count": str(spec.gpu.count),
            "nvidia.com/gpu.memory": str(spec.gpu.memory_gib * 1024),
        }
    return labels | spec.labels


def render_capacity(spec: NodeSpec) -> dict[str, str]:
    """What Pods on the node may ask for together."""
    capacity = {"cpu": spec.cpu, "memory": spec.memory, "ephemeral-storage": spec.storage, "pods": _PODS_MAX}
    if spec.gpu is not None:
        capacity[spec.gpu.resource] = str(spec.gpu.count)
    return capacity | spec.resources


def render_node(spec: NodeSpec) -> dict[str, Any]:
    """The Node object without status."""
    taints = [each.model_dump(exclude_defaults=True) for each in spec.taints]
    if spec.gpu is not None and spec.gpu.taint:
        taints.append({"key": spec.gpu.resource, "value": "present", "effect": "NoSchedule"})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": spec.name, "labels": render_labels(spec)},
        "spec": {"taints": taints},
    }


def render_node_status(spec: NodeSpec, address: str, kubelet_port: int, version: str, now: str) -> dict[str, Any]:
    """The status that makes a node Ready; `now` is an RFC 3339 time."""
    conditions = [
        ("Ready", "True", "KubeletReady", "the local cluster's node agent is running"),
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "memory is not limited here"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "disk is not limited here"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "processes are not limited here"),
    ]
    capacity = render_capacity(spec)
    return {
        "capacity": capacity,
        "allocatable": capacity,
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": spec.name}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
        "conditions": [
            {"type": kind, "status": status, "reason": reason, "message": message, "lastHeartbeatTime": now}
            for kind, status, reason, message in conditions
        ],
        "nodeInfo": {
            "machineID": spec.name,
            "systemUUID": spec.name,
            "bootID": spec.name,
            "kernelVersion": "local",
            "osImage": "local processes",
            "containerRuntimeVersion": "process://1",
            "kubeletVersion": version,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    }
