"""Leadership: one `coordination.k8s.io` Lease, held by one operator process at a time.

The Lease is won or kept by a write whose resourceVersion must still be the stored one, so that two candidates never
both win. A holder that could not renew for `renew_deadline_s` stops leading by its own clock, before any other
candidate may take over after `duration_s`; `require` is the fence that the client asks before every write.
A candidate judges the holder by when it itself last saw the record change, never by comparing wall clocks of machines.
"""

import asyncio
import datetime
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from shoal_operator.kube import errors
from shoal_operator.kube.client import Client
from shoal_operator.kube.resources import LEASES, Object

log = logging.getLogger(__name__)

DURATION_S: Final = 15.0
RENEW_DEADLINE_S: Final = 10.0
RETRY_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Terms:
    """Durations of leadership. A frozen holder is replaced after `duration_s` at the latest plus one retry."""

    duration_s: float = DURATION_S
    renew_deadline_s: float = RENEW_DEADLINE_S
    retry_s: float = RETRY_S


class Elector:
    """Competes for the Lease until stopped. `on_change(leading)` is awaited at each gain and loss."""

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        namespace: str,
        identity: str,
        terms: Terms = Terms(),
        on_change: Callable[[bool], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._name = name
        self._namespace = namespace
        self._identity = identity
        self._terms = terms
        self._on_change = on_change
        self._clock = clock
        self._announced = False
        self._led_until = float("-inf")
        self._seen: tuple[str, float] | None = None  # resourceVersion of the record and when we first saw it

    @property
    def leading(self) -> bool:
        """True while this process may write; turns false by itself when renewals stop arriving."""
        return self._clock() < self._led_until

    def require(self) -> None:
        """The fence before every write: NotLeadingError unless leading at this very moment."""
        if not self.leading:
            raise errors.NotLeadingError("This process does not hold the Lease")

    async def run(self, stop: asyncio.Event) -> None:
        """Compete until `stop`, then give the Lease back so that the next one need not wait for it to expire."""
        try:
            while not stop.is_set():
                await self._try_once()
                await self._announce()
                pause_s = self._terms.retry_s * (1.0 + 0.2 * random.random())
                try:
                    await asyncio.wait_for(stop.wait(), pause_s)
                except TimeoutError:
                    continue
        finally:
            held = self.leading
            self._led_until = float("-inf")
            await self._announce()
            if held:
                await self._release()

    async def _try_once(self) -> None:
        asked_at = self._clock()
        try:
            async with asyncio.timeout(self._terms.retry_s * 2):
                won = await self._acquire_or_renew(asked_at)
        except (errors.KubeError, TimeoutError) as error:
            log.warning("Lease not renewed", extra={"error": str(error), "leading": self.leading})
            return
        # Counted from before the request: the stored renewTime cannot be older than that.
        self._led_until = asked_at + self._terms.renew_deadline_s if won else float("-inf")

    async def _acquire_or_renew(self, now: float) -> bool:
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace)
        except errors.NotFoundError:
            await self._client.create(LEASES, self._record({}, transitions=0, acquired=True))
            return True
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        version = lease["metadata"]["resourceVersion"]
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, now)
        if holder and holder != self._identity:
            held_for_s = float(spec.get("leaseDurationSeconds") or self._terms.duration_s)
            if now < self._seen[1] + held_for_s:
                return False
        taken_over = holder != self._identity
        transitions = int(spec.get("leaseTransitions") or 0) + (1 if taken_over else 0)
        await self._client.replace(LEASES, self._record(lease, transitions=transitions, acquired=taken_over))
        return True

    def _record(self, lease: Object, *, transitions: int, acquired: bool) -> Object:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        old = lease.get("spec") or {}
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {**lease.get("metadata", {}), "name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self._identity,
                # Whole seconds in the API; rounded up, so that a candidate never takes over early.
                "leaseDurationSeconds": max(1, -int(-self._terms.duration_s // 1)),
                "acquireTime": now if acquired else old.get("acquireTime", now),
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }

    async def _announce(self) -> None:
        leading = self.leading
        if leading != self._announced:
            self._announced = leading
            log.info("Leadership changed", extra={"leading": leading, "identity": self._identity})
            await self._on_change(leading)

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(self._terms.retry_s):
                lease = await self._client.get(LEASES, self._name, self._namespace)
                spec = lease.get("spec") or {}
                if spec.get("holderIdentity") == self._identity:
                    lease["spec"] = {**spec, "holderIdentity": ""}
                    await self._client.replace(LEASES, lease)
        except (errors.KubeError, TimeoutError) as error:
            # Costs the next leader the rest of the Lease's time, nothing else.
            log.warning("Lease not released", extra={"error": str(error)})
