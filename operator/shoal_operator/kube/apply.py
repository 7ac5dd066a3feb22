"""Server-side apply that is quiet when nothing changed and polite, once, when somebody else owns a field.

An object is applied when what is wanted differs from what was applied last, when the stored object has changed since
(its generation, or its resourceVersion where it has none), and after a resync; otherwise no request is made.
A field of ours that another manager owns is taken back by force, at most once in `CONTEST_S` an object, so that two
writers who disagree cost six writes a minute and a metric, not a storm.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shoal_operator.kube import errors
from shoal_operator.kube.client import Client
from shoal_operator.kube.resources import Object
from shoal_operator.telemetry import Metrics

log = logging.getLogger(__name__)

CONTEST_S: Final = 10.0
REMEMBERED_MAX: Final = 50_000


@dataclass(frozen=True, slots=True)
class Applied:
    """The stored object after the apply, and whether a request was made for it."""

    item: Object | None
    wrote: bool


class Applier:
    def __init__(self, client: Client, metrics: Metrics, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._metrics = metrics
        self._clock = clock
        self._known: dict[tuple[str, str, str], tuple[str, str]] = {}
        self._contested: dict[tuple[str, str, str], float] = {}

    def forget(self) -> None:
        """Apply everything once more (resync, or leadership that began)."""
        self._known.clear()
        self._contested.clear()

    async def apply(self, manifest: Object, observed: Object | None = None) -> Applied:
        """Bring one object to what the manifest says. `observed` is the stored object as last read, None if absent."""
        key = _key(manifest)
        digest = _digest(manifest)
        if observed is not None and self._known.get(key) == (digest, _version(observed)):
            return Applied(observed, wrote=False)
        try:
            item = await self._client.apply(manifest, force=False)
        except errors.ConflictError as error:
            taken = await self._take_back(manifest, key, error)
            if taken is None:
                return Applied(observed, wrote=False)
            item = taken
        self._metrics.writes.labels(manifest["kind"], "apply").inc()
        if len(self._known) >= REMEMBERED_MAX:
            self._known.clear()
        self._known[key] = (digest, _version(item))
        return Applied(item, wrote=True)

    async def _take_back(
        self, manifest: Object, key: tuple[str, str, str], error: errors.ConflictError
    ) -> Object | None:
        now_s = self._clock()
        last_s = self._contested.get(key)
        if last_s is not None and now_s - last_s < CONTEST_S:
            return None
        if len(self._contested) >= REMEMBERED_MAX:
            self._contested.clear()
        self._contested[key] = now_s
        self._metrics.apply_conflicts.labels(manifest["kind"]).inc()
        log.warning(
            "Another manager changed a field of ours; taking it back", extra={"object": key, "why": error.message}
        )
        return await self._client.apply(manifest, force=True)

    async def ensure(self, manifest: Object) -> Object | None:
        """Apply what nobody reads back: once for each content, and again after a resync. None: nothing was done."""
        key = _key(manifest)
        digest = _digest(manifest)
        if self._known.get(key, ("", ""))[0] == digest:
            return None
        return (await self.apply(manifest)).item


def _key(item: Object) -> tuple[str, str, str]:
    meta = item["metadata"]
    return item["kind"], meta.get("namespace", ""), meta["name"]


def _digest(manifest: Object) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _version(item: Object) -> str:
    """What changes when somebody changes the object, and not when its controller reports status, where possible."""
    meta = item["metadata"]
    generation = meta.get("generation")
    return f"{meta['uid']}/{generation if generation is not None else meta['resourceVersion']}"
