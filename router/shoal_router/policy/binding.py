"""A reservation: one request on one replica, from the moment it is chosen until it is released. A handle for dispatch.

Made by policy.pool, handed to dispatch through `Ticket.on_bound`, given back with `ServiceCore.finish` or `.release`.
Attributes without an underscore may be read by anyone; only policy.pool writes.
"""

from typing import TYPE_CHECKING

from shoal_router import model
from shoal_router.index import mirror, sessions

if TYPE_CHECKING:
    from shoal_router.policy import load, slices


class Sample:
    """A stretch of prefill between two first tokens of one replica, and the requests whose prompts were done in it.

    Timing learns from it when all of them have reported their usage, since only then is it known what was cached.
    """

    __slots__ = ("left", "observed_s", "predicted_s", "requests", "spoilt")

    def __init__(self, observed_s: float) -> None:
        self.observed_s = observed_s
        self.predicted_s = 0.0
        self.requests = 0
        self.left = 1
        self.spoilt = False


class Binding:
    """What was reserved and predicted, and what has been seen since."""

    __slots__ = (
        "_alone",
        "_epoch",
        "_last",
        "_load",
        "_matched_depth",
        "_matched_idle",
        "_node",
        "_reserved",
        "_sample",
        "attempt",
        "bound_at",
        "cost_s",
        "first_token_at",
        "last_token_at",
        "matched_tokens",
        "prefilling",
        "prompt_tokens",
        "queued_s",
        "released",
        "replica",
        "request",
        "seen",
        "sliced",
        "tokens",
        "work_s",
    )

    def __init__(self, request: model.Request, owner: "load.Load", node: mirror.Node, now: float) -> None:
        self.request = request
        self.replica: model.Replica = owner.replica
        self.bound_at = now
        self.queued_s = 0.0
        """Seconds between arrival in the queue and binding."""
        self.attempt = 0
        """0 for the first try, 1 for the first retry..."""
        self.cost_s = 0.0
        self.work_s = 0.0
        """Predicted prefill seconds of its uncached tokens."""
        self.prompt_tokens = 0
        """Estimated, until `finish` brings the engine's own count."""
        self.matched_tokens = 0
        """Predicted to be cached."""
        self.first_token_at: float | None = None
        self.last_token_at: float | None = None
        self.tokens = 0
        """Output tokens seen so far."""
        self.prefilling = True
        """Its prefill, or a slice of it, is on its way: it counts as the replica's pending work."""
        self.seen = request.stream
        """Whether the end of that prefill will be seen; else it is presumed from the prediction."""
        self.sliced: slices.Sliced | None = None
        """Set where the prompt goes in slices."""
        self.released = False
        self._load = owner
        self._node = node
        self._epoch = owner.epoch
        self._matched_depth = 0
        self._matched_idle = False
        self._last: sessions.Last | None = None
        self._reserved = 0.0
        self._sample: Sample | None = None
        self._alone = False
