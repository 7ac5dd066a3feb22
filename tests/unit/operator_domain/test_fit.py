"""The fit: shapes against published figures, bytes against hand calculations and SGLang's own defaults."""

import pytest

from shoal_operator.domain import fit, shapes, values
from shoal_operator.sglang import accept
from shoal_testing import services

GIB = 1 << 30


@pytest.mark.parametrize(
    ("shape", "want_billions"),
    [
        (shapes.KIMI_K2, 1026.4),
        (shapes.DEEPSEEK_V3, 671.0),
        (shapes.QWEN3_CODER_480B, 480.2),
        (shapes.LLAMA_3_8B, 8.03),
    ],
)
def test_parameters_are_the_published_ones(shape: values.Shape, want_billions: float) -> None:
    assert shape.total_params / 1e9 == pytest.approx(want_billions, rel=0.001)


@pytest.mark.parametrize(
    ("source", "want"),
    [
        ("hf://nvidia/Kimi-K2.6-NVFP4", "kimi-k2-vision"),
        ("hf://moonshotai/Kimi-K2-Instruct", "kimi-k2"),
        ("hf://deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"),
        ("hf://deepseek-ai/DeepSeek-V3.2", None),
        ("hf://deepseek-ai/DeepSeek-R1-Distill-Llama-8B", None),
        ("hf://Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8", "qwen3-coder-480b"),
        ("pvc://weights/llama-3-8b", "llama-3-8b"),
        ("file:///models/tiny-llama/", "tiny-llama"),
        ("hf://someone/else", None),
    ],
)
def test_builtin_shape_by_name(source: str, want: str | None) -> None:
    found = shapes.builtin(source)
    assert (found.name if found else None) == want


def test_routed_experts_of_kimi_in_nvfp4() -> None:
    """1.015e12 parameters at 0.5625 bytes: 571 GB."""
    experts = shapes.KIMI_K2.routed_expert_params
    assert experts * fit.SCALES["nvfp4"] / 1e9 == pytest.approx(571, abs=1)


def test_latent_cache_is_not_divided_by_tensor() -> None:
    for tensor in (1, 8):
        spread = values.Parallelism(tensor=tensor)
        assert fit.kv_bytes_per_token(shapes.KIMI_K2, "fp8_e4m3", spread) == 35_136
        assert fit.kv_bytes_per_token(shapes.KIMI_K2, "bf16", spread) == 70_272


def test_grouped_cache_is_divided_down_to_one_head() -> None:
    llama = shapes.LLAMA_3_8B
    assert fit.kv_bytes_per_token(llama, "bf16", values.Parallelism(tensor=1)) == 131_072
    assert fit.kv_bytes_per_token(llama, "bf16", values.Parallelism(tensor=4)) == 32_768
    assert fit.kv_bytes_per_token(llama, "bf16", values.Parallelism(tensor=16)) == 16_384
    assert fit.kv_bytes_per_token(llama, "bf16", values.Parallelism(tensor=2, pipeline=2)) == 32_768


@pytest.mark.parametrize(
    ("memory_mib", "shape", "spread", "want_fraction"),
    [
        (143_771, shapes.LLAMA_3_8B, values.Parallelism(1), 0.903),
        (183_359, shapes.LLAMA_3_8B, values.Parallelism(1), 0.854),
        (143_771, shapes.KIMI_K2, values.Parallelism(8), 0.886),
        (183_359, shapes.KIMI_K2, values.Parallelism(8), 0.844),
        (275_040, shapes.KIMI_K2, values.Parallelism(8), 0.896),
        (183_359, shapes.KIMI_K2, values.Parallelism(8, attention_data=8), 0.743),
    ],
)
def test_reserve_gives_sglangs_own_fraction(
    memory_mib: int, shape: values.Shape, spread: values.Parallelism, want_fraction: float
) -> None:
    """Against the fractions that SGLang 0.5.23 chooses without a limit on running requests."""
    pool = values.Pool("p", "G", 100, memory_mib << 20)
    reserve = fit.reserve_bytes(shape, pool, spread, 100_000, None)
    assert 1 - reserve / pool.memory_bytes == pytest.approx(want_fraction, abs=0.006)


