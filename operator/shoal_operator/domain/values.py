"""The frozen values that the operator's pure half passes between its functions.

`resolve` makes `Service` from a ModelService and what it refers to; checks, fit, revision, rendering and planning read
it. Nothing here does I/O or knows Kubernetes clients. Sizes are bytes or tokens, times seconds, as their names say.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from shoal_api import routes

Quantization = Literal["auto", "bf16", "fp8", "int4", "nvfp4", "mxfp4"]
Algorithm = Literal["EAGLE3", "DFLASH", "NEXTN", "STANDALONE", "NGRAM"]
ArgValue = bool | int | float | str | tuple[str | int | float, ...]
Args = tuple[tuple[str, ArgValue], ...]
"""Engine flags without their dashes, sorted by name; true is a flag without a value."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a spec: which field, a PascalCase reason, and a message that ends with the fix."""

    field: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a model's architecture decides memory.

    MLA keeps one latent of `kv_lora_rank + qk_rope_head_dim` a token and layer, whatever the tensor size; GQA keeps
    `kv_heads` heads of `head_dim`, keys and values. `attention_params` is None where it is not known.
    """

    name: str
    layers: int
    hidden: int
    attention: Literal["mla", "gqa"]
    total_params: int
    routed_expert_params: int = 0
    attention_params: int | None = None
    embedding_params: int = 0
    """Embeddings and head: kept at 16 bits by every quantization here."""
    kv_heads: int = 0
    head_dim: int = 0
    kv_lora_rank: int = 0
    qk_rope_head_dim: int = 0
    multimodal: bool = False
    """Has a vision tower: SGLang keeps more memory free."""
    vocab: int | None = None
    """Token ids lie below it. Routers refuse others: one such id kills an engine."""


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How one replica is spread. Attention-data groups lie inside the tensor group and add no GPUs."""

    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    attention_data: int = 1

    @property
    def gpus(self) -> int:
        return self.tensor * self.pipeline


@dataclass(frozen=True, slots=True)
class Pool:
    """A GPUPool: one kind of GPU node. `sm` is the compute capability times ten (100 = sm100)."""

    name: str
    gpu: str
    sm: int
    memory_bytes: int
    resource_name: str = "nvidia.com/gpu"
    gpus_per_node: int = 8
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[tuple[tuple[str, str], ...], ...] = ()
    """Each toleration as its fields, so that the value stays hashable."""
    cost_per_hour: float | None = None
    timing: routes.Timing | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """One entry of `spec.hardware`, joined with its pool: where a replica may run and how it is spread there."""

    pool: Pool
    gpus: int
    parallelism: Parallelism
    args: Args = ()

    @property
    def gpu(self) -> str:
        return self.pool.gpu


@dataclass(frozen=True, slots=True)
class Draft:
    """A DraftModel as the engine needs it. `source` is empty for algorithms that load no draft (NGRAM, NEXTN)."""

    name: str
    algorithm: Algorithm
    target_source: str
    source: str = ""
    revision: str | None = None
    steps: int | None = None
    topk: int | None = None
    draft_tokens: int | None = None
    block_size: int | None = None
    target_revision: str | None = None
    engine_versions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A value that stays in its Secret; only the kubelet reads it."""

    name: str
    key: str


EnvValue = str | SecretKey


@dataclass(frozen=True, slots=True)
class Engine:
    """Engine version, image and the user's own additions. `args` are checked; with `unchecked` they go as they are."""

    version: str
    image: str
    args: Args = ()
    env: tuple[tuple[str, EnvValue], ...] = ()
    unchecked: bool = False


@dataclass(frozen=True, slots=True)
class Scaling:
    """`spec.scaling`: who owns the count is the operator's scaler."""

    min: int
    max: int
    ttft_slo_s: float = 5.0
    itl_slo_s: float | None = None
    target_utilization: float = 0.7
    window_s: float = 600.0
    starts_max: int = 4


@dataclass(frozen=True, slots=True)
class Rollout:
    """`spec.rollout`: how many more, how many fewer, and how long a replica may take to empty."""

    max_surge: int = 1
    max_unavailable: int = 0
    drain_timeout_s: float = 1800.0
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Service:
    """A ModelService with every default filled in and every reference followed: what the rest of the half reads."""

    name: str
    namespace: str
    router: str
    served_name: str
    source: str
    engine: Engine
    profiles: tuple[Profile, ...]
    model_revision: str | None = None
    aliases: tuple[str, ...] = ()
    quantization: Quantization = "auto"
    kv_cache_dtype: str = "auto"
    context_tokens: int | None = None
    shape: Shape | None = None
    draft: Draft | None = None
    running_max: int = 256
    queued_max: int = 64
    replicas: int | None = 1
    """None where `scaling` owns the count."""
    scaling: Scaling | None = None
    rollout: Rollout = field(default_factory=Rollout)
    affinity: Literal["Auto", "Off"] = "Auto"
    slicing: Literal["Auto", "Off"] = "Auto"
    queue: routes.Queue = field(default_factory=routes.Queue)


@dataclass(frozen=True, slots=True)
class Owner:
    """The object that owns what is rendered; garbage collection follows it."""

    api_version: str
    kind: str
    name: str
    uid: str

    def reference(self) -> dict[str, Any]:
        """As an entry of `metadata.ownerReferences`. Without `blockOwnerDeletion`: clusters that enforce permissions on
        owner references (OpenShift does) want rights on the owner's finalizers for it, and nothing here needs it."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
        }
