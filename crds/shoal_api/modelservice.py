"""ModelService: one model, served by a fleet of identical engines behind one Router.

The operator reads the spec and writes the status; routers never see this kind, they get a route table made from it.
Figures that the operator does not know are absent from the status, never zero.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints, WithJsonSchema

from shoal_api import meta
from shoal_api.quantities import Duration, Quantity

Quantization = Literal["auto", "bf16", "fp8", "int4", "nvfp4", "mxfp4"]
KvCacheDtype = Literal["auto", "bf16", "fp8_e4m3", "fp8_e5m2", "nvfp4"]
ObjectName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
SERVED_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._/-]*$"
SOURCE_PATTERN = r"^(hf|s3|gs|pvc|file)://[^\s]+$"

ArgValue = Annotated[
    bool | int | float | str | tuple[str | int | float, ...],
    WithJsonSchema({"x-kubernetes-preserve-unknown-fields": True, "maxLength": 4096, "maxItems": 256}),
]
"""Value of one engine flag: a string or number, a list for flags that take several, or true for a bare flag."""


class Shape(meta.SpecModel):
    """The figures of the model's config.json that decide memory; only for models that Shoal has no built-in shape of.

    `kvLoraRank` above 0 means MLA: one latent vector a token and layer. `experts` 0 means dense.
    """

    rules: ClassVar[tuple[meta.Rule, ...]] = (
        meta.Rule(
            "self.kvLoraRank == 0 || (self.qkRopeHeadDim > 0 && self.qkNopeHeadDim > 0 && self.vHeadDim > 0)",
            "kvLoraRank (MLA) needs qkRopeHeadDim, qkNopeHeadDim and vHeadDim",
            "FieldValueRequired",
        ),
        meta.Rule("self.kvLoraRank > 0 || self.headDim > 0", "headDim is needed without MLA", "FieldValueRequired"),
        meta.Rule("self.kvHeads <= self.heads", "kvHeads cannot exceed heads"),
        meta.Rule(
            "self.experts == 0 || self.moeIntermediateSize > 0",
            "experts need moeIntermediateSize",
            "FieldValueRequired",
        ),
        meta.Rule("self.denseLayers <= self.layers", "denseLayers cannot exceed layers"),
    )

    layers: int = Field(ge=1, le=1000)
    """num_hidden_layers."""
    hidden_size: int = Field(ge=1, le=1 << 20)
    """hidden_size."""
    vocab_size: int = Field(ge=1, le=1 << 24)
    """vocab_size."""
    heads: int = Field(ge=1, le=4096)
    """num_attention_heads."""
    kv_heads: int = Field(ge=1, le=4096)
    """num_key_value_heads."""
    head_dim: int = Field(default=0, ge=0, le=65536)
    """head_dim; MLA has none."""
    intermediate_size: int = Field(ge=1, le=1 << 24)
    """intermediate_size, of the dense layers."""
    experts: int = Field(default=0, ge=0, le=65536)
    """Routed experts of a layer (n_routed_experts, num_experts)."""
    shared_experts: int = Field(default=0, ge=0, le=1024)
    """n_shared_experts."""
    moe_intermediate_size: int = Field(default=0, ge=0, le=1 << 24)
    """moe_intermediate_size, of one expert."""
    dense_layers: int = Field(default=0, ge=0, le=1000)
    """Leading layers without experts (first_k_dense_replace)."""
    q_lora_rank: int = Field(default=0, ge=0, le=65536)
    """q_lora_rank (MLA)."""
    kv_lora_rank: int = Field(default=0, ge=0, le=65536)
    """kv_lora_rank (MLA)."""
    qk_nope_head_dim: int = Field(default=0, ge=0, le=65536)
    """qk_nope_head_dim (MLA)."""
    qk_rope_head_dim: int = Field(default=0, ge=0, le=65536)
    """qk_rope_head_dim (MLA)."""
    v_head_dim: int = Field(default=0, ge=0, le=65536)
    """v_head_dim (MLA)."""
    tied_embeddings: bool = False
    """tie_word_embeddings."""


class Model(meta.SpecModel):
    """Which weights are served, and under which names."""

    source: str = Field(max_length=1024, pattern=SOURCE_PATTERN)
    """Where the weights are: `hf://org/name`, `s3://`, `gs://`, `pvc://claim/path` or `file:///path` on every node."""
    revision: str | None = Field(default=None, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")
    """Commit, tag or branch of a `hf://` source. Give a commit: a branch may move between two replicas' starts."""
    served_name: str = Field(
        max_length=128, pattern=SERVED_NAME_PATTERN, json_schema_extra=meta.immutable("servedName")
    )
    """The name that clients send as `model`. It holds no ':', which SGLang reserves for adapters. Immutable."""
    aliases: tuple[Annotated[str, StringConstraints(max_length=128, pattern=SERVED_NAME_PATTERN)], ...] = Field(
        default=(), max_length=16, json_schema_extra=meta.SET_EXTRA
    )
    """More names that the router accepts for the same model."""
    quantization: Quantization = "auto"
    """Format of the weights. `auto` leaves the detection to the engine and counts 16-bit weights in the fit check."""
    kv_cache_dtype: KvCacheDtype = "auto"
    """Format of the KV cache."""
    context_length: int | None = Field(default=None, ge=1, le=1 << 24)
    """Longest prompt plus answer in tokens; the router refuses longer requests. Default: the model's own."""
    shape: Shape | None = None
    """The model's dimensions, where Shoal has no built-in shape for it."""


