"""Checks and resolution: each refusal and warning by one spec, with the field and the fix."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from shoal_operator.domain import checks, resolve
from shoal_operator.sglang import accept
from shoal_testing import services


def kimi(**model: Any) -> dict[str, Any]:
    return {**services.CASES["kimi-nvfp4"]["model"], **model}


def llama(**model: Any) -> dict[str, Any]:
    return {**services.CASES["llama-standalone"]["model"], **model}


REFUSED: Mapping[str, tuple[str, dict[str, Any], str, str]] = {
    "draft for another target": (
        "kimi-nvfp4",
        {"speculative": {"draftModel": "deepseek-nextn"}},
        "DraftModelMismatch",
        "was made for hf://deepseek-ai/DeepSeek-V3",
    ),
    "replica wider than a node": (
        "quickstart",
        {"hardware": [{"gpu": "B200", "gpusPerReplica": 16}]},
        "HardwareUnsupported",
        "set gpusPerReplica to 8 or less",
    ),
    "nvfp4 cache below Blackwell": (
        "llama-standalone",
        {"model": llama(kvCacheDtype="nvfp4")},
        "HardwareUnsupported",
        "set model.kvCacheDtype to fp8_e4m3",
    ),
    "nvfp4 cache for a latent": (
        "kimi-nvfp4",
        {"model": kimi(kvCacheDtype="nvfp4")},
        "HardwareUnsupported",
        "use fp8_e4m3",
    ),
    "attention data does not divide": (
        "deepseek-fp8",
        {"parallelism": {"attentionData": 3}, "speculative": None},
        "InvalidSpec",
        "does not divide tensor 8",
    ),
    "gpus are not the parallelism": (
        "deepseek-fp8",
        {"parallelism": {"tensor": 4}},
        "InvalidSpec",
        "leave parallelism.tensor out",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_reason_and_fix(case: str) -> None:
    name, changes, reason, want = REFUSED[case]
    found = accept.accept(services.service(name, **changes))
    assert {problem.reason for problem in found.refusals} == {reason}
    assert want in found.refusals[0].message
    assert not found.accepted


def test_four_bit_weights_below_blackwell_warn() -> None:
    found = accept.accept(
        services.service("kimi-nvfp4", hardware=[{"gpu": "H200", "gpusPerReplica": 8}], speculative=None)
    )
    assert found.accepted
    assert [problem.reason for problem in found.warnings] == ["WeightOnlyQuantization"]


def test_draft_of_another_revision_or_engine() -> None:
    service = services.service("kimi-nvfp4")
    assert service.draft is not None
    assert checks.draft_for_another_revision(service) is None
    moved = dataclasses.replace(service, draft=dataclasses.replace(service.draft, target_revision="other"))
    assert checks.draft_for_another_revision(moved) is not None
    older = dataclasses.replace(service, draft=dataclasses.replace(service.draft, engine_versions=("0.5.20",)))
    problem = checks.draft_for_another_engine(older)
    assert problem is not None
    assert "0.5.20" in problem.message


def test_nextn_without_its_layer() -> None:
    service = services.service("kimi-nvfp4")
    assert service.draft is not None
    nextn = dataclasses.replace(service, draft=dataclasses.replace(service.draft, algorithm="NEXTN", source=""))
    assert checks.nextn_layer_missing(nextn) is not None
    assert checks.nextn_layer_missing(services.service("deepseek-fp8")) is None


def test_missing_pool_and_draft_are_problems_with_the_fix() -> None:
    spec = {**services.CASES["quickstart"], "hardware": [{"gpu": "A100", "gpusPerReplica": 1}]}
    found = services.resolution({**spec, "speculative": {"draftModel": "nobody"}})
    assert found.service is None
    assert [problem.reason for problem in found.problems] == ["GPUPoolMissing", "DraftModelMissing"]
    assert "B200, B300, H200" in found.problems[0].message


def test_gpu_without_pool_is_left_out_while_another_has_one() -> None:
    hardware = [{"gpu": "A100", "gpusPerReplica": 1}, {"gpu": "B200", "gpusPerReplica": 1}]
    service = services.service("quickstart", hardware=hardware)
    assert [profile.gpu for profile in service.profiles] == ["B200"]


def test_defaults() -> None:
    service = services.service("deepseek-fp8")
    assert service.replicas == 1
    assert service.engine.image == "lmsysorg/sglang:v0.5.23"
    assert service.profiles[0].parallelism.tensor == 8
    assert service.queue.ttl_s == 60.0
    assert service.rollout.drain_timeout_s == 1800.0
    assert services.service("llama-pvc").replicas == 0
    scaled = services.service("kimi-nvfp4")
    assert scaled.replicas is None
    assert scaled.scaling is not None
    assert scaled.scaling.itl_slo_s == pytest.approx(0.04)


def test_timing_is_the_pools_or_the_builtin_or_none() -> None:
    kimi_, tiny = services.service("kimi-nvfp4"), services.service("quickstart")
    assert kimi_.profiles[0].pool.timing is not None
    assert kimi_.profiles[0].pool.timing.b_s == pytest.approx(1.55e-5)
    assert tiny.profiles[0].pool.timing is None
    given = {"a": 1.0, "b": 2.0, "c": 0.0, "alpha": 0.0, "beta": 0.0, "gamma": 0.0}
    own = resolve.resolve_pool("p", services.pool("B200", "sm100", "180Gi", timing=given))
    assert own.timing is not None
    assert own.timing.b_s == 2.0
