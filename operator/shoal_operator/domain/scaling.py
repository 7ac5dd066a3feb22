"""The scaler's decision: one pure function from figures and memory to a replica count with its reason.

Up at once, in steps of at most max(2x, +4) and with at most `starts_max` replicas starting; down one at a time, only
when everything would hold at N-1 with a 0.8 margin over a whole window without a gap in the figures. Missing figures
hold the count; missing routers count as nothing on the way up and as at target on the way down. The memory is a frozen
value that the caller keeps between calls (and loses with the process: the first window never scales down).
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from shoal_api import routes
from shoal_operator.domain import demand, values

MARGIN_DOWN = 0.8
STEP_FACTOR = 2
STEP_MIN = 4
HISTORY_LENGTH = 10
REPORT_AGE_S_MAX = 6.0
"""Routers are asked every 2 s: three missed answers make a figure stale."""
GAP_S_MAX = 30.0
"""A longer silence breaks the window: what happened in it is not known."""
STALLED_FACTOR = 1.5
"""Pending longer than this times the p95 of the cold start is not supply."""


class Reason(StrEnum):
    """Why the count is what it is: the closed list of status, events and `decision_total{reason}`."""

    STEADY = "Steady"
    BACKLOG = "Backlog"
    ARRIVAL_RATE = "ArrivalRate"
    KV_CACHE = "KVCache"
    ITL = "InterTokenLatency"
    MIN_REPLICAS = "MinReplicas"
    MAX_REPLICAS = "MaxReplicas"
    STEP_LIMITED = "StepLimited"
    STARTS_LIMITED = "StartsLimited"
    LOAD_FELL = "LoadFell"
    WINDOW_NOT_OVER = "WindowNotOver"
    FIRST_WINDOW = "FirstWindow"
    METRICS_MISSING = "MetricsMissing"
    METRICS_PARTIAL = "MetricsPartial"
    ROLLOUT_HOLDS = "RolloutHolds"
    STILL_SETTLING = "StillSettling"


@dataclass(frozen=True, slots=True)
class Supply:
    """What there is. `pending` have been asked for and are not ready; `stalled` of them are overdue, by name."""

    ready: int
    pending: int = 0
    draining: int = 0
    stalled: tuple[str, ...] = ()

    @property
    def counted(self) -> int:
        return self.ready + max(0, self.pending - len(self.stalled))


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything one decision is made from. `now_s` is any clock that only goes forward."""

    now_s: float
    scaling: values.Scaling
    reports: tuple[demand.Report, ...]
    supply: Supply
    desired: int
    """The count in force."""
    timing: routes.Timing | None = None
    kv_per_replica: float | None = None
    """From the fit check, for when no replica reports its own."""
    cold_start_s: float = 600.0
    """p95, measured or assumed."""
    rolling_out: bool = False
    """A rollout is under way or held."""


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the history."""

    at_s: float
    before: int
    after: int
    reason: Reason
    figures: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """What one decision leaves for the next. `peaks` are (time, need) with falling needs: enough for a window's
    maximum, and never more entries than the needs have distinct values."""

    covered_since_s: float | None = None
    """Start of the unbroken run of complete figures."""
    seen_s: float | None = None
    peaks: tuple[tuple[float, float], ...] = ()
    changed_s: float | None = None
    history: tuple[Change, ...] = ()
    first_window: bool = True


@dataclass(frozen=True, slots=True)
class Decision:
    """The count, its reason, the figures behind it, and the stalled replicas that were not counted."""

    desired: int
    reason: Reason
    figures: tuple[tuple[str, float], ...]
    stalled: tuple[str, ...] = ()
    limited_by_max: bool = False


def stalled(age_s: float, cold_start_s: float) -> bool:
    """Whether a replica that is not ready yet has had its time."""
    return age_s > STALLED_FACTOR * cold_start_s


def decide(inputs: Inputs, memory: Memory) -> tuple[Decision, Memory]:
    """The next count and the memory for the next call. Equal arguments give equal results."""
    load = demand.sum_reports(inputs.reports, REPORT_AGE_S_MAX, inputs.scaling.window_s)
    up = _terms(inputs, load, margin=1.0, peak=False)
    down = _terms(inputs, load, margin=MARGIN_DOWN, peak=True)
    window_s = _window_s(inputs, load)
    memory = _remember(inputs, load, down, memory, window_s)
    desired, reason, limited = _choose(inputs, load, up, memory, window_s)
    figures = _figures(inputs, load, up, down, window_s)
    decision = Decision(desired, reason, figures, inputs.supply.stalled, limited)
    if desired != inputs.desired:
        change = Change(inputs.now_s, inputs.desired, desired, reason, figures)
        history = (change, *memory.history)[:HISTORY_LENGTH]
        memory = replace(memory, changed_s=inputs.now_s, history=history)
    return decision, memory


def _terms(inputs: Inputs, load: demand.Load, *, margin: float, peak: bool) -> demand.Terms:
    return demand.terms(
        load,
        ttft_slo_s=inputs.scaling.ttft_slo_s,
        itl_slo_s=inputs.scaling.itl_slo_s,
        target_utilization=inputs.scaling.target_utilization,
        kv_per_replica=inputs.kv_per_replica,
        timing=inputs.timing,
        margin=margin,
        peak=peak,
    )


def _rewarm_s(inputs: Inputs, load: demand.Load) -> float:
    """Prefill that the others redo when the cheapest victim's hot prefixes are gone."""
    if inputs.timing is None or load.unique_hot_tokens_min is None:
        return 0.0
    return load.unique_hot_tokens_min * inputs.timing.b_s


