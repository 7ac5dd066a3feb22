"""How many replicas the work asks for: the four terms, from what routers report. Pure; `scaling` decides with them.

    n_backlog = ceil(queued_work_s / (slo.ttft - own_prefill_s))
    n_rate    = ceil(arrival_rate * work_per_request_s / target_utilization)
    n_kv      = ceil((kv_in_use + kv_queued) / (0.85 * kv_per_replica))
    n_itl     = min N with alpha + beta*sqrt(B/N) + gamma*T/N <= slo.itl

A router that does not answer, or answers with something that is not a finite figure of at least zero, makes its part
missing, never zero: a term is None when no router gave it.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from shoal_api import routes, state

KV_USABLE = 0.85
"""Share of a replica's KV cache that may fill before admission gets slow."""
OWN_PREFILL_SHARE_MAX = 0.9
"""A request whose own prefill takes nearly the whole objective still leaves a tenth of it for waiting."""


RATE_MIN = 1e-9
"""Requests a second below which a mean that has decayed for hours weighs nothing: products of it would underflow."""


@dataclass(frozen=True, slots=True)
class Report:
    """One router's answer about this service: `state` None where it did not answer in time."""

    instance: str
    state: state.ServiceState | None
    uptime_s: float = 0.0
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Load:
    """The routers' figures summed. None: no router gave the figure."""

    routers: int
    """Routers asked."""
    reporting: int
    """Routers whose figures are in the sums."""
    queued_work_s: float | None = None
    queued_tokens: float | None = None
    requests_per_s: float | None = None
    """Over 60 s."""
    requests_per_s_peak: float | None = None
    """The largest of the 60 s and 300 s means: what scaling down must still carry."""
    work_per_request_s: float | None = None
    running: float | None = None
    kv_in_use: float | None = None
    kv_per_replica: float | None = None
    unique_hot_tokens_min: float | None = None
    """Of the replica that would lose least."""

    @property
    def complete(self) -> bool:
        return self.routers > 0 and self.reporting == self.routers


@dataclass(frozen=True, slots=True)
class Terms:
    """Replicas by each term, as real numbers: `ceil` comes after margins. None: not known, or not asked for."""

    backlog: float | None
    rate: float | None
    kv: float | None
    itl: float | None

    def need(self) -> float | None:
        """The largest term that is known; None when none is."""
        known = [term for term in (self.backlog, self.rate, self.kv, self.itl) if term is not None]
        return max(known) if known else None


def _valid(value: float | None) -> float | None:
    """NaN, infinite and negative figures are missing ones."""
    return value if value is not None and math.isfinite(value) and value >= 0 else None


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in map(_valid, values) if value is not None]
    return sum(known) if known else None


def sum_reports(reports: tuple[Report, ...], age_s_max: float, idle_after_s: float) -> Load:
    """Sums over the routers that answered freshly. `idle_after_s`: a router up for that long that never saw a request
    has a known arrival rate of zero; a younger one does not know yet."""
    fresh = [report for report in reports if report.state is not None and 0 <= report.age_s <= age_s_max]
    states = [report.state for report in fresh if report.state is not None]
    if not states:
        return Load(routers=len(reports), reporting=0)
    rates = [_rates(report, idle_after_s) for report in fresh]
    rate = _sum(pair[0] for pair in rates)
    return Load(
        routers=len(reports),
        reporting=len(states),
        queued_work_s=_sum(one.queue.work_s for one in states),
        queued_tokens=_sum(float(one.queue.prompt_tokens) for one in states),
        requests_per_s=rate,
        requests_per_s_peak=_sum(_larger(*pair) for pair in rates),
        work_per_request_s=_work_per_request(states),
        running=_sum(float(replica.in_flight_requests) for one in states for replica in one.replicas),
        kv_in_use=_sum(float(replica.in_flight_tokens) for one in states for replica in one.replicas),
        kv_per_replica=_kv_per_replica(states),
        unique_hot_tokens_min=_hot_min(states),
    )


def _rates(report: Report, idle_after_s: float) -> tuple[float | None, float | None]:
    """Requests a second over 60 s and 300 s."""
    assert report.state is not None
    rate = report.state.rate.requests_per_s
    if rate is not None:
        return _valid(rate[1]), _valid(rate[2])
    if report.state.requests_total == 0 and report.uptime_s >= idle_after_s:
        return 0.0, 0.0
    return None, None


