"""GPUPool: one kind of GPU node in the cluster, as the platform engineer describes it.

Cluster-scoped. The operator turns a ModelService's hardware entry into node selector, tolerations and resource by it,
checks the fit against its memory, and hands its timing to the routers as a first guess.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from shoal_api import meta
from shoal_api.quantities import Quantity

LabelText = Annotated[str, StringConstraints(max_length=317)]


class Toleration(meta.SpecModel):
    """A taint that replicas on this pool tolerate, as in a Pod."""

    rules: ClassVar[tuple[meta.Rule, ...]] = (
        meta.Rule(
            "self.operator != 'Exists' || !has(self.value) || self.value == ''",
            "a toleration with operator Exists has no value",
            "FieldValueForbidden",
        ),
        meta.Rule(
            "(has(self.key) && self.key != '') || self.operator == 'Exists'",
            "a toleration without key needs operator Exists",
            "FieldValueRequired",
        ),
    )

    key: str | None = Field(default=None, max_length=317)
    """Key of the taint; absent with operator Exists: every taint."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """How value is compared."""
    value: str | None = Field(default=None, max_length=63)
    """Value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; absent: every effect."""


class PoolTiming(meta.SpecModel):
    """How long work takes on this GPU, in seconds: a first guess, refined by routers from what they see.

    prefill = a + b*n + c*n*(p + n/2) for n uncached tokens after p cached ones; decode step = alpha + beta*sqrt(B) +
    gamma*T for B running requests with T tokens of context together.
    """

    a: float = Field(ge=0)
    """Seconds of any prefill."""
    b: float = Field(ge=0)
    """Seconds a token."""
    c: float = Field(ge=0)
    """Seconds a pair of tokens."""
    alpha: float = Field(ge=0)
    """Seconds of any decode step."""
    beta: float = Field(ge=0)
    """Seconds by the root of the batch."""
    gamma: float = Field(ge=0)
    """Seconds a token of context."""


class GPUPoolSpec(meta.SpecModel):
    """What the nodes are."""

    gpu: str = Field(
        max_length=63,
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
        json_schema_extra=meta.immutable("gpu"),
    )
    """GPU type, as ModelServices name it: B200. Immutable."""
    architecture: str = Field(max_length=16, pattern=r"^sm[0-9]{2,3}$")
    """Compute architecture, such as sm100; decides which number formats the GPU has."""
    memory: Quantity = Field(json_schema_extra=meta.POSITIVE_QUANTITY)
    """Memory of one GPU."""
    resource_name: str = Field(
        default="nvidia.com/gpu",
        max_length=317,
        pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    )
    """Extended resource that a Pod asks for."""
    node_selector: dict[LabelText, Annotated[str, StringConstraints(max_length=63)]] = Field(
        min_length=1, max_length=16
    )
    """Labels of the pool's nodes."""
    tolerations: tuple[Toleration, ...] = Field(default=(), max_length=16, json_schema_extra=meta.ATOMIC_EXTRA)
    """Taints of the pool's nodes that replicas tolerate."""
    gpus_per_node: int = Field(ge=1, le=64)
    """GPUs in one node."""
    cost_per_hour: float | None = Field(default=None, ge=0)
    """Price of one GPU for an hour, in any currency; dearer replicas are removed first."""
    timing: PoolTiming | None = None
    """Timing constants, where they are known for what runs here."""


class GpuCounts(meta.StatusModel):
    """GPUs of a pool."""

    total: int = Field(default=0, ge=0)
    """On nodes that are ready and schedulable."""
    allocated: int = Field(default=0, ge=0)
    """Asked for by Pods that are bound."""
    free: int = Field(default=0, ge=0)
    """The rest."""
    summary: str = Field(default="", max_length=32)
    """`free/total`, for the FREE column."""


class GPUPoolStatus(meta.StatusModel):
    """What the operator found."""

    observed_generation: int = Field(default=0, ge=0)
    """Generation of the spec that this status is about."""
    nodes: int | None = None
    """Nodes that match."""
    gpus: GpuCounts | None = None
    """Their GPUs."""
    largest_free_block: int | None = None
    """Most free GPUs on one node: the largest replica that could start now."""
    conditions: tuple[meta.Condition, ...] = Field(default=(), max_length=16, json_schema_extra=meta.CONDITIONS_EXTRA)
    """Ready, with its reason."""


class GPUPool(meta.StatusModel):
    """One kind of GPU node in the cluster."""

    api_version: Literal["shoal.dev/v1alpha1"] = "shoal.dev/v1alpha1"
    kind: Literal["GPUPool"] = "GPUPool"
    metadata: meta.ObjectMeta
    spec: GPUPoolSpec
    """What the nodes are."""
    status: GPUPoolStatus = GPUPoolStatus()
    """What the operator found."""
