"""Histograms with logarithmic buckets: an add costs one logarithm and one list item, percentiles are within 5 %."""

import itertools
import math

_PER_OCTAVE = 8
_LOWEST_S = 1e-4
_BUCKETS = 25 * _PER_OCTAVE
"""0.1 ms to 3,300 s; what is outside counts in the first or last bucket."""

_WINDOW_S = 60.0
_SLICES = 6


class Histogram:
    """Counts of durations since the start; never forgets. For `/metrics`."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * _BUCKETS
        self.sum_s = 0.0

    def add(self, value_s: float, times: int = 1) -> None:
        self.counts[bucket(value_s)] += times
        self.sum_s += value_s * times

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self, bounds_s: tuple[float, ...]) -> list[int]:
        """How many were at most each bound, as Prometheus wants it; a bucket counts from its upper edge on."""
        return [sum(self.counts[: bucket(bound)]) for bound in bounds_s]


class Window:
    """Percentiles over the last 60 s, as six slices of 10 s of which the oldest is thrown away whole.

    `total`, where given, counts the same samples for ever."""

    __slots__ = ("_slices", "_started", "_total")

    def __init__(self, total: Histogram | None = None) -> None:
        self._total = total
        self._slices: list[list[int]] = [[0] * _BUCKETS for _ in range(_SLICES)]
        self._started = [-math.inf] * _SLICES

    def add(self, value_s: float, now: float, times: int = 1) -> None:
        turn = int(now / (_WINDOW_S / _SLICES))
        place = turn % _SLICES
        if self._started[place] != turn:
            self._started[place] = turn
            self._slices[place] = [0] * _BUCKETS
        index = bucket(value_s)
        self._slices[place][index] += times
        if self._total is not None:
            self._total.counts[index] += times
            self._total.sum_s += value_s * times

    def counts(self, now: float) -> list[int]:
        """Bucket counts of the window that ends now."""
        turn = int(now / (_WINDOW_S / _SLICES))
        live = [part for part, at in zip(self._slices, self._started, strict=True) if turn - _SLICES < at <= turn]
        return [sum(column) for column in zip(*live, strict=True)] if live else [0] * _BUCKETS


def bucket(value_s: float) -> int:
    """Index of the bucket that holds a duration."""
    if value_s <= _LOWEST_S:
        return 0
    return min(_BUCKETS - 1, int(math.log2(value_s / _LOWEST_S) * _PER_OCTAVE))


def percentile(counts: list[int], share: float) -> float | None:
    """The duration under which `share` of the samples lie (middle of its bucket); None without samples."""
    total = sum(counts)
    if not total:
        return None
    reached = itertools.accumulate(counts)
    index = next(place for place, below in enumerate(reached) if below and below >= share * total)
    return float(_LOWEST_S * 2 ** ((index + 0.5) / _PER_OCTAVE))