class SecretKey(meta.SpecModel):
    """One entry of a Secret in the ModelService's namespace."""

    name: str = Field(max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")
    """Name of the Secret."""
    key: str = Field(max_length=253, pattern=r"^[A-Za-z0-9._-]+$")
    """Which of its entries."""


class EnvVar(meta.SpecModel):
    """One environment variable of the engine's container."""

    rules: ClassVar[tuple[meta.Rule, ...]] = (
        meta.Rule(
            "!has(self.secret) || size(self.value) == 0",
            "value and secret exclude each other: a variable has one source",
        ),
    )

    name: str = Field(max_length=256, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Name of the variable."""
    value: str = Field(default="", max_length=4096)
    """Its value."""
    secret: SecretKey | None = None
    """Take the value from a Secret: a token for gated weights belongs here, not into `value`."""


class Engine(meta.SpecModel):
    """Which engine runs the model, and what it is told beyond what the other fields say."""

    version: str = Field(default="0.5.23", max_length=32, pattern=r"^[0-9]+\.[0-9]+\.[0-9]+([.a-z0-9+-]*)$")
    """SGLang's version; flags are rendered for it and checked against its flag table."""
    image: str | None = Field(default=None, min_length=1, max_length=512)
    """Container image. Default: `lmsysorg/sglang:v<version>`."""
    args: dict[Annotated[str, StringConstraints(max_length=128)], ArgValue] = Field(
        default_factory=dict, json_schema_extra={"maxProperties": 128}
    )
    """More flags without their leading dashes: a string or number, a list, or true for a flag without a value."""
    env: tuple[EnvVar, ...] = Field(default=(), max_length=128, json_schema_extra=meta.keyed_by("name"))
    """More environment variables."""
    unchecked: bool = False
    """Pass `args` verbatim, unknown flags and unknown versions included. You are on your own then."""


class Hardware(meta.SpecModel):
    """One kind of GPU that a replica may run on."""

    gpu: str = Field(max_length=63, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")
    """GPU type as some GPUPool names it, such as B200."""
    gpus_per_replica: int = Field(ge=1, le=64)
    """GPUs that one replica takes."""
    args: dict[Annotated[str, StringConstraints(max_length=128)], ArgValue] = Field(
        default_factory=dict, json_schema_extra={"maxProperties": 128}
    )
    """Engine flags for replicas on this GPU only; they win over `engine.args`."""


class Parallelism(meta.SpecModel):
    """How one replica is spread over its GPUs."""

    rules: ClassVar[tuple[meta.Rule, ...]] = (
        meta.Rule("!has(self.tensor) || self.tensor % self.attentionData == 0", "attentionData must divide tensor"),
        meta.Rule("!has(self.tensor) || self.tensor % self.expert == 0", "expert must divide tensor"),
    )

    tensor: int | None = Field(default=None, ge=1, le=64)
    """Tensor-parallel size. Default: gpusPerReplica / pipeline of the hardware that a replica got."""
    pipeline: int = Field(default=1, ge=1, le=64)
    """Pipeline stages."""
    expert: int = Field(default=1, ge=1, le=64)
    """Expert-parallel size."""
    attention_data: int = Field(default=1, ge=1, le=64)
    """Data-parallel ranks of the attention layers."""


class Speculative(meta.SpecModel):
    """Speculative decoding."""

    draft_model: ObjectName
    """A DraftModel in the same namespace."""


class Slo(meta.SpecModel):
    """What the scaler must keep."""

    ttft: Duration = Field(default="5s", json_schema_extra=meta.POSITIVE_DURATION)
    """Time to the first token."""
    itl: Duration | None = Field(default=None, json_schema_extra=meta.POSITIVE_DURATION)
    """Time between two tokens of one stream; routers size slices by it too. Absent: not a reason to scale."""


class ScalingBehavior(meta.SpecModel):
    """How fast the scaler moves."""

    scale_down_window: Duration = Field(default="10m", json_schema_extra=meta.POSITIVE_DURATION)
    """A smaller fleet must have been enough for this long before one replica goes."""
    max_concurrent_starts: int = Field(default=4, ge=1, le=1000)
    """Replicas that may be starting at once."""


class Scaling(meta.SpecModel):
    """The operator owns the replica count and follows the work waiting in the routers."""

    rules: ClassVar[tuple[meta.Rule, ...]] = (meta.Rule("self.min <= self.max", "min cannot exceed max"),)

    min: int = Field(default=1, ge=1, le=1000)
    """Fewest replicas."""
    max: int = Field(ge=1, le=1000)
    """Most replicas."""
    slo: Slo = Slo()
    """What must be kept."""
    target_utilization: float = Field(default=0.7, ge=0.1, le=0.95)
    """Share of a replica's prefill time that steady traffic may fill."""
    behavior: ScalingBehavior = ScalingBehavior()
    """How fast the scaler moves."""


class Queue(meta.SpecModel):
    """Bounds of what waits in each router for this service."""

    max_requests: int = Field(default=4096, ge=0, le=1_000_000)
    """More get 503 with a Retry-After, or 429 where one caller holds more than its share."""
    max_bytes: Quantity = "1Gi"
    """Bodies that wait, in bytes."""
    ttl: Duration = Field(default="60s", json_schema_extra=meta.POSITIVE_DURATION)
    """Longest wait for a replica that is busy."""
    no_replica_ttl: Duration = Field(default="20m", alias="noReplicaTTL")
    """Longest wait for a first replica where one is on its way."""


class Routing(meta.SpecModel):
    """How routers treat this service."""

    affinity: Literal["Auto", "Off"] = "Auto"
    """`Auto` lets a session's next turn prefer the replica that holds its prefix; `Off` looks at load alone."""
    slicing: Literal["Auto", "Off"] = "Auto"
    """`Auto` cuts long uncached prompts for busy replicas into slices, so that others go in between; `Off` does not."""
    queue: Queue = Queue()
    """Bounds of what waits."""


class Rollout(meta.SpecModel):
    """How a change of the spec reaches the replicas."""

    rules: ClassVar[tuple[meta.Rule, ...]] = (
        meta.Rule(
            "self.maxSurge > 0 || self.maxUnavailable > 0",
            "maxSurge and maxUnavailable cannot both be 0: nothing could move",
        ),
    )

    max_surge: int = Field(default=1, ge=0, le=1000)
    """Replicas above the desired count while a rollout runs, if GPUs are free."""
    max_unavailable: int = Field(default=0, ge=0, le=1000)
    """Replicas that may be missing while a rollout runs."""
    drain_timeout: Duration = "30m"
    """How long a replica may finish its streams before it is stopped."""
    paused: bool = False
    """Take no further step; what is under way finishes."""


class ModelServiceSpec(meta.SpecModel):
    """What is wanted."""

    rules: ClassVar[tuple[meta.Rule, ...]] = (
        meta.Rule(
            "!(has(self.replicas) && has(self.scaling))",
            "replicas and scaling exclude each other: where scaling is set, the operator owns the count",
            "FieldValueForbidden",
            ".replicas",
        ),
        meta.Rule(
            "!has(self.parallelism.tensor) || "
            "self.hardware.all(h, h.gpusPerReplica == self.parallelism.tensor * self.parallelism.pipeline)",
            "gpusPerReplica must be tensor x pipeline for every hardware; leave tensor out to follow gpusPerReplica",
        ),
        meta.Rule(
            "self.hardware.all(h, h.gpusPerReplica % self.parallelism.pipeline == 0)",
            "pipeline must divide gpusPerReplica of every hardware",
        ),
        meta.Rule(
            "has(self.parallelism.tensor) || self.hardware.all(h, "
            "(h.gpusPerReplica / self.parallelism.pipeline) % self.parallelism.attentionData == 0 && "
            "(h.gpusPerReplica / self.parallelism.pipeline) % self.parallelism.expert == 0)",
            "attentionData and expert must divide gpusPerReplica / pipeline of every hardware",
        ),
        meta.Rule(
            "!has(self.model.revision) || self.model.source.startsWith('hf://')",
            "revision is for hf:// sources only",
            "FieldValueForbidden",
            ".model.revision",
        ),
        meta.Rule(
            "!has(self.model.aliases) || !(self.model.servedName in self.model.aliases)",
            "aliases cannot repeat servedName",
        ),
    )

    router: ObjectName = Field(default="default", json_schema_extra=meta.immutable("router"))
    """The Router of the same namespace that clients reach this model through. Immutable."""
    model: Model
    """Which weights are served, and under which names."""
    engine: Engine = Engine()
    """Which engine runs the model."""
    hardware: tuple[Hardware, ...] = Field(min_length=1, max_length=8, json_schema_extra=meta.keyed_by("gpu"))
    """Kinds of GPU that replicas may run on, in order of preference."""
    parallelism: Parallelism = Parallelism()
    """How one replica is spread over its GPUs."""
    speculative: Speculative | None = None
    """Speculative decoding; absent: none."""
    replicas: int | None = Field(default=None, ge=0, le=1000)
    """Replicas wanted, by hand or by whoever uses the scale subresource. Default 1 where `scaling` is absent."""
    scaling: Scaling | None = None
    """Let the operator choose the count."""
    routing: Routing = Routing()
    """How routers treat this service; no change of it moves a replica. Quote "Off": YAML takes a bare one for false."""
    rollout: Rollout = Rollout()
    """How a change of the spec reaches the replicas."""


class ReplicaCounts(meta.StatusModel):
    """Replicas by what they are doing."""

    desired: int = Field(default=0, ge=0)
    """Wanted."""
    ready: int = Field(default=0, ge=0)
    """Serving: ready, and accepted by the routers."""
    pending: int = Field(default=0, ge=0)
    """Waiting for a GPU or starting."""
    draining: int = Field(default=0, ge=0)
    """Finishing their streams before they go."""
    summary: str = Field(default="", max_length=32)
    """`ready/desired`, for the REPLICAS column."""


class DrainDetail(meta.StatusModel):
    """What a draining replica still does."""

    streams: int = Field(default=0, ge=0)
    """Streams not finished."""
    oldest: Duration | None = None
    """Age of the oldest of them."""


class ReplicaDetail(meta.StatusModel):
    """One replica."""

    name: str = Field(max_length=253)
    """Name of its StatefulSet."""
    revision: str = Field(default="", max_length=64)
    """First eight digits of the revision it runs."""
    gpu: str = Field(default="", max_length=63)
    """GPU type it runs on."""
    node: str | None = Field(default=None, max_length=253)
    """Node it runs on, once placed."""
    phase: Literal["Pending", "Starting", "Ready", "NotReady", "Draining", "Failed"]
    """What it is doing."""
    sessions: int | None = None
    """Sessions bound to it, as routers report."""
    in_flight_tokens: int | None = None
    """Tokens of requests in flight, as routers report."""
    draining: DrainDetail | None = None
    """Set while it drains."""


class ScalingDecision(meta.StatusModel):
    """One decision of the scaler."""

    time: str = Field(max_length=64, json_schema_extra={"format": "date-time"})
    """When."""
    from_: int = Field(alias="from", ge=0)
    """Count before."""
    to: int = Field(ge=0)
    """Count after."""
    reason: str = Field(max_length=128)
    """Why, from a closed list."""
    inputs: dict[str, float] = Field(default_factory=dict)
    """The figures it was decided by."""


class ScalingStatus(meta.StatusModel):
    """What the scaler wants, and why."""

    desired: int = Field(ge=0)
    """Replicas wanted."""
    reason: str = Field(max_length=128)
    """Why, from a closed list."""
    inputs: dict[str, float] = Field(default_factory=dict)
    """The figures it was decided by: backlog, rate, KV and ITL terms and what went into them."""
    history: tuple[ScalingDecision, ...] = Field(default=(), max_length=10, json_schema_extra=meta.ATOMIC_EXTRA)
    """The last ten changes, newest first."""


class RolloutHold(meta.StatusModel):
    """Why a rollout does not go on."""

    gate: str = Field(max_length=64)
    """What it waits for."""
    reason: str = Field(max_length=1024)
    """The same for a reader."""
    since: str = Field(max_length=64, json_schema_extra={"format": "date-time"})
    """Since when."""


class LastFailure(meta.StatusModel):
    """The last failure of a replica, kept after its Pod is gone."""

    replica: str = Field(max_length=253)
    """Which replica."""
    phase: str = Field(default="", max_length=64)
    """What it was doing."""
    reason: str = Field(default="", max_length=128)
    """Such as OOMKilled."""
    exit_code: int | None = None
    """Exit code of the engine, if it had one."""
    message: str = Field(default="", max_length=2048)
    """What Kubernetes kept of its last words."""
    time: str = Field(max_length=64, json_schema_extra={"format": "date-time"})
    """When."""


class RolloutStatus(meta.StatusModel):
    """Where a change of the spec stands."""

    step: str = Field(default="", max_length=256)
    """What happens now."""
    hold: RolloutHold | None = None
    """Why it does not go on; absent while it does."""
    last_failure: LastFailure | None = None
    """The last failure of a replica."""


class CapacityStatus(meta.StatusModel):
    """What one replica holds on the preferred hardware that was checked."""

    gpu: str | None = Field(default=None, max_length=63)
    """GPU type that the figures are for."""
    weights_per_gpu: Quantity | None = None
    """Bytes of weights on one GPU."""
    kv_tokens: int | None = None
    """Tokens of KV cache in one replica."""
    max_sessions: int | None = None
    """Sessions of full context length that fit into the KV cache at once."""
    source: Literal["Estimated", "Measured"] | None = None
    """`Estimated` by the fit check, or `Measured`: what running engines report."""


class TtftStatus(meta.StatusModel):
    """Time to first token over the last minute."""

    p50: Duration | None = None
    """Median."""
    p99: Duration | None = None
    """99th percentile."""


class PerformanceStatus(meta.StatusModel):
    """What routers measured over the last minute."""

    ttft: TtftStatus | None = None
    """Time to first token."""
    cache_hit: float | None = Field(default=None, ge=0, le=1)
    """Share of prompt tokens that came from the engines' caches."""
    tokens_per_second_per_user: float | None = Field(default=None, ge=0)
    """Decode speed of one stream."""
    tokens_per_gpu_per_minute: float | None = Field(default=None, ge=0, alias="tokensPerGPUPerMinute")
    """Prompt and output tokens through one GPU a minute."""


class ModelServiceStatus(meta.StatusModel):
    """What is."""

    url: str | None = Field(default=None, max_length=512)
    """Where clients reach the model: the Router's address."""
    observed_generation: int = Field(default=0, ge=0)
    """Generation of the spec that this status is about."""
    current_revision: str | None = Field(default=None, max_length=64)
    """First eight digits of the hash of what the spec asks for."""
    serving_revision: str | None = Field(default=None, max_length=64)
    """The same of what serves; equal to currentRevision when no rollout is under way."""
    render_version: str | None = Field(default=None, max_length=32)
    """Version of the rendering that the current revision is pinned to."""
    replicas: ReplicaCounts | None = None
    """Replicas by what they are doing."""
    selector: str | None = Field(default=None, max_length=512)
    """Label selector of the engine Pods, for the scale subresource."""
    replica_details: tuple[ReplicaDetail, ...] = Field(
        default=(), max_length=1000, json_schema_extra=meta.keyed_by("name")
    )
    """One entry a replica."""
    scaling: ScalingStatus | None = None
    """What the scaler wants, where `spec.scaling` is set."""
    rollout: RolloutStatus | None = None
    """Where a change of the spec stands."""
    capacity: CapacityStatus | None = None
    """What one replica holds."""
    performance: PerformanceStatus | None = None
    """What routers measured."""
    conditions: tuple[meta.Condition, ...] = Field(default=(), max_length=16, json_schema_extra=meta.CONDITIONS_EXTRA)
    """Accepted, Ready, Progressing, Degraded, ScalingActive, with reasons."""


class ModelService(meta.StatusModel):
    """One model, served by a fleet of identical engines behind one Router."""

    rules: ClassVar[tuple[meta.Rule, ...]] = (
        meta.Rule(
            "self.metadata.name.matches('^[a-z]([-a-z0-9]{0,36}[a-z0-9])?$')",
            "the name begins with a letter, holds a-z, 0-9 and '-', and is at most 38 long: "
            "StatefulSets, Services and labels are named after it",
        ),
    )

    api_version: Literal["shoal.dev/v1alpha1"] = "shoal.dev/v1alpha1"
    kind: Literal["ModelService"] = "ModelService"
    metadata: meta.ObjectMeta
    spec: ModelServiceSpec
    """What is wanted."""
    status: ModelServiceStatus = ModelServiceStatus()
    """What is."""
