"""SGLang's own cross-flag rules, checked before anything is applied. Pure; `domain.checks` runs them.

Each rule is one function that reads as a fact and answers with a message or None. They look at the merged flags of one
profile, so they hold for `engine.args` too. What SGLang would say minutes into a start is said at apply time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shoal_operator.domain import values


@dataclass(frozen=True, slots=True)
class Context:
    """One profile's command line, as flags by name."""

    service: values.Service
    profile: values.Profile
    flags: Mapping[str, values.ArgValue]

    def text(self, name: str, default: str = "") -> str:
        return str(self.flags.get(name, default))

    def number(self, name: str, default: int) -> int:
        value = self.flags.get(name, default)
        return int(value) if isinstance(value, int | str) and str(value).lstrip("-").isdigit() else default

    def on(self, name: str) -> bool:
        return self.flags.get(name) is True


Rule = Callable[[Context], str | None]


def chunk_not_in_pages(at: Context) -> str | None:
    chunk, page = at.number("chunked-prefill-size", -1), at.number("page-size", 1)
    if chunk > 0 and chunk % page:
        return (
            f"--chunked-prefill-size {chunk} is no multiple of the page size {page}: use {chunk // page * page or page}"
        )
    return None


def priority_without_policy(at: Context) -> str | None:
    policy = at.text("schedule-policy", "fcfs")
    if at.on("enable-priority-scheduling") and policy not in ("fcfs", "lof"):
        return f"--enable-priority-scheduling needs --schedule-policy fcfs or lof, not {policy}"
    return None


def retraction_without_priority(at: Context) -> str | None:
    if at.text("retraction-policy") == "priority" and not at.on("enable-priority-scheduling"):
        return "--retraction-policy priority needs --enable-priority-scheduling"
    return None


def kv_dtype_against_backend(at: Context) -> str | None:
    dtype = at.text("kv-cache-dtype", "auto")
    backends = {
        at.text(name) for name in ("attention-backend", "prefill-attention-backend", "decode-attention-backend")
    }
    allowed = {"trtllm_mla": ("auto", "bf16", "fp8_e4m3"), "cutedsl_mla": ("auto", "bf16", "bfloat16", "fp8_e4m3")}
    for backend in sorted(backends & set(allowed)):
        if dtype not in allowed[backend]:
            return f"attention backend {backend} has no {dtype} KV cache: use {', '.join(allowed[backend])}"
    return None


def nvfp4_kv_exclusion(at: Context) -> str | None:
    if at.text("kv-cache-dtype") != "nvfp4":
        return None
    algorithm = at.text("speculative-algorithm")
    if algorithm in ("DFLASH", "DSPARK"):
        return f"an NVFP4 KV cache does not go with {algorithm}: use model.kvCacheDtype fp8_e4m3"
    if at.on("enable-hierarchical-cache") or at.on("enable-lmcache"):
        return "an NVFP4 KV cache does not go with --enable-hierarchical-cache or --enable-lmcache: use fp8_e4m3"
    if algorithm == "NGRAM" and at.number("speculative-ngram-max-bfs-breadth", 10) > 1:
        return "an NVFP4 KV cache needs --speculative-ngram-max-bfs-breadth 1 with NGRAM"
    return None


def hicache_without_radix(at: Context) -> str | None:
    if at.on("enable-hierarchical-cache") and at.on("disable-radix-cache"):
        return "--enable-hierarchical-cache needs the radix cache: remove --disable-radix-cache"
    return None


def expert_against_all_to_all(at: Context) -> str | None:
    backend = at.text("moe-a2a-backend", "none")
    spread = at.profile.parallelism
    if backend not in ("none", "ascend_tp") and spread.expert != spread.tensor:
        return f"--moe-a2a-backend {backend} spreads experts over all of tensor: set parallelism.expert {spread.tensor}"
    return None


def expert_against_moe_data(at: Context) -> str | None:
    groups, spread = at.number("moe-dp-size", 1), at.profile.parallelism
    if groups > 1 and spread.expert > 1 and spread.expert * groups != spread.tensor:
        return f"parallelism.expert {spread.expert} x --moe-dp-size {groups} is not tensor {spread.tensor}"
    if groups > 1 and spread.pipeline > 1:
        return "--moe-dp-size needs parallelism.pipeline 1"
    return None


def lm_head_without_attention_data(at: Context) -> str | None:
    if at.on("enable-dp-lm-head") and at.profile.parallelism.attention_data == 1:
        return "--enable-dp-lm-head needs parallelism.attentionData above 1"
    return None


def speculation_over_pipeline(at: Context) -> str | None:
    algorithm = at.text("speculative-algorithm")
    if algorithm and at.profile.parallelism.pipeline > 1:
        return f"{algorithm} needs parallelism.pipeline 1: remove spec.speculative, or use tensor parallelism alone"
    return None


def speculation_over_attention_data(at: Context) -> str | None:
    algorithm = at.text("speculative-algorithm")
    if algorithm in ("STANDALONE", "NGRAM") and at.profile.parallelism.attention_data > 1:
        return f"{algorithm} does not go with attention data: set parallelism.attentionData 1"
    return None


def tree_draft_on_pages(at: Context) -> str | None:
    backend = at.text("attention-backend")
    if at.number("speculative-eagle-topk", 1) > 1 and at.number("page-size", 1) > 1:
        if backend in ("flashinfer", "fa3", "triton"):
            return None
        return "topk above 1 needs engine.args attention-backend flashinfer, fa3 or triton: or set config.topk 1"
    return None


def limits_below_one(at: Context) -> str | None:
    if at.number("max-running-requests", 1) < 1:
        return "--max-running-requests must be at least 1"
    if at.number("max-queued-requests", 1) < 1:
        return "--max-queued-requests must be at least 1"
    return None


RULES: tuple[Rule, ...] = (
    limits_below_one,
    chunk_not_in_pages,
    priority_without_policy,
    retraction_without_priority,
    kv_dtype_against_backend,
    nvfp4_kv_exclusion,
    hicache_without_radix,
    expert_against_all_to_all,
    expert_against_moe_data,
    lm_head_without_attention_data,
    speculation_over_pipeline,
    speculation_over_attention_data,
    tree_draft_on_pages,
)
"""In the order in which they are reported."""


def first_broken(context: Context) -> str | None:
    """The message of the first rule that the flags break."""
    return next((message for message in (rule(context) for rule in RULES) if message), None)
