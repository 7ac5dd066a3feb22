"""Built-in shapes: the dimensions of model families that the fit check knows without being told. Pure data.

Numbers are those of the models' published config.json; parameter counts follow from them by the formulas below, so that
one figure wrong shows in a test against the published total. A model that is not here needs `spec.model.shape`, or its
capacity is not known.
"""

import dataclasses
import re
from dataclasses import dataclass

from shoal_operator.domain import values


@dataclass(frozen=True, slots=True)
class Config:
    """The figures of a config.json that parameters follow from. `kv_lora_rank` > 0: MLA; `experts` 0: dense."""

    name: str
    layers: int
    hidden: int
    vocab: int
    heads: int
    intermediate: int
    kv_heads: int = 0
    head_dim: int = 0
    experts: int = 0
    shared_experts: int = 0
    moe_intermediate: int = 0
    dense_layers: int = 0
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    tied: bool = False
    multimodal: bool = False


def _attention_params(config: Config) -> int:
    """Of all layers. MLA: down and up projections of queries and of the latent; GQA: queries, keys, values, output."""
    if config.kv_lora_rank:
        qk = config.qk_nope_head_dim + config.qk_rope_head_dim
        query = config.hidden * config.q_lora_rank + config.q_lora_rank * config.heads * qk
        latent = config.hidden * (config.kv_lora_rank + config.qk_rope_head_dim)
        up = config.kv_lora_rank * config.heads * (config.qk_nope_head_dim + config.v_head_dim)
        return config.layers * (query + latent + up + config.heads * config.v_head_dim * config.hidden)
    width = config.heads * config.head_dim
    return config.layers * (2 * config.hidden * width + 2 * config.hidden * config.kv_heads * config.head_dim)


def derive(config: Config) -> values.Shape:
    """What memory depends on, from the figures of a config.json."""
    moe_layers = config.layers - config.dense_layers if config.experts else 0
    expert = 3 * config.hidden * config.moe_intermediate
    routed = moe_layers * config.experts * expert
    shared = moe_layers * (config.shared_experts * expert + config.experts * config.hidden)
    dense = (config.layers - moe_layers) * 3 * config.hidden * config.intermediate
    embeddings = (1 if config.tied else 2) * config.vocab * config.hidden
    attention = _attention_params(config)
    return values.Shape(
        name=config.name,
        layers=config.layers,
        hidden=config.hidden,
        attention="mla" if config.kv_lora_rank else "gqa",
        total_params=routed + shared + dense + embeddings + attention,
        routed_expert_params=routed,
        attention_params=attention,
        embedding_params=embeddings,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        kv_lora_rank=config.kv_lora_rank,
        qk_rope_head_dim=config.qk_rope_head_dim,
        multimodal=config.multimodal,
        vocab=config.vocab,
    )


KIMI_K2 = derive(
    Config(
        "kimi-k2", layers=61, hidden=7168, vocab=163840, heads=64, intermediate=18432,
        experts=384, shared_experts=1, moe_intermediate=2048, dense_layers=1,
        q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
    )
)  # fmt: skip
KIMI_K2_VISION = dataclasses.replace(KIMI_K2, name="kimi-k2-vision", multimodal=True)
"""K2.5 and later: the same language model; its vision tower is under 1 % of the weights."""
DEEPSEEK_V3 = derive(
    Config(
        "deepseek-v3", layers=61, hidden=7168, vocab=129280, heads=128, intermediate=18432,
        experts=256, shared_experts=1, moe_intermediate=2048, dense_layers=3,
        q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
    )
)  # fmt: skip
QWEN3_CODER_480B = derive(
    Config(
        "qwen3-coder-480b", layers=62, hidden=6144, vocab=151936, heads=96, intermediate=8192,
        kv_heads=8, head_dim=128, experts=160, moe_intermediate=2560,
    )
)  # fmt: skip
LLAMA_3_8B = derive(
    Config("llama-3-8b", layers=32, hidden=4096, vocab=128256, heads=32, intermediate=14336, kv_heads=8, head_dim=128)
)
TINY_LLAMA = derive(
    Config("tiny-llama", layers=8, hidden=1024, vocab=32000, heads=16, intermediate=2816, kv_heads=4, head_dim=64)
)

_FAMILIES: tuple[tuple[re.Pattern[str], values.Shape], ...] = (
    (re.compile(r"kimi[-_]k2\.\d"), KIMI_K2_VISION),
    (re.compile(r"kimi[-_]k2([-_]|$)"), KIMI_K2),
    (re.compile(r"deepseek[-_](v3|r1)([-_.]0324|[-_.]0528|[-_.]1)?([-_]|$)(?!\d)"), DEEPSEEK_V3),
    (re.compile(r"qwen3[-_]coder[-_]480b"), QWEN3_CODER_480B),
    (re.compile(r"(meta[-_])?llama[-_]3(\.\d)?[-_]8b"), LLAMA_3_8B),
    (re.compile(r"tiny[-_]llama"), TINY_LLAMA),
)


def builtin(source: str) -> values.Shape | None:
    """The shape of the family that the last part of a source names (`hf://org/Kimi-K2.6-NVFP4`), if it is known."""
    name = source.rstrip("/").rsplit("/", 1)[-1].lower()
    if "distill" in name:
        return None
    return next((shape for pattern, shape in _FAMILIES if pattern.search(name)), None)
