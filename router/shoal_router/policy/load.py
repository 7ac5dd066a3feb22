"""Live load of one replica: what is bound to it, in requests, seconds of prefill and KV tokens. Exact, since the router
itself binds and releases everything. Written by policy.pool only; policy.cost reads it.

Prefill is taken to be serial and in order, as SGLang's scheduler runs it: the first of `pending` is being done since
`head_since`, the others have not started.
"""

import math

from shoal_router import model
from shoal_router.index import mirror
from shoal_router.metrics import rate
from shoal_router.policy import binding, cost, slices, timing

UNSTARTED_S_MAX = 0.5
"""Late binding: a replica holds at most so much prefill beyond what it is doing."""
RUNNING_DEFAULT_MAX: float = 256.0
"""Requests in flight on an engine that has not said how many it runs."""
INTERFERENCE_TOKENS = 32
"""For so many of its tokens a new stream's slow-down (and what it does to the others) counts in the cost."""


class Load:
    """See the module."""

    __slots__ = (
        "bit",
        "cached_actual",
        "cached_error",
        "cached_predicted",
        "decoded",
        "epoch",
        "facts",
        "flight",
        "head_since",
        "hits",
        "interference_s",
        "kv_soft",
        "lane",
        "last_sample",
        "limit",
        "loose",
        "mirror",
        "next_s",
        "pending",
        "pending_s",
        "price",
        "replica",
        "rest_s",
        "running_max",
        "slack",
        "spoilt",
        "state",
        "state_since",
        "step_s",
        "timing",
        "waiting",
        "waiting_long",
    )

    def __init__(self, replica: model.Replica, bit: int, held: mirror.Mirror, time: timing.Timing, now: float) -> None:
        self.replica = replica
        self.bit = bit
        self.mirror = held
        self.timing = time
        self.facts = model.EngineFacts()
        self.limit = math.inf
        self.running_max: float = RUNNING_DEFAULT_MAX
        self.kv_soft = math.inf
        """KV tokens from which on it gets dearer."""
        self.slack = math.inf
        """KV tokens until pressure begins; minus infinity while no running slot is free."""
        self.state = model.ReplicaState.UNKNOWN
        self.state_since = now
        self.epoch = 0
        """Counts restarts of the engine: what was locked in an earlier epoch is gone."""
        self.flight: dict[int, binding.Binding] = {}
        """Everything bound and not released, oldest first."""
        self.pending: dict[int, binding.Binding] = {}
        """Of these, what has no first token yet, in the order of binding."""
        self.pending_s = 0.0
        self.lane = slices.Lane()
        """Its sliced prompts."""
        self.rest_s = 0.0
        """Prefill of these that has not started."""
        self.next_s = math.inf
        """What is longer goes after them."""
        self.waiting = 0
        """Requests in the waiting queue whose cheapest replica this is."""
        self.waiting_long = 0
        """Of these, such as a replica would not hold unstarted."""
        self.price = 1.0
        self.head_since = now
        self.spoilt = False
        self.last_sample: binding.Sample | None = None
        self.loose = 0.0
        """KV tokens in flight that the mirror's nodes do not count: ends of prompts and what was generated."""
        self.interference_s = 0.0
        self.step_s = 0.0
        self.hits = rate.Rate(60.0)
        self.decoded = 0
        """Output tokens since it was added."""
        self.cached_predicted = 0
        self.cached_actual = 0
        self.cached_error = 0
        self.refresh()

    def add_waiting(self, count: int, work_s: float) -> None:
        """One more request of so much work waits for it, or (-1) one fewer."""
        self.waiting += count
        if work_s > UNSTARTED_S_MAX:
            self.waiting_long += count
        self._set_price()

    def _set_price(self) -> None:
        """Sliced prompts wait for the replica as those in the queue do."""
        self.price = cost.price(self.waiting + len(self.lane.waiting))

    def start_prefill(self, bound: binding.Binding, now: float) -> None:
        """`work_s` of it is on its way from now on."""
        bound._alone = not self.pending
        if not self.pending:
            self.head_since = now
        self.pending[id(bound)] = bound
        self.pending_s += bound.work_s
        bound.prefilling = True

    def lane_changed(self, now: float) -> None:
        """A sliced prompt came, went, or got further."""
        self.rest_s = self.lane.rest_s()
        self.next_s = self.lane.next_s(now)
        self._set_price()

    def behind_s(self, work_s: float, chain: tuple[int, ...]) -> float:
        """What a request of so much work waits for beyond the prefill that is on its way: sliced prompts of which less
        is left. Shorter ones go in between, but for those that begin as a sliced prompt does: what they have in common
        is computed first, and once."""
        return self.rest_s if work_s >= self.next_s else self.lane.missing_s(chain, self.timing)

    def busy_s(self, now: float) -> float:
        """Seconds of prefill bound here and not done."""
        pending = self.pending
        if not pending:
            return 0.0
        head_s = pending[next(iter(pending))].work_s
        return max(0.0, self.pending_s - min(now - self.head_since, head_s))

    def bound_s(self, now: float) -> float:
        """The same with what sliced prompts have yet to send."""
        return self.busy_s(now) + self.rest_s

    def unstarted_s(self) -> float:
        """Of that, what has not been started."""
        pending = self.pending
        return max(0.0, self.pending_s - pending[next(iter(pending))].work_s) if pending else 0.0

    @property
    def kv_tokens(self) -> float:
        """KV tokens of requests in flight, a shared prefix counted once."""
        return self.mirror.locked + self.loose

    @property
    def streams_step_s(self) -> float:
        """A decode step of the streams that run here; 0 where none does."""
        return self.step_s if self.streams else 0.0

    @property
    def streams(self) -> int:
        """Requests whose prompts are done: they make tokens."""
        return len(self.flight) - len(self.pending) - len(self.lane.waiting)

    def room(self, work_s: float, kv_tokens: float, chain: tuple[int, ...]) -> str:
        """`ok`, or what keeps it from taking so much more now."""
        if len(self.flight) >= self.running_max:
            return "running"
        kv_max = self.facts.kv_tokens_max
        # A request larger than the engine is the engine's to refuse; alone it is never held back here.
        if kv_max is not None and self.flight and self.kv_tokens + kv_tokens > kv_max:
            return "kv"
        if self.pending and self.unstarted_s() + work_s > UNSTARTED_S_MAX:
            return "prefill"
        if self.rest_s and (
            (work_s >= self.next_s and work_s > UNSTARTED_S_MAX) or self.lane.missing_s(chain, self.timing) > 0.0
        ):
            return "slices"
        return "ok"

    def open(self) -> bool:
        """Whether it could take a request without work."""
        return len(self.flight) < self.running_max and self.unstarted_s() < UNSTARTED_S_MAX

    def refresh(self) -> None:
        """Recompute what depends on running streams and their context; called when their number changes.

        interference = step(B, T) + 32 * (step(B+1, T) - step(1, 0)), nothing while no stream runs: the decode step that
        must end before prefill starts, and the slower tokens after it.
        """
        self.refill()
        running = self.streams
        context = self.kv_tokens
        timing = self.timing
        self.step_s = timing.decode_step_s(running, context)
        if not running:
            self.interference_s = 0.0
        else:
            slower = timing.decode_step_s(running + 1, context) - timing.decode_step_s(1, 0.0)
            self.interference_s = self.step_s + INTERFERENCE_TOKENS * max(0.0, slower)

    def refill(self) -> None:
        """Recompute `slack`, after anything was bound or released."""
        self.slack = self.kv_soft - self.kv_tokens if len(self.flight) < self.running_max else -math.inf

    def set_limit(self, running: float) -> None:
        """Most requests at once for now, where that is below what the engine takes (a breaker probes, or a pause)."""
        self.limit = running
        self._bound_running()

    def _bound_running(self) -> None:
        engine_max = RUNNING_DEFAULT_MAX if self.facts.running_max is None else float(self.facts.running_max)
        self.running_max = min(engine_max, self.limit)
        self.refill()

    def set_facts(self, facts: model.EngineFacts) -> None:
        self.facts = facts
        self.kv_soft = math.inf if facts.kv_tokens_max is None else cost.KV_SOFT_SHARE * facts.kv_tokens_max
        self.mirror.set_kv_max(facts.kv_tokens_max)
        self._bound_running()

    def presume(self, now: float) -> None:
        """A request that does not stream shows no first token: its prefill counts as done when its time is over."""
        while self.pending:
            head = self.pending[next(iter(self.pending))]
            done_at = self.head_since + head.work_s
            if head.seen or now < done_at:
                return
            self.drop_pending(head, done_at)
            self.spoilt = True
            self.refresh()

    def presumed_at(self) -> float:
        """When `presume` will have something to do."""
        if self.pending:
            head = self.pending[next(iter(self.pending))]
            if not head.seen:
                return self.head_since + head.work_s
        return math.inf

    def drop_pending(self, done: binding.Binding, at: float) -> bool:
        """Prefill of `done` is over; true if it was the one being done."""
        pending = self.pending
        was_head = next(iter(pending)) == id(done)
        del pending[id(done)]
        done.prefilling = False
        self.pending_s = max(0.0, self.pending_s - done.work_s) if pending else 0.0
        if was_head:
            self.head_since = at
        return was_head
