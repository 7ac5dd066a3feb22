"""What reconcilers read: per ModelService its object, StatefulSets and Pods; per namespace the small kinds; the GPUs.

Everything is read from kube-apiserver and kept until a watch event, or a write of our own, says that it is old, so that
the 2 s tick of a service that nothing happens to costs no request. Kept readings also expire by age: a lost event can
matter for a minute at most.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shoal_api import keys
from shoal_operator.kube import resources
from shoal_operator.kube.client import Client
from shoal_operator.kube.resources import Object, Resource
from shoal_operator.kube.routers import RouterPod
from shoal_operator.reconcile import gpus, observe, resolving
from shoal_operator.reconcile.cache import Cached
from shoal_operator.reconcile.outcome import Key

SNAPSHOT_AGE_S_MAX: Final = 60.0
MANAGED: Final = {keys.LABEL_MANAGED_BY: keys.FIELD_MANAGER}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One ModelService and what it owns, as read."""

    item: Object
    sets: tuple[Object, ...]
    pods: tuple[Object, ...]
    read_at_s: float


@dataclass(frozen=True, slots=True)
class Gpus:
    """Nodes with GPUs, and Pods that ask for them."""

    nodes: tuple[gpus.NodeGpus, ...]
    demands: tuple[gpus.Demand, ...]


class World:
    def __init__(
        self, client: Client, *, namespace: str | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`namespace`: the only one that may be read; None: all."""
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._snapshots: dict[Key, Snapshot] = {}
        self._lists: dict[tuple[Resource, str], Cached[list[Object]]] = {}
        self._gpus: Cached[Gpus] = Cached(self._read_gpus, interval_s=0.5, age_max_s=15.0, clock=clock)

    def touch_service(self, key: Key) -> None:
        """The ModelService, one of its StatefulSets or of its Pods changed."""
        self._snapshots.pop(key, None)

    def touch_list(self, resource: Resource, namespace: str) -> None:
        cached = self._lists.get((resource, namespace))
        if cached is not None:
            cached.touch()

    def touch_gpus(self) -> None:
        self._gpus.touch()

    def forget(self) -> None:
        """Everything is old: leadership began, or it is time for a resync."""
        self._snapshots.clear()
        self._lists.clear()
        self._gpus.touch()

    async def snapshot(self, key: Key) -> Snapshot:
        """NotFoundError when the ModelService is gone."""
        known = self._snapshots.get(key)
        if known is not None and self._clock() - known.read_at_s < SNAPSHOT_AGE_S_MAX:
            return known
        read_at_s = self._clock()
        labels = {**MANAGED, keys.LABEL_SERVICE: key.name}
        # In the map before the reads, so that an event that comes while they are under way takes it out again.
        marker = Snapshot({}, (), (), read_at_s=float("-inf"))
        self._snapshots[key] = marker
        try:
            item, sets, pods = await asyncio.gather(
                self._client.get(resources.MODEL_SERVICES, key.name, key.namespace),
                self._client.list_objects(resources.STATEFUL_SETS, key.namespace, labels=labels),
                self._client.list_objects(resources.PODS, key.namespace, labels=labels),
            )
        except BaseException:
            self._snapshots.pop(key, None)
            raise
        snapshot = Snapshot(item, tuple(sets), tuple(pods), read_at_s)
        if self._snapshots.get(key) is marker:
            self._snapshots[key] = snapshot
        return snapshot

    def wrote_status(self, key: Key, read: Snapshot, item: Object) -> None:
        """Our own status write: a reading that is still good goes on with what the server answered."""
        if self._snapshots.get(key) is read:
            self._snapshots[key] = Snapshot(item, read.sets, read.pods, read.read_at_s)

    async def list_objects(self, resource: Resource, namespace: str = "") -> list[Object]:
        """All objects of one of our own kinds in a namespace (empty: cluster). Not to be changed by the caller."""
        place = (resource, namespace)
        if place not in self._lists:
            self._lists[place] = Cached(
                lambda: self._client.list_objects(resource, namespace or None), clock=self._clock
            )
        return await self._lists[place].get()

    async def catalog(self, namespace: str) -> resolving.Catalog:
        """What ModelServices of the namespace may refer to."""
        pools = await self.list_objects(resources.GPU_POOLS)
        drafts = await self.list_objects(resources.DRAFT_MODELS, namespace)
        return resolving.catalog_of(pools, drafts)

    async def gpus(self) -> Gpus:
        return await self._gpus.get()

    async def _read_gpus(self) -> Gpus:
        nodes = [gpus.node_of(item) for item in await self._client.list_objects(resources.NODES)]
        # Pods that have ended hold nothing; the server leaves them out.
        running = "status.phase!=Succeeded,status.phase!=Failed"
        demands = []
        async for page in self._client.pages(resources.PODS, self._namespace, fields=running):
            demands += [demand for item in page if (demand := gpus.demand_of(item)) is not None]
        return Gpus(tuple(node for node in nodes if node.total), tuple(demands))

    async def router_pods(self) -> tuple[RouterPod, ...]:
        """Every router process there is, read anew."""
        labels = {**MANAGED, keys.LABEL_ROUTER: "", keys.LABEL_COMPONENT: "router"}
        found = await self._client.list_objects(resources.PODS, self._namespace, labels=labels)
        return observe.router_pods_of(found)