def _window_s(inputs: Inputs, load: demand.Load) -> float:
    """At least as long as taking the step back would take: a cold start and the cache's warming."""
    return max(inputs.scaling.window_s, inputs.cold_start_s + _rewarm_s(inputs, load))


def _need_down(inputs: Inputs, load: demand.Load, down: demand.Terms) -> float | None:
    """Replicas needed with margin, or None where that is not known well enough to take one away.

    A missing router's share counts as at target: it keeps its part of the replicas that are there, with the margin."""
    if load.reporting == 0 or down.backlog is None or down.rate is None or down.kv is None:
        return None
    need = down.need() or 0.0
    missing = (load.routers - load.reporting) / load.routers
    return need + missing * inputs.desired / MARGIN_DOWN


def _remember(inputs: Inputs, load: demand.Load, down: demand.Terms, memory: Memory, window_s: float) -> Memory:
    """Add this moment's need to the window. A gap, or a moment without figures, starts the window anew."""
    need = _need_down(inputs, load, down)
    if need is None:
        return replace(memory, covered_since_s=None, peaks=())
    broken = memory.seen_s is None or not 0 <= inputs.now_s - memory.seen_s <= GAP_S_MAX
    since_s = inputs.now_s if broken or memory.covered_since_s is None else memory.covered_since_s
    earlier = () if broken else memory.peaks
    kept = tuple((at_s, peak) for at_s, peak in earlier if peak > need and at_s > inputs.now_s - window_s)
    over = inputs.now_s - since_s >= window_s
    return replace(
        memory,
        covered_since_s=since_s,
        seen_s=inputs.now_s,
        peaks=(*kept, (inputs.now_s, need)),
        first_window=memory.first_window and not over,
    )


