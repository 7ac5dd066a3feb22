"""What one reconcile of one key came to, and the key itself."""

from dataclasses import dataclass
from typing import NamedTuple


class Key(NamedTuple):
    """One object to bring in order. `namespace` is empty for cluster-scoped kinds."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}" if self.namespace else f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more to do until something happens."""


@dataclass(frozen=True, slots=True)
class Requeue:
    """Look again after `after_s` even if nothing happens."""

    after_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Try again with back-off; `retry_after_s` where the server said when."""

    reason: str
    retry_after_s: float | None = None


Outcome = Done | Requeue | Failed
