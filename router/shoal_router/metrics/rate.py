"""Exponentially weighted rates and means, exact for irregular events: decay follows from the time between them."""

import math


class Rate:
    """Events (or amounts) per second, forgetting with time constant `horizon_s`.

    Until one horizon has passed the weight of the past is less than one; the rate is corrected for it, so that it is
    right from the first seconds on rather than climbing from zero.
    """

    __slots__ = ("_horizon_s", "_mass", "_since", "_sum")

    def __init__(self, horizon_s: float) -> None:
        self._horizon_s = horizon_s
        self._sum = 0.0
        self._mass: float | None = None
        self._since = 0.0

    def add(self, amount: float, now: float) -> None:
        if self._mass is None:
            self._mass, self._since = 0.0, now
        self._decay(now)
        self._sum += amount

    def value(self, now: float) -> float | None:
        """Per second; None before the first event."""
        if self._mass is None:
            return None
        self._decay(now)
        # At least a tenth of the horizon: the first event alone must not look like an infinite rate.
        return self._sum / (self._horizon_s * max(self._mass, 0.1))

    def _decay(self, now: float) -> None:
        if now > self._since and self._mass is not None:
            keep = math.exp((self._since - now) / self._horizon_s)
            self._sum *= keep
            self._mass = 1.0 - (1.0 - self._mass) * keep
            self._since = now


class Mean:
    """Mean of the last samples, each new one with weight 1/`memory` (the plain mean until there are so many)."""

    __slots__ = ("_memory", "_samples", "_value")

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._samples = 0
        self._value = 0.0

    def add(self, sample: float) -> None:
        if self._samples < self._memory:
            self._samples += 1
        self._value += (sample - self._value) / self._samples

    @property
    def value(self) -> float | None:
        return self._value if self._samples else None

    def value_or(self, default: float) -> float:
        return self._value if self._samples else default
