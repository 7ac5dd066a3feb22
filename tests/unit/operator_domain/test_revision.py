"""Revisions: equal across releases, moved by what makes Pods differ and by nothing else."""

import hashlib
import json
from typing import Any

import pytest

from shoal_operator.domain import revision
from shoal_operator.render import engine
from shoal_testing import services
from shoal_testing.golden import Golden


def test_hashes_and_templates_are_the_golden_ones(golden: Golden) -> None:
    """A change here would roll every Pod of every user at the next operator upgrade."""
    lines = []
    for case in services.CASES:
        service = services.service(case)
        current = revision.current(service, None, None)
        templates = [
            engine.render_replica(service, current, 0, profile)[1]["spec"]["template"] for profile in service.profiles
        ]
        digest = hashlib.sha256(json.dumps(templates, sort_keys=True).encode()).hexdigest()
        lines.append(f"{case} {current.hash} render {current.render_version} template {digest}\n")
    golden.check("revisions.txt", "".join(lines))


SAME: dict[str, dict[str, Any]] = {
    "replicas": {"replicas": 7},
    "zero replicas": {"replicas": 0},
    "scaling": {"replicas": None, "scaling": {"min": 1, "max": 4}},
    "routing": {"routing": {"affinity": "Off", "slicing": "Off", "queue": {"maxRequests": 5}}},
    "objectives": {"replicas": None, "scaling": {"max": 4, "slo": {"ttft": "1s", "itl": "20ms"}}},
    "rollout": {"rollout": {"maxSurge": 2, "drainTimeout": "5m", "paused": True}},
}
MOVED: dict[str, dict[str, Any]] = {
    "model": {"model": {"source": "file:///models/other", "servedName": "tiny-llama"}},
    "context": {"model": {**services.CASES["quickstart"]["model"], "contextLength": 1024}},
    "args": {"engine": {"args": {"schedule-policy": "lpm"}}},
    "env": {"engine": {"env": [{"name": "A", "value": "b"}]}},
    "image": {"engine": {"image": "other:1"}},
    "gpus": {"hardware": [{"gpu": "B200", "gpusPerReplica": 2}]},
}


@pytest.mark.parametrize("change", SAME)
def test_count_and_policy_leave_the_revision(change: str) -> None:
    want = revision.content_hash(services.service("quickstart"))
    assert revision.content_hash(services.service("quickstart", **SAME[change])) == want


@pytest.mark.parametrize("change", MOVED)
def test_what_pods_are_made_of_moves_the_revision(change: str) -> None:
    before = revision.content_hash(services.service("quickstart"))
    assert revision.content_hash(services.service("quickstart", **MOVED[change])) != before


def test_order_of_hardware_and_spelling_of_args_do_not_matter() -> None:
    spec = services.CASES["kimi-nvfp4"]
    turned = services.service("kimi-nvfp4", hardware=list(reversed(spec["hardware"])))
    assert revision.content_hash(turned) == revision.content_hash(services.service("kimi-nvfp4"))
    spelled = [
        services.service("quickstart", engine={"args": {name: 8192}})
        for name in ("max_prefill_tokens", "max-prefill-tokens")
    ]
    assert revision.content_hash(spelled[0]) == revision.content_hash(spelled[1])


def test_rendering_stays_pinned_while_the_spec_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    service = services.service("quickstart")
    first = revision.current(service, None, None)
    monkeypatch.setattr(revision, "RENDER_VERSIONS", ("1", "2"))
    monkeypatch.setattr(revision, "LATEST_RENDER_VERSION", "2")
    assert revision.current(service, first.hash, "1").render_version == "1"
    assert revision.current(service, first.short, "1") == first
    changed = services.service("quickstart", engine={"image": "other:1"})
    assert revision.current(changed, first.hash, "1").render_version == "2"
    assert revision.current(service, first.hash, "0").render_version == "2"
    assert revision.current(service, "", "1").render_version == "2"
