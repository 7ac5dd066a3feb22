"""Which GPUs are free, from Nodes and Pods. Pure; the GPUPool reconciler and the planner's `room` read it.

A GPU is taken when a Pod that is bound to the node asks for it, whoever made the Pod. Replicas that are wanted but not
bound yet have no node; they are placed here as the scheduler would place them at best, so that ten services planned in
one second do not all count on the same free node.
"""

import collections
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shoal_api import keys
from shoal_operator.kube.resources import Object


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """One node's GPUs of one resource name."""

    name: str
    labels: Mapping[str, str]
    ready: bool
    """Ready and schedulable."""
    total: Mapping[str, int]
    """Allocatable extended resources by name."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one Pod asks for; `node` is None while it is not bound."""

    node: str | None
    resources: Mapping[str, int]
    node_selector: Mapping[str, str]
    namespace: str = ""
    replica: str = ""
    """Name of the replica group, for an engine of ours."""


@dataclass(frozen=True, slots=True)
class PoolUse:
    """GPUs of one pool."""

    nodes: int
    total: int
    allocated: int
    free_by_node: tuple[int, ...]

    @property
    def free(self) -> int:
        return sum(self.free_by_node)

    @property
    def largest_free_block(self) -> int:
        return max(self.free_by_node, default=0)


def node_of(item: Object) -> NodeGpus:
    status = item.get("status") or {}
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or []}
    schedulable = not (item.get("spec") or {}).get("unschedulable", False)
    allocatable: dict[str, str] = status.get("allocatable") or {}
    return NodeGpus(
        name=item["metadata"]["name"],
        labels=item["metadata"].get("labels") or {},
        ready=conditions.get("Ready") == "True" and schedulable,
        total=_extended(allocatable),
    )


def demand_of(item: Object) -> Demand | None:
    """None for a Pod that asks for no extended resource, or has ended."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return None
    asked: collections.Counter[str] = collections.Counter()
    for container in spec.get("containers") or []:
        resources = container.get("resources") or {}
        asked.update(_extended({**(resources.get("limits") or {}), **(resources.get("requests") or {})}))
    if not asked:
        return None
    meta = item["metadata"]
    return Demand(
        node=spec.get("nodeName"),
        resources=dict(asked),
        node_selector=spec.get("nodeSelector") or {},
        namespace=meta.get("namespace") or "",
        replica=(meta.get("labels") or {}).get(keys.LABEL_REPLICA, ""),
    )


def _extended(quantities: Mapping[str, str]) -> dict[str, int]:
    """Extended resources are whole numbers under a domain's name; the rest (cpu, memory) is not counted here."""
    return {name: int(value) for name, value in quantities.items() if "/" in name and str(value).isdecimal()}


def use_of(selector: Mapping[str, str], resource: str, nodes: Iterable[NodeGpus], demands: Iterable[Demand]) -> PoolUse:
    """How much of a pool is in use. Nodes that are not ready, or closed, have nothing to give and do not count."""
    mine = {
        node.name: node.total.get(resource, 0)
        for node in nodes
        if node.ready and node.total.get(resource) and _matches(selector, node.labels)
    }
    taken: collections.Counter[str] = collections.Counter()
    for demand in demands:
        if demand.node in mine:
            taken[demand.node] += demand.resources.get(resource, 0)
    free = tuple(sorted(max(0, total - taken[name]) for name, total in mine.items()))
    return PoolUse(nodes=len(mine), total=sum(mine.values()), allocated=sum(taken.values()), free_by_node=free)


def room_for(use: PoolUse, gpus: int, unbound: Iterable[int] = ()) -> int:
    """How many more replicas of `gpus` GPUs fit, after those that wait for a node have got theirs, best fit first."""
    blocks = list(use.free_by_node)
    for size in sorted(unbound, reverse=True):
        fitting = [index for index, free in enumerate(blocks) if free >= size]
        if fitting:
            blocks[min(fitting, key=lambda index: blocks[index])] -= size
    return sum(free // gpus for free in blocks)


def unbound_on(selector: Mapping[str, str], resource: str, demands: Iterable[Demand]) -> list[int]:
    """Sizes of the demands that wait for a node of this pool."""
    return [
        demand.resources[resource]
        for demand in demands
        if demand.node is None and demand.resources.get(resource) and _matches(selector, demand.node_selector)
    ]


def _matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())
