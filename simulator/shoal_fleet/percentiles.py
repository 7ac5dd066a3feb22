"""Exact percentiles of samples, for reports of replays and of simulated fleets; needs no code of the router."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Exact, by the nearest rank: the smallest sample that at least that share of samples does not exceed. None without
    samples."""

    samples: int
    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    max: float | None


def percentiles(samples: Iterable[float]) -> Percentiles:
    ordered = sorted(samples)
    return Percentiles(
        samples=len(ordered),
        mean=math.fsum(ordered) / len(ordered) if ordered else None,
        p50=rank(ordered, 0.5),
        p90=rank(ordered, 0.9),
        p99=rank(ordered, 0.99),
        max=ordered[-1] if ordered else None,
    )


def rank(ordered: Sequence[float], share: float) -> float | None:
    """Nearest-rank percentile of sorted samples; None without samples."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