def test_kimi_nvfp4_fits_both_blackwells() -> None:
    found = accept.accept(services.service("kimi-nvfp4"))
    assert found.accepted
    b300, b200 = found.fits
    assert b300 is not None
    assert b200 is not None
    assert 100_000 < b300.kv_tokens < 3_000_000
    assert 68 * GIB < b200.weight_bytes < 72 * GIB
    assert not b200.assumed


def test_model_too_large_is_refused_with_the_smallest_change() -> None:
    model = {**services.CASES["kimi-nvfp4"]["model"], "quantization": "fp8"}
    hardware = [{"gpu": "B200", "gpusPerReplica": 4}]
    found = accept.accept(services.service("kimi-nvfp4", model=model, hardware=hardware, speculative=None))
    assert [problem.reason for problem in found.refusals] == ["DoesNotFit"]
    assert "gpusPerReplica to 8" in found.refusals[0].message


def test_long_context_is_refused_with_a_shorter_one_or_a_smaller_cache() -> None:
    model = {"source": "pvc://w/llama-3-8b", "servedName": "l", "quantization": "bf16", "contextLength": 1_500_000}
    found = accept.accept(
        services.service("llama-pvc", model=model, parallelism={}, hardware=[{"gpu": "H200", "gpusPerReplica": 1}])
    )
    assert [problem.reason for problem in found.refusals] == ["DoesNotFit"]
    assert "kvCacheDtype to fp8_e4m3" in found.refusals[0].message


def test_assumed_format_warns_and_does_not_refuse() -> None:
    model = {"source": "hf://someone/qwen3-coder-480b", "servedName": "q"}
    found = accept.accept(services.service("quickstart", model=model, hardware=[{"gpu": "H200", "gpusPerReplica": 2}]))
    assert found.accepted
    assert [problem.reason for problem in found.warnings] == ["MayNotFit"]


@pytest.mark.parametrize(
    ("source", "want"),
    [
        ("hf://nvidia/Kimi-K2.6-NVFP4", "nvfp4"),
        ("hf://moonshotai/Kimi-K2.5", "int4"),
        ("hf://deepseek-ai/DeepSeek-V3", "fp8"),
        ("hf://x/Qwen3-Coder-480B-FP8", "fp8"),
        ("hf://x/llama-3-8b-AWQ", "int4"),
        ("hf://x/anything", "bf16"),
    ],
)
def test_format_is_read_from_the_name(source: str, want: str) -> None:
    service = services.service("quickstart", model={"source": source, "servedName": "x"})
    assert fit.weight_format(service) == want


def test_attention_data_replicates_attention_and_multiplies_the_cache() -> None:
    plain = services.service("deepseek-fp8")
    spread = services.service("deepseek-fp8", parallelism={"attentionData": 8}, speculative=None)
    one, eight = accept.accept(plain).fits[0], accept.accept(spread).fits[0]
    assert one is not None
    assert eight is not None
    assert eight.weight_bytes > one.weight_bytes
    assert eight.kv_tokens > 4 * one.kv_tokens


def test_unknown_shape_is_a_warning_and_no_figures() -> None:
    found = accept.accept(services.service("quickstart", model={"source": "hf://a/b", "servedName": "b"}))
    assert found.accepted
    assert [problem.reason for problem in found.warnings] == ["CapacityUnknown"]
    assert found.fits == (None,)


def test_given_shape_is_used() -> None:
    shape = {
        **{"layers": 32, "hiddenSize": 4096, "vocabSize": 128256, "heads": 32, "kvHeads": 8, "headDim": 128},
        "intermediateSize": 14336,
    }
    service = services.service("quickstart", model={"source": "hf://a/b", "servedName": "b", "shape": shape})
    assert service.shape is not None
    assert service.shape.total_params == shapes.LLAMA_3_8B.total_params


def test_memory_fraction_given_by_the_user_is_used() -> None:
    def kv_bytes(**args: float) -> int:
        found = accept.accept(services.service("llama-standalone", engine={"args": args}, speculative=None)).fits[0]
        assert found is not None
        return found.kv_bytes

    assert kv_bytes(**{"mem-fraction-static": 0.5}) < kv_bytes()