def _choose(
    inputs: Inputs, load: demand.Load, up: demand.Terms, memory: Memory, window_s: float
) -> tuple[int, Reason, bool]:
    """The count, why, and whether max cut it."""
    low, high, current = inputs.scaling.min, inputs.scaling.max, inputs.desired
    if current < low:
        return low, Reason.MIN_REPLICAS, False
    if current > high:
        return high, Reason.MAX_REPLICAS, True
    need = up.need()
    if need is None:
        return current, Reason.METRICS_MISSING, False
    wanted = math.ceil(need - 1e-9)
    if wanted > inputs.supply.counted:
        # Stalled replicas hold a place in the count and serve nothing: they are made up for, within max.
        wanted += len(inputs.supply.stalled)
    if wanted > current:
        return _step_up(inputs, up, min(wanted, high), wanted > high)
    if wanted == current or current == low:
        return current, Reason.MIN_REPLICAS if wanted < low else Reason.STEADY, False
    return *_step_down(inputs, load, memory, window_s), False


def _step_up(inputs: Inputs, up: demand.Terms, wanted: int, limited: bool) -> tuple[int, Reason, bool]:
    current, supply = inputs.desired, inputs.supply
    step = max(STEP_FACTOR * supply.counted, supply.counted + STEP_MIN, current)
    starts = supply.ready + len(supply.stalled) + inputs.scaling.starts_max
    reachable = max(current, min(wanted, step, starts))
    if reachable == wanted:
        reason = Reason.MAX_REPLICAS if limited else _driver(up)
    else:
        reason = Reason.STEP_LIMITED if step <= starts else Reason.STARTS_LIMITED
    return reachable, reason, limited


def _driver(up: demand.Terms) -> Reason:
    """The largest term's name; ties go to the one that hurts first."""
    named = (
        (up.backlog, Reason.BACKLOG),
        (up.kv, Reason.KV_CACHE),
        (up.itl, Reason.ITL),
        (up.rate, Reason.ARRIVAL_RATE),
    )
    return max(((term, reason) for term, reason in named if term is not None), key=lambda pair: pair[0])[1]


def _step_down(inputs: Inputs, load: demand.Load, memory: Memory, window_s: float) -> tuple[int, Reason]:
    """One fewer, or the first thing that forbids it."""
    current = inputs.desired
    if memory.covered_since_s is None:
        return current, Reason.METRICS_MISSING
    if not load.complete and memory.peaks[-1][1] > current - 1:
        return current, Reason.METRICS_PARTIAL
    if inputs.rolling_out:
        return current, Reason.ROLLOUT_HOLDS
    if inputs.now_s - memory.covered_since_s < window_s:
        return current, Reason.FIRST_WINDOW if memory.first_window else Reason.WINDOW_NOT_OVER
    if max(peak for _, peak in memory.peaks) > current - 1:
        return current, Reason.WINDOW_NOT_OVER
    settle_s = max(window_s / 4, _rewarm_s(inputs, load))
    settling = memory.changed_s is not None and inputs.now_s - memory.changed_s < settle_s
    starting = inputs.supply.pending > len(inputs.supply.stalled)
    if settling or starting or inputs.supply.draining:
        return current, Reason.STILL_SETTLING
    return current - 1, Reason.LOAD_FELL


def _figures(
    inputs: Inputs, load: demand.Load, up: demand.Terms, down: demand.Terms, window_s: float
) -> tuple[tuple[str, float], ...]:
    """What status shows and a recorded decision can be replayed from; what is not known is left out."""
    named: dict[str, float | None] = {
        "backlog": up.backlog,
        "rate": up.rate,
        "kv": up.kv,
        "itl": up.itl,
        "needDown": _need_down(inputs, load, down),
        "queuedWorkSeconds": load.queued_work_s,
        "queuedTokens": load.queued_tokens,
        "requestsPerSecond": load.requests_per_s,
        "workPerRequestSeconds": load.work_per_request_s,
        "running": load.running,
        "kvInUse": load.kv_in_use,
        "kvPerReplica": load.kv_per_replica or inputs.kv_per_replica,
        "ready": float(inputs.supply.ready),
        "pending": float(inputs.supply.pending),
        "stalled": float(len(inputs.supply.stalled)),
        "routers": float(load.routers),
        "routersReporting": float(load.reporting),
        "windowSeconds": window_s,
    }
    return tuple((name, round(value, 6)) for name, value in named.items() if value is not None)
