"""A router's `/state` on its admin port: what routers tell the operator's scaler, drain logic and status.

Routers write it, the operator reads it every 2 s. All durations are seconds, all sizes tokens unless named otherwise.
A figure that a router does not know is null, never zero.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class QueueState(_Model):
    requests: int = 0
    bytes: int = 0
    uncached_tokens: int = 0
    prompt_tokens: int = 0
    work_s: float = 0.0
    """Prefill seconds of what waits, at its cheapest replica (or cold where there is none)."""
    oldest_s: float = 0.0
    no_replica_requests: int = 0
    """Of `requests`: how many wait because no replica is routable at all."""


class RateState(_Model):
    """Arrivals as exponentially weighted means over 10, 60 and 300 s; null until the first request."""

    requests_per_s: tuple[float, float, float] | None = None
    work_per_request_s: float | None = None
    """Mean uncached prefill seconds a request brings, at the replica that got it."""
    prompt_tokens_per_request: float | None = None
    output_tokens_per_request: float | None = None


class LatencyState(_Model):
    """Percentiles over the last 60 s; null without samples."""

    samples: int = 0
    p50_s: float | None = None
    p90_s: float | None = None
    p99_s: float | None = None


class ReplicaState(_Model):
    name: str
    uid: str = ""
    """Of the engine's process: the Pod's UID, then `/` and what else tells a restart of its container."""
    revision: str = ""
    gpu: str = ""
    url: str = ""
    state: Literal["Routable", "Draining", "Ejected", "NotReady", "Unknown"]
    """Routable: gets requests. Draining: named so by the route table or terminating. Ejected: failed health or stalled.
    Unknown: its Pod is Ready but the engine has not answered /server_info yet."""
    ready_age_s: float = 0.0
    in_flight_requests: int = 0
    in_flight_work_s: float = 0.0
    in_flight_tokens: int = 0
    """KV tokens reserved by requests in flight (prompt plus what was generated)."""
    kv_tokens_max: int | None = None
    running_max: int | None = None
    sessions: int = 0
    oldest_stream_s: float = 0.0
    unique_hot_tokens: int = 0
    """Prefix tokens used in the last 300 s that only this replica's mirror holds."""
    reuse_per_s: float = 0.0
    """Cache hits per second that this replica's prefixes get."""
    prefill_b_s: float | None = None
    """Learned seconds per uncached token."""
    decode_tokens_per_s: float = 0.0


class ServiceState(_Model):
    name: str
    queue: QueueState = QueueState()
    rate: RateState = RateState()
    ttft: LatencyState = LatencyState()
    itl: LatencyState = LatencyState()
    sessions_active: int = 0
    prompt_tokens_total: int = 0
    cached_tokens_total: int = 0
    output_tokens_total: int = 0
    requests_total: int = 0
    errors_total: int = 0
    last_request_age_s: float | None = None
    replicas: tuple[ReplicaState, ...] = ()


class RouterState(_Model):
    router: str
    instance: str
    """Pod name, or host:port; one per process."""
    started_at_s: float
    """Unix time."""
    routes_generation: str | None = None
    """Generation of the route table in force: the acknowledgement that the operator waits for before it deletes."""
    discovery_synced: bool = False
    draining: bool = False
    services: tuple[ServiceState, ...] = Field(default_factory=tuple)