def _larger(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else max(first, second)


def _work_per_request(states: list[state.ServiceState]) -> float | None:
    """Mean over routers, weighted by how many requests each saw; equal weights where none tells a rate."""
    weighted: list[tuple[float, float]] = []
    for one in states:
        work = _valid(one.rate.work_per_request_s)
        if work is not None:
            rate = one.rate.requests_per_s
            weighted.append((work, (_valid(rate[1]) or 0.0) if rate is not None else 0.0))
    if not weighted:
        return None
    total = sum(weight for _, weight in weighted)
    if total < RATE_MIN:
        return sum(work for work, _ in weighted) / len(weighted)
    return sum(work * weight for work, weight in weighted) / total


def _kv_per_replica(states: list[state.ServiceState]) -> float | None:
    """The smallest KV cache that any replica reports: the fleet is as good as its weakest member."""
    sizes = [float(one.kv_tokens_max) for each in states for one in each.replicas if one.kv_tokens_max]
    return min(sizes) if sizes else None


def _hot_min(states: list[state.ServiceState]) -> float | None:
    """Unique hot tokens of the replica that holds fewest, each replica summed over the routers that know it."""
    held: dict[str, float] = {}
    for each in states:
        for replica in each.replicas:
            held[replica.name] = held.get(replica.name, 0.0) + replica.unique_hot_tokens
    return min(held.values()) if held else None


def replica_figures(
    states: Iterable[state.ServiceState], figure: Callable[[state.ReplicaState], float]
) -> Mapping[str, float]:
    """One figure of every replica, summed over routers: for status and the victim score."""
    sums: dict[str, float] = {}
    for each in states:
        for replica in each.replicas:
            sums[replica.name] = sums.get(replica.name, 0.0) + figure(replica)
    return sums


def terms(
    load: Load,
    *,
    ttft_slo_s: float,
    itl_slo_s: float | None,
    target_utilization: float,
    kv_per_replica: float | None,
    timing: routes.Timing | None,
    margin: float = 1.0,
    peak: bool = False,
) -> Terms:
    """The four terms for a load. `margin` < 1 asks for what would be needed with every bound that much tighter; `peak`
    takes the larger arrival horizon. `kv_per_replica` is used where no replica reports its own."""
    own_s = min(load.work_per_request_s or 0.0, OWN_PREFILL_SHARE_MAX * ttft_slo_s)
    backlog = None if load.queued_work_s is None else load.queued_work_s / ((ttft_slo_s - own_s) * margin)
    return Terms(
        backlog=backlog,
        rate=_rate_term(load, target_utilization * margin, peak),
        kv=_kv_term(load, load.kv_per_replica or kv_per_replica, margin),
        itl=_itl_term(load, itl_slo_s, timing, margin),
    )


def _rate_term(load: Load, utilization: float, peak: bool) -> float | None:
    rate = load.requests_per_s_peak if peak else load.requests_per_s
    if rate == 0:
        return 0.0
    if rate is None or load.work_per_request_s is None:
        return None
    return rate * load.work_per_request_s / utilization


def _kv_term(load: Load, kv_per_replica: float | None, margin: float) -> float | None:
    if load.kv_in_use is None and load.queued_tokens is None:
        return None
    tokens = (load.kv_in_use or 0.0) + (load.queued_tokens or 0.0)
    if tokens == 0:
        return 0.0
    return None if not kv_per_replica else tokens / (KV_USABLE * kv_per_replica * margin)


def _itl_term(load: Load, slo_s: float | None, timing: routes.Timing | None, margin: float) -> float | None:
    """Solved for x = 1/N: alpha + beta*sqrt(B*x) + gamma*T*x <= slo, a quadratic in sqrt(x). None where no number of
    replicas can reach the objective (one request alone is slower)."""
    if slo_s is None or timing is None or load.running is None or load.kv_in_use is None:
        return None
    if load.running == 0:
        return 0.0
    left_s = slo_s * margin - timing.alpha_s
    if left_s <= 0:
        return None
    linear = timing.beta_s * math.sqrt(load.running)
    square = timing.gamma_s * load.kv_in_use
    if square > 0:
        root = (-linear + math.sqrt(linear * linear + 4 * square * left_s)) / (2 * square)
    elif linear > 0:
        root = left_s / linear
    else:
        return 0.0
    return 1 / (root * root)
