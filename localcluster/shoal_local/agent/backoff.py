"""How long a container that ended waits before it is started again: at once, then 10 s doubling to 300 s."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """Kubelet's figures; tests use shorter ones."""

    base_s: float = 10.0
    max_s: float = 300.0

    @property
    def reset_after_s(self) -> float:
        """A run this long forgets earlier failures."""
        return 2 * self.max_s


@dataclass(frozen=True, slots=True)
class Backoff:
    """State between restarts; a new value each time."""

    failures: int = 0

    def after_run(self, policy: BackoffPolicy, ran_s: float) -> "Backoff":
        """The state once a run of `ran_s` has ended."""
        return Backoff(1 if ran_s >= policy.reset_after_s else self.failures + 1)

    def delay_s(self, policy: BackoffPolicy) -> float:
        """Seconds to wait now; the first restart does not wait."""
        if self.failures <= 1:
            return 0.0
        doublings = min(self.failures - 2, 32)
        return min(policy.base_s * float(2**doublings), policy.max_s)
