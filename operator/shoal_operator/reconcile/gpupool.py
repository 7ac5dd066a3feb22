"""GPUPool: what its nodes have, and how much of that is free. Reads Nodes and Pods, writes only the status."""

import pydantic

from shoal_api.conditions import ConditionType, Reason
from shoal_api.gpupool import GpuCounts, GPUPoolSpec, GPUPoolStatus
from shoal_operator.kube import resources
from shoal_operator.reconcile import gpus, report, resolving
from shoal_operator.reconcile.conditions import Finding
from shoal_operator.reconcile.context import Context
from shoal_operator.reconcile.outcome import Done, Key, Outcome, Requeue

REFRESH_S = 30.0
"""Pods of others take GPUs too, and nobody watches those."""


async def reconcile(context: Context, key: Key) -> Outcome:
    items = await context.world.list_objects(resources.GPU_POOLS)
    item = next((one for one in items if one["metadata"]["name"] == key.name), None)
    if item is None:
        return Done()
    old = report.stored(GPUPoolStatus, item)
    try:
        spec = GPUPoolSpec.model_validate(item.get("spec") or {})
    except pydantic.ValidationError as error:
        field, message = resolving.first_error(error)
        refused = Finding(ConditionType.READY, "False", Reason.INVALID_SPEC, f"spec.{field}: {message}")
        status, edges = report.with_conditions(context, item, old, GPUPoolStatus(), [refused])
        await report.write(context, item, old, status, edges)
        return Done()
    world = await context.world.gpus()
    use = gpus.use_of(spec.node_selector, spec.resource_name, world.nodes, world.demands)
    status = GPUPoolStatus(
        nodes=use.nodes,
        gpus=GpuCounts(total=use.total, allocated=use.allocated, free=use.free, summary=f"{use.free}/{use.total}"),
        largest_free_block=use.largest_free_block,
    )
    status, edges = report.with_conditions(context, item, old, status, _findings(spec, use))
    await report.write(context, item, old, status, edges)
    return Requeue(REFRESH_S, "GPUs of others")


def _findings(pool: GPUPoolSpec, use: gpus.PoolUse) -> list[Finding]:
    if use.nodes == 0:
        labels = ", ".join(f"{name}={value}" for name, value in sorted(pool.node_selector.items()))
        message = f"no ready node has {pool.resource_name} and the labels {labels}"
        return [Finding(ConditionType.READY, "False", Reason.NO_NODES, message)]
    expected = use.nodes * pool.gpus_per_node
    found = [
        Finding(ConditionType.READY, "True", Reason.NODES_FOUND, f"{use.nodes} nodes with {use.total} GPUs"),
    ]
    if use.total < expected:
        message = f"{use.nodes} nodes should have {expected} {pool.gpu}, and have {use.total}"
        found.append(Finding(ConditionType.DEGRADED, "True", Reason.GPUS_MISSING, message, good="False"))
    else:
        found.append(Finding(ConditionType.DEGRADED, "False", Reason.AS_EXPECTED, good="False"))
    return found
