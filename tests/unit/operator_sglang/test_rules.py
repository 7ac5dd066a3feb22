"""SGLang's cross-flag rules: each one broken by one example, and every golden case keeps them all."""

from collections.abc import Mapping
from typing import Any

import pytest

from shoal_operator.sglang import accept, rules
from shoal_testing import services

BROKEN: Mapping[str, tuple[str, dict[str, Any], str]] = {
    "limits_below_one": ("quickstart", {"engine": {"args": {"max-running-requests": 0}}}, "at least 1"),
    "chunk_not_in_pages": ("quickstart", {"engine": {"args": {"chunked-prefill-size": 1000}}}, "use 960"),
    "priority_without_policy": (
        "quickstart",
        {"engine": {"args": {"enable-priority-scheduling": True, "schedule-policy": "lpm"}}},
        "fcfs or lof",
    ),
    "retraction_without_priority": ("quickstart", {"engine": {"args": {"retraction-policy": "priority"}}}, "needs"),
    "kv_dtype_against_backend": (
        "quickstart",
        {
            "engine": {"args": {"attention-backend": "trtllm_mla"}},
            "model": {**services.CASES["quickstart"]["model"], "kvCacheDtype": "fp8_e5m2"},
        },
        "has no fp8_e5m2",
    ),
    "nvfp4_kv_exclusion": (
        "quickstart",
        {
            "engine": {"args": {"enable-hierarchical-cache": True}},
            "model": {**services.CASES["quickstart"]["model"], "kvCacheDtype": "nvfp4"},
        },
        "fp8_e4m3",
    ),
    "hicache_without_radix": (
        "quickstart",
        {"engine": {"args": {"enable-hierarchical-cache": True, "disable-radix-cache": True}}},
        "radix cache",
    ),
    "expert_against_all_to_all": ("deepseek-fp8", {"engine": {"args": {"moe-a2a-backend": "deepep"}}}, "expert 8"),
    "expert_against_moe_data": (
        "deepseek-fp8",
        {"engine": {"args": {"moe-dp-size": 4}}, "parallelism": {"expert": 4}},
        "is not tensor 8",
    ),
    "lm_head_without_attention_data": (
        "quickstart",
        {"engine": {"args": {"enable-dp-lm-head": True}}},
        "attentionData",
    ),
    "speculation_over_pipeline": ("deepseek-fp8", {"parallelism": {"pipeline": 2}}, "pipeline 1"),
    "speculation_over_attention_data": (
        "tiny-ngram",
        {"hardware": [{"gpu": "H200", "gpusPerReplica": 2}], "parallelism": {"attentionData": 2}},
        "attentionData 1",
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_rule_is_seen_broken(rule: str) -> None:
    case, changes, want = BROKEN[rule]
    found = accept.accept(services.service(case, **changes))
    assert [problem.reason for problem in found.refusals] == ["EngineArgsInvalid"], found.refusals
    assert want in found.refusals[0].message


def test_tree_draft_needs_a_backend() -> None:
    service = services.service("kimi-nvfp4")
    flags = {"speculative-eagle-topk": 4, "page-size": 64}
    context = rules.Context(service, service.profiles[0], flags)
    assert "topk" in str(rules.tree_draft_on_pages(context))
    assert (
        rules.tree_draft_on_pages(rules.Context(service, service.profiles[0], {**flags, "attention-backend": "fa3"}))
        is None
    )


def test_every_rule_has_an_example() -> None:
    assert {rule.__name__ for rule in rules.RULES} == {*BROKEN, "tree_draft_on_pages"}


@pytest.mark.parametrize("case", services.CASES)
def test_golden_cases_keep_the_rules(case: str) -> None:
    found = accept.accept(services.service(case))
    assert found.refusals == ()
