"""The kinds on the real kube-apiserver: defaults, strict decoding, subresources and what `kubectl get` shows."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from shoal_api import crd, draftmodel, gpupool, modelservice, router
from shoal_testing import objects
from shoal_testing.apiserver import Tool

pytestmark = pytest.mark.apiserver

NOON = "2026-01-01T12:00:00Z"
MODELS = {
    "ModelService": modelservice.ModelService,
    "GPUPool": gpupool.GPUPool,
    "Router": router.Router,
    "DraftModel": draftmodel.DraftModel,
}
REFUSED = {
    "unknown field": ({"replica": 2}, 'unknown field "spec.replica"'),
    "unknown field deep down": (
        {"routing": {"queue": {"maxRequest": 1}}},
        'unknown field "spec.routing.queue.maxRequest"',
    ),
    "wrong type": ({"replicas": "two"}, "spec.replicas"),
    "negative": ({"replicas": -1}, "spec.replicas: Invalid value: -1"),
    "enum": ({"model": {"quantization": "fp4"}}, 'Unsupported value: "fp4"'),
    "colon in the name": ({"model": {"servedName": "a:b"}}, "spec.model.servedName"),
    "source without scheme": ({"model": {"source": "acme/coder"}}, "spec.model.source"),
    "no hardware": ({"hardware": []}, "spec.hardware"),
    "hardware twice": ({"hardware": [{"gpu": "B200", "gpusPerReplica": 8}] * 2}, "Duplicate value"),
    "duration without unit": ({"rollout": {"drainTimeout": "30"}}, "spec.rollout.drainTimeout"),
    "quantity": ({"routing": {"queue": {"maxBytes": "1GiB"}}}, "spec.routing.queue.maxBytes"),
    "slicing": ({"routing": {"slicing": "On"}}, 'spec.routing.slicing: Unsupported value: "On"'),
    "Off without quotes, which is false": ({"routing": {"slicing": False}}, "spec.routing.slicing: Unsupported value"),
    "utilization": ({"scaling": {"max": 2, "targetUtilization": 1.5}}, "spec.scaling.targetUtilization"),
}


@pytest.fixture
def service(kinds_api: objects.Api) -> Iterator[objects.Object]:
    """A ModelService that exists, with two replicas by hand."""
    document = objects.patched(objects.smallest("ModelService", f"m-{uuid.uuid4().hex[:8]}"), {"spec": {"replicas": 2}})
    created = kinds_api.create(document)
    assert created.status_code == 201, created.text
    try:
        yield created.json()
    finally:
        kinds_api.delete(document)


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_apply_refuses(kinds_kubectl: Tool, case: tuple[dict[str, Any], str]) -> None:
    patch, want = case
    document = objects.patched(objects.smallest("ModelService"), {"spec": patch})
    done = kinds_kubectl("apply", "-f", "-", stdin=yaml.safe_dump(document), check=False)
    assert done.returncode != 0
    assert want in done.stderr


@pytest.mark.parametrize("kind", MODELS)
def test_defaults_are_the_models_own(kinds_api: objects.Api, kind: str) -> None:
    sent = objects.smallest(kind)
    stored = kinds_api.create(sent, dry_run=True).json()
    assert MODELS[kind].model_validate(stored).spec == MODELS[kind].model_validate(sent).spec


def test_replicas_has_no_default_that_would_exclude_scaling(kinds_api: objects.Api) -> None:
    stored = kinds_api.create(objects.smallest("ModelService"), dry_run=True).json()
    assert "replicas" not in stored["spec"]


def test_argument_values_keep_their_types(kinds_api: objects.Api) -> None:
    args = {"trust-remote-code": True, "mem-fraction-static": 0.8, "cuda-graph-bs": [1, 2], "dtype": "bfloat16"}
    document = objects.patched(objects.smallest("ModelService"), {"spec": {"engine": {"args": args}}})
    stored = kinds_api.create(document, dry_run=True).json()
    assert stored["spec"]["engine"]["args"] == args
    assert modelservice.ModelService.model_validate(stored).spec.engine.args == {**args, "cuda-graph-bs": (1, 2)}


def test_scale_sets_the_count(kinds_kubectl: Tool, service: objects.Object, kinds_api: objects.Api) -> None:
    kinds_kubectl("scale", f"msvc/{service['metadata']['name']}", "--replicas=5")
    assert kinds_api.read(service).json()["spec"]["replicas"] == 5


def test_scale_to_zero_is_a_count(kinds_kubectl: Tool, service: objects.Object, kinds_api: objects.Api) -> None:
    kinds_kubectl("scale", f"msvc/{service['metadata']['name']}", "--replicas=0")
    assert kinds_api.read(service).json()["spec"]["replicas"] == 0


def test_scale_sets_the_count_where_none_was_given(
    kinds_kubectl: Tool, service: objects.Object, kinds_api: objects.Api
) -> None:
    kinds_api.patch(service, {"spec": {"replicas": None}})
    kinds_kubectl("scale", f"msvc/{service['metadata']['name']}", "--replicas=3")
    assert kinds_api.read(service).json()["spec"]["replicas"] == 3


def test_scale_is_refused_where_scaling_owns_the_count(
    kinds_kubectl: Tool, service: objects.Object, kinds_api: objects.Api
) -> None:
    kinds_api.patch(service, {"spec": {"replicas": None, "scaling": {"max": 4}}})
    done = kinds_kubectl("scale", f"msvc/{service['metadata']['name']}", "--replicas=3", check=False)
    assert done.returncode != 0
    assert "replicas and scaling exclude each other" in done.stderr
    assert "replicas" not in kinds_api.read(service).json()["spec"]


def test_scale_reads_status(service: objects.Object, kinds_api: objects.Api) -> None:
    status = {"replicas": {"desired": 2, "ready": 1}, "selector": "shoal.dev/service=m"}
    kinds_api.patch(service, {"status": status}, subresource="/status")
    scale = kinds_api.read(service, subresource="/scale").json()
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 1, "selector": "shoal.dev/service=m"}


def test_status_is_written_apart(service: objects.Object, kinds_api: objects.Api) -> None:
    answer = kinds_api.patch(service, {"spec": {"replicas": 9}, "status": {"url": "http://x"}}, subresource="/status")
    assert answer.json()["spec"]["replicas"] == 2
    assert answer.json()["status"] == {"url": "http://x"}
    answer = kinds_api.patch(service, {"status": {"url": "http://y"}})
    assert answer.json()["status"] == {"url": "http://x"}


def test_get_shows_the_columns(kinds_kubectl: Tool, service: objects.Object, kinds_api: objects.Api) -> None:
    name = service["metadata"]["name"]
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "RollingOut",
        "message": "1 of 2 replaced",
        "lastTransitionTime": NOON,
    }
    status = {
        "currentRevision": "0a1b2c3d",
        "replicas": {"desired": 2, "ready": 1, "summary": "1/2"},
        "conditions": [condition],
    }
    assert kinds_api.patch(service, {"status": status}, subresource="/status").is_success
    header, row = kinds_kubectl("get", "msvc", name).stdout.splitlines()
    assert header.split() == ["NAME", "READY", "REVISION", "REPLICAS", "REASON", "AGE"]
    assert row.split()[:5] == [name, "False", "0a1b2c3d", "1/2", "RollingOut"]
    wide = kinds_kubectl("get", "msvc", name, "-o", "wide").stdout
    assert "1 of 2 replaced" in wide
    assert "coder" in wide


def test_category_lists_every_namespaced_kind(kinds_kubectl: Tool, service: objects.Object) -> None:
    assert f"modelservice.shoal.dev/{service['metadata']['name']}" in kinds_kubectl("get", "shoal", "-o", "name").stdout
    listed = kinds_kubectl("api-resources", "--categories=shoal", "-o", "name").stdout.split()
    assert sorted(listed) == sorted(kind.name for kind in crd.KINDS)


def test_whole_status_is_taken(service: objects.Object, kinds_api: objects.Api) -> None:
    """Every status field that the models have is in the schema: nothing is pruned."""
    decision = {
        "time": NOON,
        "from": 2,
        "to": 3,
        "reason": "Backlog",
        "inputs": {"queued_work_s": 8.5},
    }
    status = modelservice.ModelServiceStatus.model_validate(
        {
            "url": "http://shoal-router-default.shoal.svc:8080",
            "currentRevision": "0a1b2c3d",
            "replicas": {"desired": 2, "ready": 1, "pending": 1, "summary": "1/2"},
            "replicaDetails": [
                {"name": "m-0a1b2c3d-0", "phase": "Draining", "draining": {"streams": 2, "oldest": "5s"}}
            ],
            "scaling": {"desired": 3, "reason": "Backlog", "history": [decision]},
            "rollout": {
                "step": "surge 1",
                "hold": {"gate": "Budget", "reason": "NoSpareGPU", "since": NOON},
                "lastFailure": {"replica": "m-0a1b2c3d-0", "time": NOON, "exitCode": 137},
            },
            "capacity": {"weightsPerGpu": "75Gi", "kvTokens": 4000000, "source": "Estimated"},
            "performance": {"ttft": {"p50": "0.4s", "p99": "2s"}, "cacheHit": 0.95, "tokensPerGPUPerMinute": 1e6},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Available", "lastTransitionTime": NOON}],
        }
    ).as_object()
    answer = kinds_api.patch(service, {"status": status}, subresource="/status")
    assert answer.is_success, answer.text
    assert answer.json()["status"] == status


def test_conditions_of_two_writers_do_not_undo_each_other(
    kinds_kubectl: Tool, service: objects.Object, kinds_api: objects.Api
) -> None:
    for writer, type_ in (("shoal", "Ready"), ("other", "Audited")):
        document = {
            **{key: service[key] for key in ("apiVersion", "kind")},
            "metadata": {"name": service["metadata"]["name"]},
            "status": {
                "conditions": [
                    {
                        "type": type_,
                        "status": "True",
                        "reason": "Available",
                        "lastTransitionTime": NOON,
                    }
                ]
            },
        }
        kinds_kubectl(
            "apply",
            "--server-side",
            "--subresource=status",
            f"--field-manager={writer}",
            "-f",
            "-",
            stdin=yaml.safe_dump(document),
        )
    assert [one["type"] for one in kinds_api.read(service).json()["status"]["conditions"]] == ["Ready", "Audited"]
