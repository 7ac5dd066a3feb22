"""What the leader remembers about starts of replicas: how long they took, and since when the present one lasts.

Kubernetes tells when a Pod became ready last, not first: a readiness that was lost for a moment hours later would pass
for a start of hours. So a start is measured when it is first seen, kept, and never measured again. The reconciler of a
ModelService asks; memory of one leader.
"""

from collections.abc import Sequence
from typing import Final

from shoal_operator.domain import scaling
from shoal_operator.reconcile.observe import Group
from shoal_operator.reconcile.outcome import Key

ASSUMED_S: Final = 600.0
"""At least this is assumed until a replica of the service has been seen to start."""
KEPT: Final = 32
"""Starts of one service that are remembered, beside those of Pods that run."""
BUDGETS_MAX: Final = 2.0
"""A Pod that became ready later than so many start-up budgets has been ready before: pulling the image and waiting for
a node are in it, hours are not."""


class Starts:
    def __init__(self) -> None:
        self._took: dict[Key, dict[str, float | None]] = {}
        self._podless: dict[Key, dict[str, float]] = {}

    def forget(self, key: Key) -> None:
        self._took.pop(key, None)
        self._podless.pop(key, None)

    def forget_all(self) -> None:
        self._took.clear()
        self._podless.clear()

    def note(self, key: Key, groups: Sequence[Group], *, budget_s: float, now_s: float) -> None:
        """What one look at the service shows."""
        took = self._took.setdefault(key, {})
        for group in groups:
            pod = group.pod
            if pod is None or pod.ready_at_s is None or pod.uid in took:
                continue
            seconds = pod.ready_at_s - max(group.created_at_s, pod.created_at_s or 0.0)
            # Kubernetes' times are whole seconds: a start is never counted shorter than that.
            plain = pod.restarts == 0 and seconds <= BUDGETS_MAX * budget_s
            took[pod.uid] = max(1.0, seconds) if plain else None
        living = {group.pod.uid for group in groups if group.pod is not None}
        for uid in [uid for uid in took if uid not in living][: max(0, len(took) - KEPT)]:
            del took[uid]  # the longest gone first
        before = self._podless.get(key, {})
        self._podless[key] = {one.name: before.get(one.name, now_s) for one in groups if one.pod is None}

    def begun_s(self, key: Key, group: Group) -> float:
        """When the replica's present start began: with its Pod, or when it was first seen without one."""
        if group.pod is not None:
            return max(group.created_at_s, group.pod.created_at_s or 0.0)
        return max(group.created_at_s, self._podless.get(key, {}).get(group.name, 0.0))

    def cold_start_s(self, key: Key, *, budget_s: float) -> float:
        """p95 of the starts seen; before the first, so much that only a start beyond its whole budget is late."""
        seen = sorted(one for one in self._took.get(key, {}).values() if one is not None)
        if not seen:
            return max(ASSUMED_S, budget_s / scaling.STALLED_FACTOR)
        return seen[min(len(seen) - 1, int(0.95 * len(seen)))]
