"""The facade of one service's pure core: replicas in, tickets in, bindings out. No I/O; each call is told `now`.

Called by dispatch, discovery and server. Rules for callers:
- Tickets are answered by calling them, often inside `submit`, and later inside any call that frees or brings capacity.
  A callback may call back into this object.
- Every binding is given back once: `finish` when the answer is complete, else `release`. Both may be called again.
- `pump` is called whenever `next_wake` says so; all else that can free capacity pumps by itself.
"""

import math
import random

from shoal_api import routes, state
from shoal_router import model
from shoal_router.admission import limits, report
from shoal_router.admission import queue as queues
from shoal_router.admission import ticket as tickets
from shoal_router.admission.ticket import Phase
from shoal_router.policy import binding as bindings
from shoal_router.policy import choice, slices
from shoal_router.policy import load as loads
from shoal_router.policy import pool as pools

WINDOW = 64
"""Waiting requests looked at in one pass."""
_QUERY_S = 0.25
"""A waiting request's look-up in the index is repeated when it is older."""


class ServiceCore:
    """One ModelService in one router."""

    def __init__(
        self,
        service: routes.Service,
        rng: random.Random | None = None,
        index_bytes_max: int = pools.INDEX_BYTES_MAX,
    ) -> None:
        self._service = service
        self._pool = pools.Pool(service, rng or random.Random(), index_bytes_max)
        self._queue = queues.Queue()
        self._pumping = False
        self._again = False
        self._room = True
        """Whether the queue is the waiting room: no replica is routable."""
        self.counters = report.Counters()

    @property
    def service(self) -> routes.Service:
        return self._service

    @property
    def routable(self) -> int:
        """How many replicas may get requests."""
        return len(self._pool.routable)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def configure(self, service: routes.Service, now: float) -> None:
        """The route table changed. Draining names are the caller's to translate with `set_state`."""
        self._service = service
        self._pool.configure(service)
        self.pump(now)

    # Replicas

    def add_replica(self, replica: model.Replica, now: float) -> None:
        """A replica appeared or changed; it starts UNKNOWN. Another uid or URL under its name is a restart: its mirror
        empties, its facts are forgotten and its state is kept until `set_state`."""
        self._pool.add(replica, now)

    def remove_replica(self, name: str, now: float) -> None:
        """It is gone. What is in flight there is released by those who hold the bindings."""
        self._pool.remove(name)
        self.pump(now)

    def set_state(self, name: str, state: model.ReplicaState, now: float) -> None:
        """Whether it may get requests; an unknown name is ignored."""
        self._pool.set_state(name, state, now)
        self.pump(now)

    def set_facts(self, name: str, facts: model.EngineFacts, now: float) -> None:
        """What its `/server_info` said."""
        load = self._pool.loads.get(name)
        if load is not None:
            load.set_facts(facts)
            self.pump(now)

    def set_limit(self, name: str, running: float, now: float) -> None:
        """Most requests at once there for now; infinity where the engine's own limit is the only one."""
        load = self._pool.loads.get(name)
        if load is not None:
            load.set_limit(running)
            self.pump(now)

    def cache_cleared(self, name: str, now: float) -> None:
        """Its engine restarted in place or flushed its cache: the mirror empties."""
        load = self._pool.loads.get(name)
        if load is not None:
            self._pool.clear(load)

    def replica_names(self) -> tuple[str, ...]:
        return tuple(self._pool.loads)

    def replica_state(self, name: str) -> model.ReplicaState | None:
        load = self._pool.loads.get(name)
        return load.state if load is not None else None

    def prefill_bound_s(self, name: str) -> float:
        """Predicted seconds of all prefill on a replica whose first token has not come, what is done of it included."""
        load = self._pool.loads.get(name)
        return load.pending_s if load is not None else 0.0

    # Requests

    def submit(self, ticket: tickets.Ticket, now: float) -> None:
        """Bind at once, wait, or refuse."""
        ticket.arrived_at = now
        self.counters.arrived(now)
        self._admit(ticket, now)

    def resubmit(self, ticket: tickets.Ticket, exclude: str, now: float) -> None:
        """Try again elsewhere after `exclude` failed it before the first byte; its binding is released already.

        It keeps its place in time. With every routable replica tried it is refused with NO_REPLICA.
        """
        ticket.attempt += 1
        ticket.excluded = ticket.excluded | {exclude}
        ticket.query = None
        self._admit(ticket, now)

    def cancel(self, ticket: tickets.Ticket, now: float) -> bool:
        """The client has gone; true if it was waiting. A bound one is released by its binding instead."""
        if ticket.phase is not Phase.WAITING:
            return False
        self._leave_queue(ticket, served=False)
        ticket.phase = Phase.CANCELLED
        self.counters.cancelled += 1
        return True

    def reject_all(self, outcome: model.Outcome, now: float) -> None:
        """Refuse all that waits: the router or the service goes away."""
        for ticket in list(self._queue):
            if ticket.phase is Phase.WAITING:
                self._reject(ticket, outcome, now)

    def first_token(self, binding: bindings.Binding, now: float) -> None:
        """The first token of a stream arrived; further calls do nothing."""
        if binding.first_token_at is None and not binding.released:
            self._pool.first_token(binding, now)
            self.counters.first_token(binding, now)
            self.pump(now)

    def tokens(self, binding: bindings.Binding, count: int, now: float) -> None:
        """So many more output tokens of a stream arrived, the first included. Cheap: once a chunk."""
        if count > 0 and not binding.released:
            before = binding.last_token_at
            if binding.tokens and before is not None:
                self.counters.itl.add((now - before) / count, now, count)
            self._pool.tokens(binding, count, now)

    def finish(self, binding: bindings.Binding, usage: model.Usage | None, now: float) -> None:
        """The answer is complete: learn from it, release. `usage` is None where the engine gave none."""
        if not binding.released:
            self.counters.finished(binding, self._pool.finish(binding, usage, now))
            self.pump(now)

    def release(self, binding: bindings.Binding, now: float, failed: bool = False) -> None:
        """Undo the reservation of an answer that did not complete. Does nothing the second time, or after `finish`."""
        if not binding.released:
            self._pool.release(binding, now)
            self.counters.errors += failed
            self.pump(now)

    def pump(self, now: float) -> None:
        """Bind what can be bound, drop what is too old. Returns at once where nothing waits."""
        if self._pumping:
            self._again = True
            return
        if len(self._queue):
            self._pump(now)
        if self._pool.slicing.lanes:
            self._turns(now)

    def _pump(self, now: float) -> None:
        self._pumping = True
        try:
            self._again = True
            while self._again:
                self._again = False
                self._pass(now)
        finally:
            self._pumping = False

    def next_wake(self) -> float | None:
        """When `pump` should be called next, if nothing happens before: an expiry, a prefill presumed done, or a slice
        that has waited long enough for others."""
        turn_at = math.inf
        for sliced in self._pool.slicing.lanes.values():
            turn_at = min(turn_at, sliced.lane.turn_at, sliced.presumed_at())
        if not len(self._queue):
            return None if math.isinf(turn_at) else turn_at
        at = min((load.presumed_at() for load in self._pool.routable), default=math.inf)
        at = min(at, turn_at)
        expiry = self._queue.next_expiry()
        at = at if expiry is None else min(at, expiry)
        return None if math.isinf(at) else at

    # Slices

    def slices_ready(self, binding: bindings.Binding, tokens: int, on_turn: slices.OnTurn, now: float) -> None:
        """The holder of a binding with `sliced` set has the ids of the prompt, so many. `on_turn(end)` is called for
        each turn, maybe within this call: send the first `end` tokens alone and say `slice_done`, or, where it is 0,
        send the request itself; no turn follows that."""
        self._pool.slicing.ready(binding, tokens, on_turn, now)
        self.pump(now)

    def slices_unwanted(self, binding: bindings.Binding, on_turn: slices.OnTurn, now: float) -> None:
        """No ids can be had, or a slice failed: the one turn that follows is that of the request itself."""
        self._pool.slicing.unwanted(binding, on_turn, now)
        self.pump(now)

    def slice_done(self, binding: bindings.Binding, tokens: int, cached_tokens: int | None, now: float) -> None:
        """The slice that was sent, of so many tokens, is computed; the engine found so many of them in its cache (None:
        unknown)."""
        self._pool.slicing.done(binding, tokens, cached_tokens, now)
        self.pump(now)

    def _turns(self, now: float) -> None:
        for load in list(self._pool.slicing.lanes.values()):
            load.presume(now)
            while self._turn(load, now):
                pass  # the last turn of one prompt leaves room for another's

    def _turn(self, load: loads.Load, now: float) -> bool:
        begun = self._pool.slicing.begin_turn(load, now)
        if begun is None:
            return False
        on_turn, end = begun
        on_turn(end)
        return True

    @property
    def slicing(self) -> slices.Totals:
        """What slices did so far."""
        return self._pool.slicing.totals

    # Looking in

    def explain(self, request: model.Request, now: float) -> list[model.CostTerms]:
        """Dry run: every routable replica with its cost terms, cheapest first. Changes nothing."""
        return self._pool.explain(self._pool.query(request), now)

    def slices_expected(self, request: model.Request, replica: str, now: float) -> int:
        """Dry run: in how many slices it would be sent there, itself not counted; 0: whole."""
        load = self._pool.loads.get(replica)
        return self._pool.slicing.expected(self._pool.query(request), load, now) if load is not None else 0

    def queue_state(self, now: float) -> state.QueueState:
        """What waits, for `/metrics`: its part of `state`."""
        return report.queue_state(self._pool, self._queue, now)

    def state(self, now: float) -> state.ServiceState:
        """This service's part of `/state`."""
        return report.service_state(self._service.name, self._pool, self._queue, self.counters, self._room, now)

    def replica_reports(self, now: float) -> list[report.ReplicaFigures]:
        """Calibration figures a replica, for `/metrics`."""
        return report.replica_figures(self._pool, now)

    # Inside

    def _admit(self, ticket: tickets.Ticket, now: float) -> None:
        if not self._pool.routable and not self._service.scale_from_zero:
            self._reject(ticket, model.Outcome.NO_REPLICA, now)
            return
        chosen = self._choose(ticket, now) if self._pool.routable else None
        if chosen is None and self._pool.routable:
            self._reject(ticket, model.Outcome.NO_REPLICA, now)
        elif chosen is not None and chosen.room == "ok" and not len(self._queue) and not self._pumping:
            self._bind(ticket, chosen, now)
        else:
            self._enqueue(ticket, chosen, now)

    def _enqueue(self, ticket: tickets.Ticket, chosen: choice.Choice | None, now: float) -> None:
        bounds = self._service.queue
        refused = limits.refusal(self._queue, bounds, ticket.request)
        if refused is not None:
            self._reject(ticket, refused, now)
            return
        if chosen is not None:
            query = chosen.query
            ticket.work_s = chosen.work_s
            ticket.prompt_tokens = query.prompt_tokens
            ticket.uncached_tokens = query.prompt_tokens - chosen.matched_tokens
        else:
            ticket.prompt_tokens = ticket.uncached_tokens = self._pool.sizes.prompt_tokens(ticket.request.prompt)
            ticket.work_s = self._pool.cold_s(ticket.request)
        replicas = bool(self._pool.routable)
        ticket.expires_at = limits.expires_at(bounds, ticket.request, ticket.arrived_at, now, replicas)
        self._queue.add(ticket, now)
        ticket.wait_for(chosen.load if chosen is not None else None)
        self.pump(now)

    def _leave_queue(self, ticket: tickets.Ticket, served: bool) -> None:
        self._queue.remove(ticket, served)
        ticket.wait_for(None)

    def _choose(self, ticket: tickets.Ticket, now: float) -> choice.Choice | None:
        if ticket.query is None or now - ticket.queried_at > _QUERY_S:
            ticket.query = self._pool.query(ticket.request)
            ticket.queried_at = now
        before = ticket.target
        ticket.wait_for(None)  # it must not be dearer by its own waiting
        chosen = self._pool.choose(ticket.query, ticket.excluded, now)
        if before is not None:
            ticket.wait_for(chosen.load if chosen is not None else None)
        return chosen

    def _pass(self, now: float) -> None:
        """One pass over the queue in its order.

        A request whose cheapest replica is full waits for it and claims it: nobody behind it in the order takes the
        rest of that replica's room, or a long prompt would never find it free.
        """
        self._expire(now)
        routable = self._pool.routable
        self._room_changed(not routable, now)
        for load in routable:
            load.presume(now)
        free = sum(load.bit for load in routable if load.open())
        claimed = 0
        if not free:
            return
        for ticket in self._queue.ordered(now)[:WINDOW]:
            if ticket.phase is not Phase.WAITING:
                continue
            chosen = self._choose(ticket, now)
            if chosen is None:
                self._reject(ticket, model.Outcome.NO_REPLICA, now)
            elif _too_late(ticket, chosen.work_s, now):
                self._reject(ticket, model.Outcome.EXPIRED, now)
            elif chosen.room == "slices" or (chosen.load.bit & claimed and chosen.work_s > loads.UNSTARTED_S_MAX):
                # It waits for a sliced prompt, which shorter ones do not.
                claimed |= chosen.load.bit
            elif chosen.room == "ok" and chosen.load.bit & free:
                self._leave_queue(ticket, served=True)
                self._bind(ticket, chosen, now)
                if not chosen.load.open():
                    free &= ~chosen.load.bit
            else:
                free &= ~chosen.load.bit
            if not free:
                return

    def _expire(self, now: float) -> None:
        for ticket in self._queue.expired(now):
            if ticket.phase is Phase.WAITING:
                self._reject(ticket, model.Outcome.EXPIRED, now)

    def _room_changed(self, room: bool, now: float) -> None:
        """Replicas came or all went: the limits of what waits change."""
        if room is self._room:
            return
        self._room = room
        if room and not self._service.scale_from_zero:
            return
        bounds = self._service.queue
        for ticket in self._queue:
            expires_at = limits.expires_at(bounds, ticket.request, ticket.arrived_at, now, not room)
            self._queue.set_expiry(ticket, expires_at)

    def _bind(self, ticket: tickets.Ticket, chosen: choice.Choice, now: float) -> None:
        binding = self._pool.bind(chosen, now)
        binding.attempt = ticket.attempt
        binding.queued_s = now - ticket.enqueued_at if ticket.phase is Phase.WAITING else 0.0
        if binding.sliced is not None:
            binding.sliced.since = ticket.arrived_at
        ticket.phase = Phase.BOUND
        ticket.query = None
        self.counters.bound(binding, ticket.arrived_at, now)
        ticket.on_bound(binding)

    def _reject(self, ticket: tickets.Ticket, outcome: model.Outcome, now: float) -> None:
        if ticket.phase is Phase.WAITING:
            self._leave_queue(ticket, served=False)
        ticket.phase = Phase.REJECTED
        ticket.query = None
        self.counters.rejected(outcome)
        ticket.on_rejected(outcome, limits.retry_after_s(len(self._queue), self.counters.drained.value(now)))


def _too_late(ticket: tickets.Ticket, work_s: float, now: float) -> bool:
    """Its client will have given up before so much work is done."""
    timeout_s = ticket.request.timeout_s
    return timeout_s is not None and now + work_s > ticket.arrived_at + timeout_s
