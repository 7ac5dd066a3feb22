"""Every CEL rule of the CRDs, tried on the real kube-apiserver: it refuses what breaks it and takes what keeps it.

The last test compares the table with the CRDs, so that a rule without a case cannot be added.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from shoal_api import crd
from shoal_testing import objects

pytestmark = pytest.mark.apiserver

Patch = dict[str, Any]

MLA = {
    "layers": 61,
    "hiddenSize": 7168,
    "vocabSize": 163840,
    "heads": 64,
    "kvHeads": 64,
    "intermediateSize": 18432,
    "qLoraRank": 1536,
    "kvLoraRank": 512,
    "qkNopeHeadDim": 128,
    "qkRopeHeadDim": 64,
    "vHeadDim": 128,
}


@dataclass(frozen=True)
class Case:
    """One rule: where it stands, a part of its message, and spec patches that break and keep it.

    With `before`, the object exists with that patch first and is then changed.
    """

    kind: str
    path: str
    message: str
    violating: Patch
    conforming: Patch = field(default_factory=dict)
    before: Patch | None = None
    metadata: bool = False
    """The patches are of the metadata, not of the spec."""


def _service(path: str, message: str, violating: Patch, conforming: Patch, before: Patch | None = None) -> Case:
    return Case("ModelService", path, message, violating, conforming, before)


def _shape(**figures: int | None) -> Patch:
    return {"model": {"shape": {name: value for name, value in {**MLA, **figures}.items() if value is not None}}}


def _hardware(*gpus: int) -> list[Patch]:
    return [{"gpu": name, "gpusPerReplica": count} for name, count in zip(("B200", "B300", "H200"), gpus, strict=False)]


def _draft(message: str, violating: Patch, conforming: Patch) -> Case:
    return Case("DraftModel", ".spec", message, violating, conforming)


DFLASH = {"algorithm": "DFLASH"}
NGRAM = {"algorithm": "NGRAM", "source": None}

CASES = {
    "name": Case("ModelService", "", "at most 38 long", {"name": "a" * 39}, {"name": "a" * 38}, metadata=True),
    "name with a dot": Case(
        "ModelService", "", "begins with a letter", {"name": "a.b"}, {"name": "a-b"}, metadata=True
    ),
    "router name": Case("Router", "", "at most 40 in all", {"name": "a" * 41}, {"name": "a" * 40}, metadata=True),
    "replicas xor scaling": _service(
        ".spec",
        "replicas and scaling exclude each other",
        {"replicas": 2, "scaling": {"max": 3}},
        {"scaling": {"max": 3}},
    ),
    "gpus are tensor x pipeline": _service(
        ".spec",
        "gpusPerReplica must be tensor x pipeline",
        {"parallelism": {"tensor": 4}, "hardware": _hardware(4, 8)},
        {"parallelism": {"tensor": 4, "pipeline": 2}, "hardware": _hardware(8, 8)},
    ),
    "pipeline divides": _service(
        ".spec",
        "pipeline must divide gpusPerReplica",
        {"parallelism": {"pipeline": 3}},
        {"parallelism": {"pipeline": 2}},
    ),
    "attention data divides what is left": _service(
        ".spec",
        "attentionData and expert must divide gpusPerReplica / pipeline",
        {"parallelism": {"attentionData": 8, "pipeline": 2}},
        {"parallelism": {"attentionData": 4, "pipeline": 2}},
    ),
    "expert divides what is left": _service(
        ".spec",
        "attentionData and expert must divide gpusPerReplica / pipeline",
        {"parallelism": {"expert": 3}},
        {"parallelism": {"expert": 8}},
    ),
    "revision of hf only": _service(
        ".spec",
        "revision is for hf:// sources only",
        {"model": {"source": "pvc://weights/coder", "revision": "main"}},
        {"model": {"revision": "main"}},
    ),
    "aliases repeat": _service(
        ".spec",
        "aliases cannot repeat servedName",
        {"model": {"aliases": ["other", "coder"]}},
        {"model": {"aliases": ["other"]}},
    ),
    "router is immutable": _service(
        ".spec.router", "router is immutable", {"router": "other"}, {"replicas": 2}, before={"router": "default"}
    ),
    "servedName is immutable": _service(
        ".spec.model.servedName",
        "servedName is immutable",
        {"model": {"servedName": "other"}},
        {"model": {"aliases": ["other"]}},
        before={},
    ),
    "one source a variable": _service(
        ".spec.engine.env[]",
        "value and secret exclude each other",
        {"engine": {"env": [{"name": "HF_TOKEN", "value": "x", "secret": {"name": "hub", "key": "token"}}]}},
        {"engine": {"env": [{"name": "HF_TOKEN", "secret": {"name": "hub", "key": "token"}}]}},
    ),
    "mla dimensions": _service(".spec.model.shape", "kvLoraRank (MLA) needs", _shape(qkRopeHeadDim=None), _shape()),
    "head dimension": _service(
        ".spec.model.shape", "headDim is needed without MLA", _shape(kvLoraRank=0), _shape(kvLoraRank=0, headDim=128)
    ),
    "kv heads": _service(".spec.model.shape", "kvHeads cannot exceed heads", _shape(kvHeads=65), _shape(kvHeads=8)),
    "experts": _service(
        ".spec.model.shape",
        "experts need moeIntermediateSize",
        _shape(experts=384),
        _shape(experts=384, moeIntermediateSize=2048),
    ),
    "dense layers": _service(
        ".spec.model.shape", "denseLayers cannot exceed layers", _shape(denseLayers=62), _shape(denseLayers=1)
    ),
    "attention data divides tensor": _service(
        ".spec.parallelism",
        "attentionData must divide tensor",
        {"parallelism": {"tensor": 8, "attentionData": 3}},
        {"parallelism": {"tensor": 8, "attentionData": 8}},
    ),
    "expert divides tensor": _service(
        ".spec.parallelism",
        "expert must divide tensor",
        {"parallelism": {"tensor": 8, "expert": 16}},
        {"parallelism": {"tensor": 8, "expert": 8}},
    ),
    "min over max": _service(
        ".spec.scaling", "min cannot exceed max", {"scaling": {"min": 4, "max": 3}}, {"scaling": {"min": 3, "max": 3}}
    ),
    "no ttft": _service(
        ".spec.scaling.slo.ttft",
        "must be more than zero",
        {"scaling": {"max": 3, "slo": {"ttft": "0s"}}},
        {"scaling": {"max": 3, "slo": {"ttft": "1m30s"}}},
    ),
    "no itl": _service(
        ".spec.scaling.slo.itl",
        "must be more than zero",
        {"scaling": {"max": 3, "slo": {"itl": "0ms"}}},
        {"scaling": {"max": 3, "slo": {"itl": "40ms"}}},
    ),
    "no window": _service(
        ".spec.scaling.behavior.scaleDownWindow",
        "must be more than zero",
        {"scaling": {"max": 3, "behavior": {"scaleDownWindow": "0m"}}},
        {"scaling": {"max": 3, "behavior": {"scaleDownWindow": "0.5s"}}},
    ),
    "no queue ttl": _service(
        ".spec.routing.queue.ttl",
        "must be more than zero",
        {"routing": {"queue": {"ttl": "0s"}}},
        {"routing": {"queue": {"ttl": "1s", "noReplicaTTL": "0s"}}},
    ),
    "rollout that cannot move": _service(
        ".spec.rollout",
        "maxSurge and maxUnavailable cannot both be 0",
        {"rollout": {"maxSurge": 0}},
        {"rollout": {"maxSurge": 0, "maxUnavailable": 1}},
    ),
    "gpu is immutable": Case(
        "GPUPool", ".spec.gpu", "gpu is immutable", {"gpu": "B300"}, {"costPerHour": 3.5}, before={}
    ),
    "memory of nothing": Case(
        "GPUPool", ".spec.memory", "must be more than zero", {"memory": 0}, {"memory": 192200000000}
    ),
    "toleration with a value too many": Case(
        "GPUPool",
        ".spec.tolerations[]",
        "operator Exists has no value",
        {"tolerations": [{"key": "gpu", "operator": "Exists", "value": "x"}]},
        {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
    ),
    "toleration without a key": Case(
        "GPUPool",
        ".spec.tolerations[]",
        "without key needs operator Exists",
        {"tolerations": [{"value": "x"}]},
        {"tolerations": [{"operator": "Exists"}]},
    ),
    "draft without source": _draft("EAGLE3, DFLASH and STANDALONE need source", {"source": None}, {}),
    "draft with a source too many": _draft(
        "NEXTN and NGRAM load no draft", {"algorithm": "NGRAM"}, {"algorithm": "NEXTN", "source": None}
    ),
    "draft revision of hf only": _draft(
        "revision is for hf:// sources only",
        {"source": "file:///drafts/coder", "revision": "main"},
        {"revision": "main"},
    ),
    "draft block size": _draft(
        "blockSize is for DFLASH only", {"config": {"blockSize": 8}}, {**DFLASH, "config": {"blockSize": 8}}
    ),
    "dflash steps": _draft(
        "DFLASH takes blockSize",
        {**DFLASH, "config": {"steps": 3, "topk": 1, "draftTokens": 4}},
        {**DFLASH, "config": {"blockSize": 16}},
    ),
    "ngram steps": _draft(
        "NGRAM takes draftTokens", {**NGRAM, "config": {"steps": 3}}, {**NGRAM, "config": {"draftTokens": 12}}
    ),
    "draft depth in part": _draft(
        "given together or not at all",
        {"config": {"steps": 3}},
        {"config": {"steps": 3, "topk": 4, "draftTokens": 16}},
    ),
    "draft chain": _draft(
        "draftTokens must be steps + 1",
        {"config": {"steps": 3, "topk": 1, "draftTokens": 5}},
        {"config": {"steps": 3, "topk": 1, "draftTokens": 4}},
    ),
}


def _object(case: Case, patch: Patch) -> objects.Object:
    return objects.patched(objects.smallest(case.kind), {"metadata" if case.metadata else "spec": patch})


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_rule(kinds_api: objects.Api, case: Case) -> None:
    if case.before is None:
        refused = kinds_api.create(_object(case, case.violating), dry_run=True)
        taken = kinds_api.create(_object(case, case.conforming), dry_run=True)
    else:
        created = kinds_api.create(_object(case, case.before))
        assert created.status_code == 201, created.text
        try:
            refused = kinds_api.replace(objects.patched(created.json(), {"spec": case.violating}), dry_run=True)
            taken = kinds_api.replace(objects.patched(created.json(), {"spec": case.conforming}), dry_run=True)
        finally:
            kinds_api.delete(created.json())
    assert refused.status_code == 422
    said = refused.json()["message"]
    assert case.message in said
    assert taken.is_success, taken.text


def _rules(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield path, rule["message"]
    for name, child in schema.get("properties", {}).items():
        yield from _rules(child, f"{path}.{name}")
    if "items" in schema:
        yield from _rules(schema["items"], f"{path}[]")


def test_every_rule_has_a_case() -> None:
    unmatched = [
        (kind.kind, path, message)
        for kind in crd.KINDS
        for path, message in _rules(crd.schema_of(kind), "")
        if not any(case.kind == kind.kind and case.path == path and case.message in message for case in CASES.values())
    ]
    assert unmatched == []


def test_every_case_has_a_rule() -> None:
    rules = {kind.kind: list(_rules(crd.schema_of(kind), "")) for kind in crd.KINDS}
    stale = [
        name
        for name, case in CASES.items()
        if not any(path == case.path and case.message in message for path, message in rules[case.kind])
    ]
    assert stale == []
