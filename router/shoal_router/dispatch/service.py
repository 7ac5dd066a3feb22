"""One ModelService in this process: its core, its replicas' handles, its counters. Made by dispatch.fleet."""

import random
from collections import Counter

from shoal_api import routes
from shoal_router import model
from shoal_router.admission.core import ServiceCore
from shoal_router.dispatch.breaker import RetryBudget
from shoal_router.dispatch.handle import Handle
from shoal_router.metrics.histogram import Histogram


class Counters:
    """Integer slots of one service, rendered at scrape time. Keys are closed sets."""

    __slots__ = (
        "aborts",
        "broken_streams",
        "completed",
        "e2e",
        "ejections",
        "refused",
        "requests",
        "retries",
        "retries_denied",
        "streams_open",
        "wasted_tokens",
    )

    def __init__(self) -> None:
        self.requests: Counter[tuple[int, str]] = Counter()
        """By HTTP status and reason, but for those that `completed` counts."""
        self.completed = 0
        """Status 200, reason ok: nearly all."""
        self.retries: Counter[str] = Counter()
        self.retries_denied = 0
        """The retry budget was spent."""
        self.aborts = 0
        self.broken_streams = 0
        """Begun, and ended with an error event."""
        self.wasted_tokens = 0
        """Generated for nobody: the client had gone, or the stream broke."""
        self.ejections: Counter[str] = Counter()
        self.e2e = Histogram()
        self.streams_open = 0

    def ended(self) -> dict[tuple[int, str], int]:
        """All requests by HTTP status and reason."""
        completed = {(200, model.Outcome.OK.value): self.completed} if self.completed else {}
        return completed | self.requests


class Service:
    """See the module."""

    __slots__ = ("budget", "context_tokens", "core", "counters", "handles", "retiring", "table", "vocab_size")

    def __init__(self, table: routes.Service, now_s: float) -> None:
        self.table = table
        self.core = ServiceCore(table)
        self.handles: dict[str, Handle] = {}
        self.retiring: set[Handle] = set()
        self.counters = Counters()
        self.budget = RetryBudget(now_s)
        self.vocab_size: int | None = None
        """The smallest that an engine or the table names: what one replica refuses must reach none."""
        self.context_tokens: int | None = None
        """The longest that one of them names."""
        self.on_engines()

    @property
    def name(self) -> str:
        return self.table.name

    def on_engines(self) -> None:
        """The table, the replicas or what they say of themselves changed: each request reads what follows from it."""
        infos = [handle.info for handle in self.handles.values() if handle.info is not None]
        sizes = [self.table.vocab_size, *[info.vocab_size for info in infos]]
        lengths = [self.table.context_tokens, *[info.context_tokens for info in infos]]
        self.vocab_size = min((size for size in sizes if size is not None), default=None)
        self.context_tokens = max((length for length in lengths if length is not None), default=None)

    def routable_besides(self, excluded: frozenset[str]) -> bool:
        """Is there a replica that a request may still be tried on?"""
        return any(
            handle.state is model.ReplicaState.ROUTABLE and name not in excluded
            for name, handle in self.handles.items()
        )

    def any_handle(self, excluded: frozenset[str] = frozenset()) -> Handle | None:
        """A replica for a call that needs only its tokenizer."""
        able = [
            handle
            for handle in self.handles.values()
            if handle.state is model.ReplicaState.ROUTABLE and handle.name not in excluded
        ]
        return random.choice(able) if able else None
