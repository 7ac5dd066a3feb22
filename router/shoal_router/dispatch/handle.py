"""One replica as the I/O side sees it: its connections, the requests on it, whether it may get more.

Decides its `model.ReplicaState` from facts that others set (target, engine info, probes, breaker) and tells the core.
Written by dispatch.fleet, dispatch.health and dispatch.exchange.
"""

import math
from typing import TYPE_CHECKING, Final, Protocol

from shoal_router import log, model
from shoal_router.discovery.target import Target
from shoal_router.dispatch.breaker import Breaker, Circuit, may_eject
from shoal_router.dispatch.engine import EngineInfo
from shoal_router.upstream.pool import Pool

if TYPE_CHECKING:
    from shoal_router.dispatch.service import Service

HOLD_REFUSED_S: Final = 0.25
"""A replica whose queue is full gets nothing for so long, unless it says how long itself."""
HOLD_MAX_S: Final = 60.0


class Guest(Protocol):
    """A request on a replica."""

    streaming: bool
    """Bytes should come from the engine while it works."""
    paused: bool
    """Its client reads too slowly: silence is the router's doing."""

    def on_replica_lost(self, outcome: model.Outcome) -> None: ...


class Handle:
    """See the module."""

    __slots__ = (
        "breaker",
        "ejected",
        "guests",
        "held_until_s",
        "info",
        "last_output_s",
        "limit",
        "pool",
        "probed_path",
        "retired",
        "service",
        "state",
        "target",
    )

    def __init__(self, service: "Service", target: Target, pool: Pool) -> None:
        self.service = service
        self.target = target
        self.pool = pool
        self.guests: set[Guest] = set()
        self.info: EngineInfo | None = None
        self.breaker = Breaker()
        self.ejected = ""
        """Why its health keeps it out; empty: it does not."""
        self.held_until_s = 0.0
        self.limit = math.inf
        """Requests it may have at once, below what the engine itself allows."""
        self.last_output_s = 0.0
        """Monotonic time of the last byte of an answer; of becoming busy, if later."""
        self.state = model.ReplicaState.UNKNOWN
        self.retired = False
        """No longer listed: finishes what it has."""
        self.probed_path = "/ready"

    @property
    def name(self) -> str:
        return self.target.name

    def replica(self) -> model.Replica:
        target = self.target
        return model.Replica(target.name, target.url, target.uid, target.revision, target.gpu)

    def cached_tokens(self, reported: int | None) -> int | None:
        """Of an answer's usage: where the engine reports what was cached, null means nothing was."""
        if reported is None and self.info is not None and self.info.cache_reported:
            return 0
        return reported

    # State

    def decide(self) -> model.ReplicaState:
        target = self.target
        if target.terminating or self.retired or target.name in self.service.table.draining:
            return model.ReplicaState.DRAINING
        if not target.ready:
            return model.ReplicaState.NOT_READY
        if self.info is None:
            return model.ReplicaState.UNKNOWN
        if self.ejected or self.breaker.circuit is Circuit.OPEN:
            return model.ReplicaState.EJECTED
        return model.ReplicaState.ROUTABLE

    def refresh(self, now_s: float) -> None:
        """Work out state and limit anew; tell the core of what changed."""
        if self.retired:
            self.state = model.ReplicaState.DRAINING
            return
        limit = self._limit(now_s)
        if limit != self.limit:
            self.limit = limit
            self.service.core.set_limit(self.name, limit, now_s)
        state = self.decide()
        if state is not self.state:
            before, self.state = self.state, state
            log.info(
                "replica changed state",
                service=self.service.name,
                replica=self.name,
                url=self.target.url,
                before=before.value,
                state=state.value,
                reason=self.reason(),
            )
            self.service.core.set_state(self.name, state, now_s)

    def reason(self) -> str:
        if self.ejected:
            return self.ejected
        return "circuit open" if self.breaker.circuit is Circuit.OPEN else ""

    def _limit(self, now_s: float) -> float:
        if now_s < self.held_until_s:
            return 0
        return 1 if self.breaker.circuit is Circuit.HALF_OPEN else math.inf

    # What happens to it

    def on_info(self, info: EngineInfo, now_s: float) -> None:
        """The engine described itself."""
        before, self.info = self.info, info
        if self.retired:
            return  # its name may be another engine's by now
        if before is not None and before.boot != info.boot:
            log.info("engine restarted", service=self.service.name, replica=self.name)
            self.service.core.cache_cleared(self.name, now_s)
        if before != info:
            self.service.on_engines()
            self.service.core.set_facts(self.name, info.facts, now_s)
        self.refresh(now_s)

    def add(self, guest: Guest, now_s: float) -> None:
        if not self.guests:
            self.last_output_s = now_s
        self.guests.add(guest)

    def on_success(self, now_s: float) -> None:
        circuit = self.breaker.circuit
        self.breaker.on_success()
        if self.breaker.circuit is not circuit:
            self.refresh(now_s)

    def on_failure(self, now_s: float) -> None:
        """A request failed for a reason that is the engine's."""
        states = [handle.state for handle in self.service.handles.values()]
        routable, ejected = states.count(model.ReplicaState.ROUTABLE), states.count(model.ReplicaState.EJECTED)
        if self.breaker.on_failure(now_s, may_eject(routable, ejected)):
            self.service.counters.ejections["breaker"] += 1
            self.refresh(now_s)

    def hold(self, seconds: float | None, now_s: float) -> None:
        """It has no room: nothing goes there for a while. It stays routable, so that requests wait rather than fail."""
        self.held_until_s = now_s + min(HOLD_MAX_S, HOLD_REFUSED_S if seconds is None else seconds)
        self.refresh(now_s)

    def eject(self, reason: str, now_s: float) -> None:
        if not self.ejected:
            self.service.counters.ejections[reason] += 1
            self.ejected = reason
            self.refresh(now_s)

    def readmit(self, now_s: float) -> None:
        """Probes succeed again: one request at a time first."""
        if self.ejected:
            self.ejected = ""
            self.breaker.half_open()
            self.refresh(now_s)

    def fail_guests(self, outcome: model.Outcome) -> None:
        """End or move every request on it."""
        for guest in list(self.guests):
            guest.on_replica_lost(outcome)
