"""How many GPUs served while a replay ran: a given number, or the time-weighted mean of what a ModelService had.

Called by `run`. Reads the ModelService with kubectl, so that whatever logs a person in works here too.
"""

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

from shoal_cli import kubectl

EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Source:
    """`count`, or the ModelService `service` in `namespace`."""

    count: float | None = None
    service: str = ""
    target: kubectl.Target = field(default_factory=kubectl.Target)


class Counter:
    def __init__(self, source: Source | None) -> None:
        self._source = source
        self._weighted = 0.0
        self._seconds = 0.0

    def mean(self) -> float | None:
        if self._source is None:
            return None
        if self._source.count is not None:
            return self._source.count
        return self._weighted / self._seconds if self._seconds else None

    async def watch(self) -> None:
        """Samples until it is cancelled; a sample that cannot be read is left out."""
        if self._source is None or not self._source.service:
            return
        last_s = time.monotonic()
        while True:
            found = await _read(self._source)
            now_s = time.monotonic()
            if found is not None:
                self._weighted += found * max(now_s - last_s, 1e-3)
                self._seconds += max(now_s - last_s, 1e-3)
            last_s = now_s
            await asyncio.sleep(EVERY_S)


async def _read(source: Source) -> float | None:
    try:
        raw = await asyncio.to_thread(
            kubectl.output, source.target, ["get", "modelservices.shoal.dev", source.service, "-o", "json"]
        )
        return gpus_of(json.loads(raw))
    except (kubectl.KubectlError, ValueError):
        return None


def gpus_of(service: dict[str, Any]) -> float | None:
    """GPUs of all ready replicas of a ModelService object; None where its status does not tell."""
    status, spec = service.get("status") or {}, service.get("spec") or {}
    profiles = spec.get("hardware") or []
    ready = (status.get("replicas") or {}).get("ready")
    if ready is None or not profiles:
        return None
    by_gpu = {profile.get("gpu"): int(profile.get("gpusPerReplica", 1)) for profile in profiles}
    details = [
        one for one in status.get("replicaDetails") or () if one.get("gpu") in by_gpu and one.get("phase") == "Ready"
    ]
    if len(details) == ready:
        return float(sum(by_gpu[one["gpu"]] for one in details))
    return float(ready * next(iter(by_gpu.values())))
