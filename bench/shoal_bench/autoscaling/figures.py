"""From a run to its figures and curves. Pure.

What is needed at a time is taken from the run itself: the seconds of prefill that requests really took, times the rate
that the load has then, over the scaler's target utilization.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shoal_bench import results
from shoal_bench.autoscaling.loads import Load
from shoal_fleet.fleet import Outcome
from shoal_fleet.run import Run
from shoal_operator.domain import values

WINDOW_S: Final = 30.0
"""TTFT over time: by the time of arrival, in windows of this length."""


@dataclass(frozen=True, slots=True)
class Curves:
    at_s: list[float]
    needed: list[float]
    wanted: list[float]
    ready: list[float]
    queued_s: list[float]
    window_s: list[float]
    ttft_p50_s: list[float]
    ttft_p90_s: list[float]


def work_s(run: Run) -> float:
    """Mean seconds of prefill that a request took."""
    busy: dict[str, float] = {}
    for sample in run.samples:
        for name, replica in sample.replicas.items():
            busy[name] = max(busy.get(name, 0.0), replica.prefill_busy_s)
    return sum(busy.values()) / max(1, len(run.outcomes))


def needed(load: Load, at_s: float, request_s: float, spec: values.Scaling) -> int:
    """Replicas that carry the rate at this time at the target utilization."""
    return max(spec.min, math.ceil(load.rate(at_s) * request_s / spec.target_utilization - 1e-9))


def curves(load: Load, run: Run, spec: values.Scaling) -> Curves:
    request_s = work_s(run)
    ticks = [tick for tick in run.ticks if tick.at_s <= load.seconds]
    windows = _windows(run.outcomes)
    return Curves(
        at_s=[tick.at_s for tick in ticks],
        needed=[float(needed(load, tick.at_s, request_s, spec)) for tick in ticks],
        wanted=[float(tick.wanted) for tick in ticks],
        ready=[float(tick.ready) for tick in ticks],
        queued_s=[tick.queued_s for tick in ticks],
        window_s=[at_s for at_s, _ in windows],
        ttft_p50_s=[results.percentile(found, 0.5) for _, found in windows],
        ttft_p90_s=[results.percentile(found, 0.9) for _, found in windows],
    )


def measures(load: Load, run: Run, spec: values.Scaling) -> dict[str, tuple[float, str]]:
    """Name to value and unit; without those that the load does not have."""
    drawn = curves(load, run, spec)
    summary = run.summary
    within = [one.ttft_s is not None and one.ttft_s <= spec.ttft_slo_s for one in run.outcomes]
    changes = [after.wanted - before.wanted for before, after in itertools.pairwise(run.ticks)]
    moves = [change for change in changes if change]
    needed_s = sum(count * _TICK_S for count in drawn.needed)
    made = {
        "requests": (float(summary.requests), "count"),
        "failed": (float(summary.failed), "count"),
        "refused": (float(summary.refused), "count"),
        "ttft_s_p50": (summary.ttft_s.p50 or 0.0, "s"),
        "ttft_s_p99": (summary.ttft_s.p99 or 0.0, "s"),
        "slo_share": (sum(within) / max(1, len(within)), "share"),
        "work_per_request_s": (work_s(run), "s"),
        "replicas_max": (max(drawn.ready), "replicas"),
        "needed_max": (max(drawn.needed), "replicas"),
        "replica_hours": (summary.replica_s / 3600.0, "h"),
        "replica_hours_over_needed": (summary.replica_s / needed_s, "ratio"),
        "changes": (float(len(moves)), "count"),
        "reversals": (float(sum(one * two < 0 for one, two in itertools.pairwise(moves))), "count"),
    }
    return made | _after_jump(load, run, spec, drawn)


_TICK_S: Final = 2.0


def _after_jump(load: Load, run: Run, spec: values.Scaling, drawn: Curves) -> dict[str, tuple[float, str]]:
    """Of the first jump: how long until as many replicas served as were needed, until what had queued was gone, and how
    long users waited meanwhile."""
    if not load.marks:
        return {}
    start_s = load.marks[0]
    end_s = load.marks[1] if len(load.marks) > 1 else load.seconds
    made: dict[str, tuple[float, str]] = {}
    ticks = list(zip(drawn.at_s, drawn.needed, drawn.wanted, drawn.ready, drawn.queued_s, strict=True))
    after = [tick for tick in ticks if start_s < tick[0] < end_s]
    before = [tick for tick in ticks if tick[0] <= start_s]
    asked = next((at_s for at_s, _, wanted, _, _ in after if before and wanted > before[-1][2]), None)
    served = next((at_s for at_s, need, _, ready, _ in after if ready >= need), None)
    if asked is not None:
        made["seconds_to_first_decision"] = (asked - start_s, "s")
    if served is not None:
        made["seconds_to_enough_replicas"] = (served - start_s, "s")
        calm = next((at_s for at_s, _, _, _, queued in after if at_s >= served and queued < spec.ttft_slo_s), None)
        if calm is not None:
            made["seconds_to_empty_queue"] = (calm - start_s, "s")
    during = [one.ttft_s for one in run.outcomes if one.ttft_s is not None and start_s <= one.arrived_s < end_s]
    if during:
        made["step_ttft_s_p50"] = (results.percentile(during, 0.5), "s")
        made["step_ttft_s_p99"] = (results.percentile(during, 0.99), "s")
    windows = [at_s for at_s, p90 in zip(drawn.window_s, drawn.ttft_p90_s, strict=True) if p90 > spec.ttft_slo_s]
    late = [at_s for at_s in windows if start_s - WINDOW_S <= at_s < end_s]
    if late:
        made["seconds_until_slo_held"] = (max(late) + WINDOW_S - start_s, "s")
    made["queued_s_max"] = (max(queued for *_, queued in after), "s")
    return made


def _windows(outcomes: Sequence[Outcome]) -> list[tuple[float, list[float]]]:
    """TTFTs by the window in which their requests arrived."""
    found: dict[int, list[float]] = {}
    for one in outcomes:
        if one.ttft_s is not None:
            found.setdefault(int(one.arrived_s / WINDOW_S), []).append(one.ttft_s)
    return [(place * WINDOW_S, found[place]) for place in sorted(found)]
