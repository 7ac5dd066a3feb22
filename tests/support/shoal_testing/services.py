"""Resolved services for tests of the operator's pure half: specs as users write them, pools, drafts, and the cases that
golden files are kept for.
"""

from collections.abc import Mapping
from typing import Any

from shoal_api.draftmodel import DraftModelSpec
from shoal_api.gpupool import GPUPoolSpec
from shoal_api.modelservice import ModelServiceSpec
from shoal_operator.domain import resolve, values

OWNER = values.Owner("shoal.dev/v1alpha1", "ModelService", "m", "5f6f9a3e-0000-4000-8000-000000000001")


def pool(gpu: str, architecture: str, memory: str, **more: Any) -> GPUPoolSpec:
    return GPUPoolSpec.model_validate(
        {
            "gpu": gpu,
            "architecture": architecture,
            "memory": memory,
            "gpusPerNode": 8,
            "nodeSelector": {"nvidia.com/gpu.product": gpu},
            **more,
        }
    )


POOLS: Mapping[str, GPUPoolSpec] = {
    "b200": pool("B200", "sm100", "180Gi", costPerHour=4.0),
    "b300": pool("B300", "sm103", "268Gi", costPerHour=6.0),
    "h200": pool(
        "H200",
        "sm90",
        "141Gi",
        costPerHour=2.5,
        tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    ),
}
DRAFTS: Mapping[str, DraftModelSpec] = {
    "kimi-eagle": DraftModelSpec.model_validate(
        {
            "target": {"source": "hf://nvidia/Kimi-K2.6-NVFP4"},
            "algorithm": "EAGLE3",
            "source": "hf://lightseekorg/kimi-k2.6-eagle3",
            "config": {"steps": 3, "topk": 1, "draftTokens": 4},
        }
    ),
    "kimi-dflash": DraftModelSpec.model_validate(
        {
            "target": {"source": "hf://nvidia/Kimi-K2.6-NVFP4"},
            "algorithm": "DFLASH",
            "source": "pvc://drafts/kimi-dflash",
            "config": {"blockSize": 8},
        }
    ),
    "tiny-ngram": DraftModelSpec.model_validate(
        {
            "target": {"source": "file:///models/tiny-llama"},
            "algorithm": "NGRAM",
            "config": {"draftTokens": 12},
        }
    ),
    "deepseek-nextn": DraftModelSpec.model_validate(
        {"target": {"source": "hf://deepseek-ai/DeepSeek-V3"}, "algorithm": "NEXTN"}
    ),
    "llama-standalone": DraftModelSpec.model_validate(
        {
            "target": {"source": "hf://meta-llama/Llama-3.1-8B-Instruct"},
            "algorithm": "STANDALONE",
            "source": "hf://meta-llama/Llama-3.2-1B-Instruct",
            "revision": "main",
            "config": {"steps": 4, "topk": 1, "draftTokens": 5},
        }
    ),
}

_KIMI_MODEL = {
    "source": "hf://nvidia/Kimi-K2.6-NVFP4",
    "revision": "4f2c1d0",
    "servedName": "kimi-k2.6",
    "aliases": ["moonshotai/kimi-k2.6"],
    "quantization": "nvfp4",
    "kvCacheDtype": "fp8_e4m3",
    "contextLength": 262144,
}
_KIMI_ARGS = {"trust-remote-code": True, "reasoning-parser": "kimi_k2", "tool-call-parser": "kimi_k2"}

CASES: Mapping[str, dict[str, Any]] = {
    "quickstart": {
        "model": {"source": "file:///models/tiny-llama", "servedName": "tiny-llama"},
        "hardware": [{"gpu": "B200", "gpusPerReplica": 1}],
        "replicas": 2,
    },
    "kimi-nvfp4": {
        "model": _KIMI_MODEL,
        "engine": {"args": _KIMI_ARGS},
        "hardware": [{"gpu": "B300", "gpusPerReplica": 4}, {"gpu": "B200", "gpusPerReplica": 8}],
        "speculative": {"draftModel": "kimi-eagle"},
        "scaling": {"min": 2, "max": 16, "slo": {"ttft": "5s", "itl": "40ms"}},
    },
    "kimi-dflash-attention-data": {
        "model": _KIMI_MODEL,
        "engine": {"args": {**_KIMI_ARGS, "max-running-requests": 128}, "env": [{"name": "HF_HOME", "value": "/hf"}]},
        "hardware": [{"gpu": "B200", "gpusPerReplica": 8, "args": {"cuda-graph-max-bs-decode": 128}}],
        "parallelism": {"tensor": 8, "attentionData": 8, "expert": 8},
        "speculative": {"draftModel": "kimi-dflash"},
    },
    "deepseek-fp8": {
        "model": {
            "source": "hf://deepseek-ai/DeepSeek-V3",
            "servedName": "deepseek-v3",
            "quantization": "fp8",
            "contextLength": 131072,
        },
        "hardware": [{"gpu": "H200", "gpusPerReplica": 8}],
        "speculative": {"draftModel": "deepseek-nextn"},
    },
    "llama-pvc": {
        "model": {"source": "pvc://weights/llama-3-8b", "servedName": "llama", "quantization": "bf16"},
        "hardware": [{"gpu": "H200", "gpusPerReplica": 2}],
        "parallelism": {"pipeline": 2},
        "replicas": 0,
    },
    "llama-standalone": {
        "model": {"source": "hf://meta-llama/Llama-3.1-8B-Instruct", "servedName": "meta/llama-3.1-8b"},
        "engine": {"image": "registry.example/sglang@sha256:0123", "args": {"schedule-policy": "lpm"}},
        "hardware": [{"gpu": "H200", "gpusPerReplica": 1}],
        "speculative": {"draftModel": "llama-standalone"},
    },
    "tiny-ngram": {
        "model": {"source": "file:///models/tiny-llama", "servedName": "tiny-llama", "contextLength": 16384},
        "hardware": [{"gpu": "H200", "gpusPerReplica": 1}],
        "speculative": {"draftModel": "tiny-ngram"},
    },
    "s3-unchecked": {
        "model": {"source": "s3://bucket/qwen3-coder-480b-fp8", "servedName": "qwen"},
        "engine": {"version": "0.9.9", "unchecked": True, "args": {"brand-new-flag": 3, "switch": True}},
        "hardware": [{"gpu": "B300", "gpusPerReplica": 4}],
    },
}
"""Specs that golden files are kept for: command lines, manifests and revision hashes."""


def resolution(spec: Mapping[str, Any], name: str = "m") -> resolve.Resolution:
    """What a spec resolves to against POOLS and DRAFTS."""
    return resolve.resolve_service(name, "team", ModelServiceSpec.model_validate(spec), POOLS, DRAFTS)


def service(case: str, name: str = "m", **changes: Any) -> values.Service:
    """A resolved case; `changes` replace top-level fields of its spec."""
    found = resolution({**CASES[case], **changes}, name)
    assert found.service is not None, found.problems
    return found.service
