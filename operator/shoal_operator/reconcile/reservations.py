"""GPUs that were promised to replicas whose Pods nobody has seen yet. Memory of the leader, and only for a minute.

Between the apply of a StatefulSet and the first sight of its Pod, Nodes and Pods look as if the GPUs were free; without
this, the next service's plan would give them away a second time.
"""

import time
from collections.abc import Callable, Iterable
from typing import Final

from shoal_operator.domain import values
from shoal_operator.reconcile import gpus
from shoal_operator.reconcile.world import Gpus

SEEN_BY_THEN_S: Final = 60.0


class Reservations:
    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._made: dict[tuple[str, str], tuple[str, int, float]] = {}  # (namespace, replica) -> pool, GPUs, when

    def add(self, namespace: str, replica: str, profile: values.Profile) -> None:
        self._made[namespace, replica] = (profile.pool.name, profile.gpus, self._clock())

    def forget_all(self) -> None:
        self._made.clear()

    def room(self, profile: values.Profile, world: Gpus) -> int:
        """How many more replicas of this profile fit now."""
        pool = profile.pool
        selector = dict(pool.node_selector)
        use = gpus.use_of(selector, pool.resource_name, world.nodes, world.demands)
        waiting = gpus.unbound_on(selector, pool.resource_name, world.demands)
        waiting += self._unseen(pool.name, world.demands)
        return gpus.room_for(use, profile.gpus, waiting)

    def _unseen(self, pool: str, demands: Iterable[gpus.Demand]) -> list[int]:
        seen = {(demand.namespace, demand.replica) for demand in demands if demand.replica}
        now_s = self._clock()
        gone = [key for key, (_, _, at_s) in self._made.items() if key in seen or now_s - at_s > SEEN_BY_THEN_S]
        for key in gone:
            del self._made[key]
        return [size for its_pool, size, _ in self._made.values() if its_pool == pool]
