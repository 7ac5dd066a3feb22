"""What a service's core tells others: counters kept on the hot path, `/state` and per-replica figures made of them."""

import math
from dataclasses import dataclass

from shoal_api import state
from shoal_router import model
from shoal_router.admission import queue as queues
from shoal_router.metrics import histogram, rate
from shoal_router.policy import binding as bindings
from shoal_router.policy import load as loads
from shoal_router.policy import pool as pools

HOT_S = 300.0
"""A prefix, or a session, used within so many seconds counts as hot, or active."""
_HOT_NODES_MAX = 2048
_HOT_REFRESH_S = 5.0
_HOT_NODES_A_LOOK = 4096
"""So many nodes of mirrors are walked in one look, in milliseconds; of many replicas the oldest figures go first."""
_DECODE_S = 1.0


class Counters:
    """Adds on the hot path. Attributes are read by `/metrics`."""

    __slots__ = (
        "_decode_rates",
        "_decoded",
        "_hot",
        "bindings",
        "cached_tokens",
        "cancelled",
        "drained",
        "errors",
        "itl",
        "itl_total",
        "last_request_at",
        "output_tokens",
        "outputs",
        "prompt_tokens",
        "prompts",
        "queue_wait",
        "rates",
        "rejections",
        "requests",
        "retries",
        "ttft",
        "ttft_recent",
        "works",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.bindings = 0
        self.retries = 0
        self.errors = 0
        self.cancelled = 0
        self.rejections: dict[model.Outcome, int] = {}
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.output_tokens = 0
        self.last_request_at: float | None = None
        self.rates = (rate.Rate(10.0), rate.Rate(60.0), rate.Rate(300.0))
        self.drained = rate.Rate(30.0)
        """Bindings per second: how fast the queue drains."""
        self.works = rate.Mean(128)
        self.prompts = rate.Mean(128)
        self.outputs = rate.Mean(128)
        self.ttft = histogram.Histogram()
        self.ttft_recent = histogram.Window()
        self.itl_total = histogram.Histogram()
        self.itl = histogram.Window(self.itl_total)
        self.queue_wait = histogram.Histogram()
        self._hot: dict[str, tuple[float, int]] = {}
        """Time and unique hot tokens of each replica when its mirror was last walked."""
        self._decoded: dict[str, tuple[int, float]] = {}
        self._decode_rates: dict[str, float] = {}

    def arrived(self, now: float) -> None:
        self.requests += 1
        self.last_request_at = now
        for horizon in self.rates:
            horizon.add(1.0, now)

    def bound(self, binding: bindings.Binding, arrived_at: float, now: float) -> None:
        self.bindings += 1
        self.retries += binding.attempt > 0
        self.drained.add(1.0, now)
        self.works.add(binding.work_s)
        self.prompts.add(binding.prompt_tokens)
        self.queue_wait.add(now - arrived_at)

    def first_token(self, binding: bindings.Binding, now: float) -> None:
        """TTFT counts from arrival in the queue, as the client feels it."""
        ttft_s = now - binding.bound_at + binding.queued_s
        self.ttft.add(ttft_s)
        self.ttft_recent.add(ttft_s, now)

    def finished(self, binding: bindings.Binding, usage: model.Usage | None) -> None:
        if usage is None:
            self.output_tokens += binding.tokens
            return
        self.prompt_tokens += usage.prompt_tokens
        self.cached_tokens += usage.cached_tokens or 0
        self.output_tokens += usage.completion_tokens
        self.outputs.add(usage.completion_tokens)

    def rejected(self, outcome: model.Outcome) -> None:
        self.rejections[outcome] = self.rejections.get(outcome, 0) + 1
        self.errors += 1

    def hot(self, pool: pools.Pool, now: float) -> dict[str, int]:
        """Unique hot tokens by replica, computed anew at most every 5 s: it walks the mirrors."""
        known = self._hot
        by_age = sorted(pool.loads.items(), key=lambda item: known.get(item[0], (-math.inf, 0))[0])
        nodes = 0
        for name, load in by_age:
            if name in known and (now - known[name][0] < _HOT_REFRESH_S or nodes >= _HOT_NODES_A_LOOK):
                break
            known[name] = (now, unique_hot_tokens(pool, load, now))
            nodes += min(_HOT_NODES_MAX, len(load.mirror))
        return {name: tokens for name, (_, tokens) in known.items()}

    def decode_rate(self, load: loads.Load, now: float) -> float:
        """Output tokens per second since the last look that was a second ago or more."""
        name = load.replica.name
        tokens, at = self._decoded.get(name, (load.decoded, now))
        if now - at >= _DECODE_S:
            self._decode_rates[name] = (load.decoded - tokens) / (now - at)
            self._decoded[name] = (load.decoded, now)
        else:
            self._decoded.setdefault(name, (tokens, at))
        return self._decode_rates.get(name, 0.0)

    def forget(self, names: set[str]) -> None:
        """Keep figures of these replicas only."""
        for name in [name for name in self._hot if name not in names]:
            del self._hot[name]
        for kept in (self._decoded, self._decode_rates):
            for name in [name for name in kept if name not in names]:
                del kept[name]


@dataclass(frozen=True, slots=True)
class ReplicaFigures:
    """Calibration of one replica's mirror and timing."""

    name: str
    gpu: str
    in_flight: int
    in_flight_tokens: float
    busy_s: float
    slice_overhead_s: float
    mirror_tokens: float
    mirror_capacity_tokens: float
    mirror_entries: int
    cached_predicted_tokens: int
    cached_actual_tokens: int
    cached_error_tokens: int
    prefill_a_s: float
    prefill_b_s: float
    prefill_c_s: float
    decode_factor: float


def service_state(
    name: str, pool: pools.Pool, waiting: queues.Queue, counters: Counters, room: bool, now: float
) -> state.ServiceState:
    """`/state` of one service."""
    counters.forget(set(pool.loads))
    sessions = pool.sessions.active(now - HOT_S)
    hot = counters.hot(pool, now)
    rates = tuple(horizon.value(now) for horizon in counters.rates)
    ten, sixty, three_hundred = rates
    known = ten is not None and sixty is not None and three_hundred is not None
    return state.ServiceState(
        name=name,
        queue=queue_state(pool, waiting, now),
        rate=state.RateState(
            requests_per_s=(ten or 0.0, sixty or 0.0, three_hundred or 0.0) if known else None,
            work_per_request_s=counters.works.value,
            prompt_tokens_per_request=counters.prompts.value,
            output_tokens_per_request=counters.outputs.value,
        ),
        ttft=_latency(counters.ttft_recent, now),
        itl=_latency(counters.itl, now),
        sessions_active=sum(sessions.values()),
        prompt_tokens_total=counters.prompt_tokens,
        cached_tokens_total=counters.cached_tokens,
        output_tokens_total=counters.output_tokens,
        requests_total=counters.requests,
        errors_total=counters.errors,
        last_request_age_s=None if counters.last_request_at is None else now - counters.last_request_at,
        replicas=tuple(
            _replica(load, sessions.get(load.replica.name, 0), hot.get(load.replica.name, 0), counters, now)
            for load in pool.loads.values()
        ),
    )


def queue_state(pool: pools.Pool, waiting: queues.Queue, now: float) -> state.QueueState:
    """What waits."""
    return state.QueueState(
        requests=len(waiting),
        bytes=waiting.bytes,
        uncached_tokens=waiting.uncached_tokens,
        prompt_tokens=waiting.prompt_tokens,
        work_s=max(0.0, waiting.work_s),
        oldest_s=waiting.oldest_s(now),
        no_replica_requests=0 if pool.routable else len(waiting),
    )


def replica_figures(pool: pools.Pool, now: float) -> list[ReplicaFigures]:
    """Figures of every replica, for `/metrics`."""
    return [
        ReplicaFigures(
            name=load.replica.name,
            gpu=load.replica.gpu,
            in_flight=len(load.flight),
            in_flight_tokens=load.kv_tokens,
            busy_s=load.bound_s(now),
            slice_overhead_s=load.lane.overhead_s,
            mirror_tokens=load.mirror.used,
            mirror_capacity_tokens=load.mirror.capacity,
            mirror_entries=len(load.mirror),
            cached_predicted_tokens=load.cached_predicted,
            cached_actual_tokens=load.cached_actual,
            cached_error_tokens=load.cached_error,
            prefill_a_s=load.timing.a_s,
            prefill_b_s=load.timing.b_s,
            prefill_c_s=load.timing.c_s,
            decode_factor=load.timing.decode_factor,
        )
        for load in pool.loads.values()
    ]


def unique_hot_tokens(pool: pools.Pool, load: loads.Load, now: float) -> int:
    """Prefix tokens used lately that only this replica's mirror holds.

    Fewer replicas hold a longer prefix, so within a node the unique part is its end: a binary search finds where it
    begins.
    """
    tokens = 0.0
    owners = pool.owners
    for node in load.mirror.hot(now - HOT_S, _HOT_NODES_MAX):
        low, high = 0, len(node.hashes)
        while low < high:
            middle = (low + high) >> 1
            if owners.of(node.hashes[middle]) == load.bit:
                high = middle
            else:
                low = middle + 1
        tokens += node.tokens_from(low)
    return int(tokens)


def _latency(window: histogram.Window, now: float) -> state.LatencyState:
    counts = window.counts(now)
    return state.LatencyState(
        samples=sum(counts),
        p50_s=histogram.percentile(counts, 0.5),
        p90_s=histogram.percentile(counts, 0.9),
        p99_s=histogram.percentile(counts, 0.99),
    )


def _replica(load: loads.Load, sessions: int, hot_tokens: int, counters: Counters, now: float) -> state.ReplicaState:
    oldest = next(iter(load.flight.values()), None)
    routable = load.state is model.ReplicaState.ROUTABLE
    return state.ReplicaState(
        name=load.replica.name,
        uid=load.replica.uid,
        revision=load.replica.revision,
        gpu=load.replica.gpu,
        url=load.replica.url,
        state=load.state.value,
        ready_age_s=now - load.state_since if routable else 0.0,
        in_flight_requests=len(load.flight),
        in_flight_work_s=load.bound_s(now),
        in_flight_tokens=int(load.kv_tokens),
        kv_tokens_max=load.facts.kv_tokens_max,
        running_max=load.facts.running_max,
        sessions=sessions,
        oldest_stream_s=now - oldest.bound_at if oldest is not None else 0.0,
        unique_hot_tokens=hot_tokens,
        reuse_per_s=load.hits.value(now) or 0.0,
        prefill_b_s=load.timing.b_s if load.timing.prefill_samples else None,
        decode_tokens_per_s=counters.decode_rate(load, now),
    )
