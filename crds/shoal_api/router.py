"""Router: the one endpoint of a namespace's ModelServices.

The operator makes a Deployment, a Service and a route table for each; the router processes themselves read only the
route table and Pods.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from shoal_api import meta
from shoal_api.quantities import Quantity
from shoal_api.routes import RouteTable

ResourceName = Annotated[str, StringConstraints(max_length=317)]
HeaderName = Annotated[str, StringConstraints(max_length=128, pattern=r"^[a-z0-9][a-z0-9_-]*$")]
DEFAULT_SESSION_HEADERS: tuple[str, ...] = RouteTable(generation="").session_headers


class Resources(meta.SpecModel):
    """Compute resources of a container, as in a Pod."""

    requests: dict[ResourceName, Quantity] = Field(default_factory=dict, max_length=16)
    """What is reserved."""
    limits: dict[ResourceName, Quantity] = Field(default_factory=dict, max_length=16)
    """What it may not exceed."""


class Limits(meta.SpecModel):
    """Largest requests that are read."""

    body_bytes_max: Quantity = "64Mi"
    """Larger bodies get 413."""
    header_bytes_max: Quantity = "64Ki"
    """Larger request heads get 431."""


class RouterSpec(meta.SpecModel):
    """What is wanted."""

    replicas: int = Field(default=2, ge=0, le=100)
    """Router Pods; each is one process on one core."""
    service_type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Type of the Service."""
    image: str | None = Field(default=None, min_length=1, max_length=512)
    """Container image. Default: the one that came with the operator."""
    resources: Resources = Resources()
    """Compute resources of a router."""
    limits: Limits = Limits()
    """Largest requests that are read."""
    session_headers: tuple[HeaderName, ...] = Field(
        default=DEFAULT_SESSION_HEADERS, max_length=32, json_schema_extra=meta.SET_EXTRA
    )
    """Request headers that name a session, in order of precedence, lower case."""


class RouterReplicas(meta.StatusModel):
    """Router Pods."""

    desired: int = Field(default=0, ge=0)
    """Wanted."""
    ready: int = Field(default=0, ge=0)
    """Ready."""
    summary: str = Field(default="", max_length=32)
    """`ready/desired`, for the REPLICAS column."""


class RouterStatus(meta.StatusModel):
    """What is."""

    observed_generation: int = Field(default=0, ge=0)
    """Generation of the spec that this status is about."""
    url: str | None = Field(default=None, max_length=512)
    """Where clients send requests: the load balancer's address once there is one, else the Service's name in the
    cluster."""
    replicas: RouterReplicas | None = None
    """Router Pods."""
    selector: str | None = Field(default=None, max_length=512)
    """Label selector of the router Pods, for the scale subresource."""
    models: tuple[Annotated[str, StringConstraints(max_length=128)], ...] = Field(
        default=(), max_length=1000, json_schema_extra=meta.SET_EXTRA
    )
    """Names that it answers to."""
    conditions: tuple[meta.Condition, ...] = Field(default=(), max_length=16, json_schema_extra=meta.CONDITIONS_EXTRA)
    """Accepted and Ready, with reasons."""


class Router(meta.StatusModel):
    """The one endpoint of a namespace's ModelServices."""

    rules: ClassVar[tuple[meta.Rule, ...]] = (
        meta.Rule(
            "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$')",
            "the name holds a-z, 0-9 and '-', at most 40 in all: Deployment, Service and labels are named after it",
        ),
    )

    api_version: Literal["shoal.dev/v1alpha1"] = "shoal.dev/v1alpha1"
    kind: Literal["Router"] = "Router"
    metadata: meta.ObjectMeta
    spec: RouterSpec = RouterSpec()
    """What is wanted."""
    status: RouterStatus = RouterStatus()
    """What is."""
