"""The route table: what the operator tells routers, as JSON in one ConfigMap per Router.

The operator writes it, routers watch it (or read it from a file). Unknown fields are ignored by a router, so that a
newer operator can talk to an older router. Units are in the names; durations are seconds, sizes are tokens or bytes.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Timing(_Model):
    """Timing of one (model, hardware profile).

    prefill_s = a + b*n + c*n*(p + n/2); decode_s = alpha + beta*sqrt(B) + gamma*T.

    n: uncached tokens, p: cached tokens, B: running requests, T: tokens of context over all of them.
    Source: reference constants per (model, GPU) and our H200 calibration.
    """

    a_s: float = Field(default=0.02, ge=0)
    b_s: float = Field(default=8e-5, ge=0)
    c_s: float = Field(default=2e-10, ge=0)
    alpha_s: float = Field(default=0.012, ge=0)
    beta_s: float = Field(default=0.001, ge=0)
    gamma_s: float = Field(default=3e-9, ge=0)


class Queue(_Model):
    """Bounds of the waiting queue of one service in one router."""

    requests_max: int = Field(default=4096, ge=0)
    bytes_max: int = Field(default=1 << 30, ge=0)
    ttl_s: float = Field(default=60.0, gt=0)
    no_replica_ttl_s: float = Field(default=1200.0, ge=0)


class Service(_Model):
    """One ModelService as routers see it."""

    name: str
    served_name: str
    aliases: tuple[str, ...] = ()
    context_tokens: int | None = None
    vocab_size: int | None = None
    """Token ids from here on kill an engine: routers refuse them. Null: not known, routers ask the engines."""
    revision: str = ""
    """Revision that new Pods get; replicas of other revisions still serve until they drain."""
    draining: tuple[str, ...] = ()
    """Replica names that must get no new request."""
    affinity: Literal["Auto", "Off"] = "Auto"
    slicing: Literal["Auto", "Off"] = "Auto"
    """`Auto`: long uncached prompts go to a replica that others use in slices, each a prefix of the prompt."""
    itl_objective_s: float | None = Field(default=None, gt=0)
    """Time between two tokens of a stream that the service promises (`scaling.slo.itl`); null: no promise."""
    queue: Queue = Queue()
    timing: dict[str, Timing] = Field(default_factory=dict)
    """Initial timing by GPU type (label shoal.dev/gpu); routers refine it online."""
    scale_from_zero: bool = False
    """True where `no_replica_ttl_s` should hold requests until a replica comes; else they get 503 at once."""


class RouteTable(_Model):
    """The whole table. `generation` is a hash of the content; a router acknowledges it in `/state`."""

    version: Literal[1] = 1
    generation: str
    services: tuple[Service, ...] = ()
    session_headers: tuple[str, ...] = (
        "x-session-affinity",
        "x-session-id",
        "x-claude-code-session-id",
        "session-id",
        "session_id",
        "x-dynamo-session-id",
        "x-grok-conv-id",
        "x-smg-routing-key",
        "x-sgl-routing-key",
    )
    body_bytes_max: int = 64 << 20
    header_bytes_max: int = 64 << 10
    header_timeout_s: float = Field(default=10.0, gt=0)
    """From the first byte of a request to the end of its header."""
    idle_timeout_s: float = Field(default=620.0, gt=0)
    """Longer than clients and load balancers keep an idle connection, so that the router is never first to close."""
    write_stall_timeout_s: float = Field(default=60.0, gt=0)
    """Longest time in which a client that reads takes no byte."""


class StaticReplica(_Model):
    """One engine of a static discovery file (`--replicas FILE`): no Kubernetes needed."""

    name: str
    service: str
    url: str
    revision: str = "static"
    gpu: str = ""


class StaticReplicas(_Model):
    replicas: tuple[StaticReplica, ...] = ()
