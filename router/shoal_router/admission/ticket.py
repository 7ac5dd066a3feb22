"""A request that wants a replica: made by dispatch, held by the waiting queue, answered by calling it exactly once."""

import enum
from collections.abc import Callable

from shoal_router import model
from shoal_router.policy import binding, choice, load


class Phase(enum.Enum):
    """Where a ticket is; only `admission.core` changes it."""

    NEW = "new"
    WAITING = "waiting"
    BOUND = "bound"
    REJECTED = "rejected"
    CANCELLED = "cancelled"


class Ticket:
    """One try of a request to be bound. `on_bound(binding)` or `on_rejected(outcome, retry_after_s)` is called once,
    maybe within `submit`, unless it is cancelled first. A retry uses the same ticket again through
    `ServiceCore.resubmit`."""

    __slots__ = (
        "arrived_at",
        "attempt",
        "enqueued_at",
        "excluded",
        "expires_at",
        "on_bound",
        "on_rejected",
        "phase",
        "prompt_tokens",
        "queried_at",
        "query",
        "request",
        "seq",
        "target",
        "uncached_tokens",
        "work_s",
    )

    def __init__(
        self,
        request: model.Request,
        on_bound: Callable[[binding.Binding], None],
        on_rejected: Callable[[model.Outcome, float], None],
    ) -> None:
        self.request = request
        self.on_bound = on_bound
        self.on_rejected = on_rejected
        self.phase = Phase.NEW
        self.attempt = 0
        self.excluded: frozenset[str] = frozenset()
        """Replicas that were tried and failed."""
        self.arrived_at = 0.0
        """First submit; deadlines count from it."""
        self.enqueued_at = 0.0
        self.expires_at = 0.0
        self.seq = 0
        self.query: choice.Query | None = None
        self.queried_at = 0.0
        self.target: load.Load | None = None
        """While it waits: its cheapest replica when that was last looked at."""
        self.work_s = 0.0
        """Prefill at its cheapest replica when it was enqueued: its size in the order of the queue."""
        self.uncached_tokens = 0
        self.prompt_tokens = 0

    def wait_for(self, target: load.Load | None) -> None:
        """Count it as waiting for this replica, and for no other."""
        if target is not self.target:
            if self.target is not None:
                self.target.add_waiting(-1, self.work_s)
            if target is not None:
                target.add_waiting(1, self.work_s)
            self.target = target
