"""Values that pass between the router's layers: replicas, requests, costs, outcomes. Nothing here does anything.

Read by every layer (index, policy, admission, dispatch, server); imports none of them. Times are seconds of one
monotonic clock (the event loop's), sizes are tokens unless the name says bytes.

What is made once a request (`Prompt`, `Session`, `Request`, `Usage`) is a plain class: the generated constructor of a
frozen dataclass costs a microsecond, and stays interpreted where the rest is compiled. Nobody writes to them.
"""

import enum
from dataclasses import dataclass


class Outcome(enum.Enum):
    """How a request ended, seen by the router. Closed: metrics use the value as the label `reason`."""

    OK = "ok"
    CLIENT_GONE = "client_gone"
    QUEUE_FULL = "queue_full"
    """The waiting queue has no room and nobody in particular is to blame: 503."""
    TENANT_LIMIT = "tenant_limit"
    """The caller's own tenant fills its share of the waiting queue: 429."""
    EXPIRED = "expired"
    """Waited longer than the queue's limit, or could not have answered before the request's own deadline: 503."""
    NO_REPLICA = "no_replica"
    """No replica may take it (none routable, or every one was tried): 503."""
    DRAINING = "draining"
    """This router is shutting down: 503."""
    REPLICA_FAILED = "replica_failed"
    """The replica died, reset or could not be reached."""
    REPLICA_REFUSED = "replica_refused"
    """The replica answered 502, 503, 504 or a stream whose first event is an error."""
    REPLICA_STALLED = "replica_stalled"
    ENGINE_ERROR = "engine_error"
    """The engine answered with an error that is the answer (4xx, or 5xx that may not be retried)."""

    @property
    def http_status(self) -> int:
        """Status for a request that ends so before its first byte."""
        return _STATUS[self]


_STATUS = {
    Outcome.OK: 200,
    Outcome.CLIENT_GONE: 499,
    Outcome.QUEUE_FULL: 503,
    Outcome.TENANT_LIMIT: 429,
    Outcome.EXPIRED: 503,
    Outcome.NO_REPLICA: 503,
    Outcome.DRAINING: 503,
    Outcome.REPLICA_FAILED: 502,
    Outcome.REPLICA_REFUSED: 503,
    Outcome.REPLICA_STALLED: 504,
    Outcome.ENGINE_ERROR: 500,
}


class ReplicaState(enum.Enum):
    """Whether a replica may get requests; the values are those of `shoal_api.state.ReplicaState.state`."""

    ROUTABLE = "Routable"
    DRAINING = "Draining"
    EJECTED = "Ejected"
    NOT_READY = "NotReady"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Replica:
    """Who a replica is; a new `uid` under the same name is a restarted engine with an empty cache."""

    name: str
    url: str
    uid: str = ""
    revision: str = ""
    gpu: str = ""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine said about itself in `/server_info`; None where it did not."""

    kv_tokens_max: int | None = None
    """`max_total_num_tokens`."""
    running_max: int | None = None
    """`max_running_requests` as in force (`effective_max_running_requests_per_dp` where present)."""
    page_tokens: int | None = None
    """`page_size`: the cache holds whole pages."""
    ranks: int | None = None
    """`dp_size`: data-parallel ranks, each with a cache of its own."""


class Prompt:
    """Canonical bytes of a prompt: two requests share a prefix of tokens as far as they share one of these bytes."""

    __slots__ = ("data", "data_bytes", "rest_bytes", "salt", "tokens")

    def __init__(
        self, data: bytes, tokens: int | None = None, rest_bytes: int = 0, salt: int = 0, dropped_bytes: int = 0
    ) -> None:
        self.data = data
        self.data_bytes = len(data) or dropped_bytes
        """Length of `data`, also where it was dropped after hashing."""
        self.tokens = tokens
        """Exact count where the body gave token ids (4 bytes of `data` each); else learned bytes per token decide."""
        self.rest_bytes = rest_bytes
        """Bytes of further prompts of a batch: work, but no part of the prefix."""
        self.salt = salt
        """Separates caches that an engine keeps apart (cache salt, adapter)."""

    def drop_data(self) -> None:
        """The bytes are hashed and no longer needed: a stream lives for minutes, its prompt need not."""
        self.data = b""


class Session:
    """A session's key: a 64-bit hash (never the client's text) and which rule of the list gave it."""

    __slots__ = ("key", "source")

    def __init__(self, key: int, source: str) -> None:
        self.key = key
        self.source = source


class Request:
    """What the policy knows of one request."""

    __slots__ = (
        "body_bytes",
        "chain",
        "output_max",
        "parent",
        "prompt",
        "session",
        "sliceable",
        "stream",
        "tenant",
        "timeout_s",
    )

    def __init__(
        self,
        prompt: Prompt,
        chain: tuple[int, ...],
        session: Session,
        parent: int | None = None,
        body_bytes: int = 0,
        stream: bool = True,
        output_max: int | None = None,
        tenant: str = "",
        timeout_s: float | None = None,
        sliceable: bool = False,
    ) -> None:
        self.prompt = prompt
        self.chain = chain
        """Chain hashes of `prompt.data` (see index.chain)."""
        self.session = session
        self.parent = parent
        """Session key of the agent that started this one."""
        self.body_bytes = body_bytes
        self.stream = stream
        """Whether a first token will be seen; without one its prefill is presumed done when the predicted time is
        over."""
        self.output_max = output_max
        """`max_tokens` or its like."""
        self.tenant = tenant
        """Tells callers apart for the queue's fairness (see index.caller)."""
        self.timeout_s = timeout_s
        """The client's own limit for its first token, from arrival."""
        self.sliceable = sliceable
        """Whether prefixes of the prompt can be sent alone (see dispatch.sliceable); only asked of long prompts."""


class Usage:
    """What the engine reported at the end of a request."""

    __slots__ = ("cached_tokens", "completion_tokens", "prompt_tokens")

    def __init__(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int | None = None) -> None:
        self.prompt_tokens = prompt_tokens
        self.completion_tokens = completion_tokens
        self.cached_tokens = cached_tokens
        """None where the engine does not report it; 0 is a miss."""


@dataclass(frozen=True, slots=True)
class CostTerms:
    """Why a replica was or was not chosen; shown by `/debug/route` and `x-shoal-explain`. `cost_s` is their sum."""

    replica: str
    cost_s: float
    busy_s: float
    """Prefill bound to the replica and not done."""
    work_s: float
    """Prefill of this request's uncached tokens there."""
    price: float
    """Factor on `work_s`: 1 + beta * min(waiting for it, 50) + crowd * work_s."""
    interference_s: float
    kv_pressure_s: float
    """Shortage of KV tokens or of running slots there."""
    prompt_tokens: int
    matched_tokens: int
    """Predicted to be cached there."""
    room: str
    """`ok`, or why it can take no more now: `prefill`, `running`, `kv`, `slices` (a sliced prompt goes first)."""
    home: bool
    """The session's last replica."""
    sliced_s: float = 0.0
    """Prefill of sliced prompts there that has not started; longer requests wait for it, shorter ones do not."""
