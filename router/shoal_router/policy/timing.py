"""How long prefill and decode take on one (model, GPU): the formulas, and their refinement from what is observed.

    prefill_s(u, p) = a + k * (b0*u + c0*u*(p + u/2))       u uncached tokens, p cached tokens before them
    decode_s(B, T)  = d * (alpha + beta*sqrt(B) + gamma*T)  B running requests, T tokens of context over all of them

(the form and the initial constants are those of shoal_api.routes.Timing; b and c share one factor k, since both are set
by the same machine's arithmetic). Each observation y of a predicted x is a step of exponentiated gradient descent
(Kivinen and Warmuth 1997) on the Huber loss of the log ratio:

    e = clamp(ln(y/x), -1, 1);   a *= exp(rate * e * a/x);   k *= exp(rate * e * (x - a)/x)

So estimates stay positive, one outlier moves them by at most the rate, and each parameter moves by its share of the
prediction: short prompts teach a, long ones k. The rate falls from 0.5 to 0.05, enough for an engine 20 times as fast
as the constants say to be followed within a few dozen requests. Both are held within a factor of 1000 of where they
began.
"""

import math

from shoal_api import routes

_RATE_FIRST = 0.5
_RATE_LAST = 0.05
_RATE_MEMORY = 16.0
_FACTOR_MAX = 1000.0


class Timing:
    """Timing of one (model, GPU). One instance is shared by all its replicas."""

    __slots__ = (
        "_initial",
        "_prefill_samples",
        "_step_samples",
        "a_s",
        "b_s",
        "c_s",
        "decode_factor",
        "prefill_factor",
    )

    def __init__(self, initial: routes.Timing) -> None:
        self._initial = initial
        self.a_s = initial.a_s
        self.b_s = initial.b_s
        self.c_s = initial.c_s
        self.prefill_factor = 1.0
        self.decode_factor = 1.0
        self._prefill_samples = 0
        self._step_samples = 0

    @property
    def prefill_samples(self) -> int:
        return self._prefill_samples

    def prefill_s(self, uncached: float, cached: float) -> float:
        """Seconds until the first token of a request that starts at once."""
        return self.a_s + self.compute_s(uncached, cached)

    def compute_s(self, uncached: float, cached: float) -> float:
        """Of `prefill_s` what the tokens take, without the constant part of a request."""
        return uncached * (self.b_s + self.c_s * (cached + 0.5 * uncached))

    def tokens_in(self, seconds: float, cached: float) -> float:
        """The inverse of `compute_s` for its first argument; infinite where tokens take no time."""
        linear = self.b_s + self.c_s * cached
        slope = linear + math.sqrt(linear * linear + 2.0 * self.c_s * seconds)
        return 2.0 * seconds / slope if slope > 0.0 else math.inf

    def decode_step_s(self, running: float, context_tokens: float) -> float:
        """Seconds between two tokens of each running request."""
        start = self._initial
        return self.decode_factor * (start.alpha_s + start.beta_s * math.sqrt(running) + start.gamma_s * context_tokens)

    def observe_prefill(self, predicted_s: float, requests: int, observed_s: float) -> None:
        """So many requests were predicted to take so long one after the other, and took `observed_s`."""
        if predicted_s <= 0.0 or observed_s < 0.0 or not requests:
            return
        self._prefill_samples += 1
        step = _rate(self._prefill_samples) * _log_error(observed_s, predicted_s)
        overhead = min(1.0, requests * self.a_s / predicted_s)
        start = self._initial
        if start.a_s:
            self.a_s = _within(self.a_s * math.exp(step * overhead), start.a_s)
        self.prefill_factor = _within(self.prefill_factor * math.exp(step * (1.0 - overhead)), 1.0)
        self.b_s = start.b_s * self.prefill_factor
        self.c_s = start.c_s * self.prefill_factor

    def observe_decode(self, predicted_s: float, observed_s: float) -> None:
        """A stream's mean time between tokens against `decode_step_s` as it was meanwhile."""
        if predicted_s <= 0.0 or observed_s <= 0.0:
            return
        self._step_samples += 1
        step = _rate(self._step_samples) * _log_error(observed_s, predicted_s)
        self.decode_factor = _within(self.decode_factor * math.exp(step), 1.0)


def _rate(samples: int) -> float:
    return max(_RATE_LAST, _RATE_FIRST / (1.0 + samples / _RATE_MEMORY))


def _log_error(observed_s: float, predicted_s: float) -> float:
    return max(-1.0, min(1.0, math.log(max(observed_s, 1e-9) / predicted_s)))


def _within(value: float, start: float) -> float:
    return max(start / _FACTOR_MAX, min(start * _FACTOR_MAX, value))
