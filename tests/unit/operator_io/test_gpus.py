"""GPU accounting: what is free, and what still fits."""

from typing import Any

import pytest

from shoal_operator.reconcile import gpus

GPU = "nvidia.com/gpu"


def node(name: str, total: int = 8, *, ready: str = "True", unschedulable: bool = False, pool: str = "b200") -> Any:
    return gpus.node_of(
        {
            "metadata": {"name": name, "labels": {"pool": pool}},
            "spec": {"unschedulable": unschedulable},
            "status": {
                "conditions": [{"type": "Ready", "status": ready}],
                "allocatable": {GPU: str(total), "cpu": "64", "memory": "2Ti"},
            },
        }
    )


def pod(node_name: str | None, count: int, *, phase: str = "Running", pool: str = "b200") -> Any:
    return gpus.demand_of(
        {
            "metadata": {"name": "p", "namespace": "ns"},
            "spec": {
                "nodeName": node_name,
                "nodeSelector": {"pool": pool},
                "containers": [{"resources": {"limits": {GPU: str(count), "cpu": "1"}}}],
            },
            "status": {"phase": phase},
        }
    )


def test_counts_ready_nodes_of_the_pool_and_pods_bound_to_them() -> None:
    nodes = [node("a"), node("b"), node("c", ready="False"), node("d", unschedulable=True), node("e", pool="h200")]
    use = gpus.use_of({"pool": "b200"}, GPU, nodes, [pod("a", 4), pod("e", 8), pod("c", 8), pod(None, 4)])
    assert use == gpus.PoolUse(nodes=2, total=16, allocated=4, free_by_node=(4, 8))
    assert use.free == 12
    assert use.largest_free_block == 8


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_have_ended_hold_nothing(phase: str) -> None:
    assert pod("a", 4, phase=phase) is None


def test_overcommitted_node_is_not_negative() -> None:
    use = gpus.use_of({}, GPU, [node("a", 2)], [pod("a", 4)])
    assert use.free == 0


@pytest.mark.parametrize(
    ("free", "size", "unbound", "want"),
    [
        ((8, 8), 4, [], 4),
        ((4, 4), 8, [], 0),  # eight free, but no block of eight
        ((8, 4), 4, [4], 2),  # the waiting one takes the tight place
        ((8, 8), 8, [8, 8], 0),
        ((8,), 4, [16], 2),  # one that fits nowhere takes nothing
        ((), 1, [], 0),
    ],
)
def test_room(free: tuple[int, ...], size: int, unbound: list[int], want: int) -> None:
    use = gpus.PoolUse(nodes=len(free), total=sum(free), allocated=0, free_by_node=free)
    assert gpus.room_for(use, size, unbound) == want
