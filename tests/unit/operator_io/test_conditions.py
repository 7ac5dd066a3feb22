"""Conditions, claims and the index of events: small pure pieces of the reconcilers."""

from typing import Any

from shoal_api import keys
from shoal_api.conditions import ConditionType, Reason
from shoal_api.modelservice import ModelServiceStatus
from shoal_operator.reconcile import report
from shoal_operator.reconcile.claims import Claim, Claims, conflicts
from shoal_operator.reconcile.conditions import Finding, merge
from shoal_operator.reconcile.index import Index
from shoal_operator.reconcile.outcome import Key

READY = Finding(ConditionType.READY, "True", Reason.AVAILABLE)
WAITING = Finding(ConditionType.READY, "False", Reason.STARTING, "1 of 2")


def test_transition_time_moves_with_the_status_alone() -> None:
    first, edges = merge((), [WAITING], generation=1, now="t1")
    assert [edge.finding for edge in edges] == [WAITING]
    same, edges = merge(first, [WAITING], generation=2, now="t2")
    assert (same[0].last_transition_time, same[0].observed_generation, edges) == ("t1", 2, ())
    held = Finding(ConditionType.READY, "False", Reason.NO_SPARE_GPU)
    other, edges = merge(same, [held], generation=2, now="t3")
    assert other[0].last_transition_time == "t1"
    assert [edge.finding.reason for edge in edges] == [Reason.NO_SPARE_GPU]
    good, edges = merge(other, [READY], generation=2, now="t4")
    assert good[0].last_transition_time == "t4"
    assert len(edges) == 1


def test_status_that_cannot_be_read_is_written_anew() -> None:
    item = {"metadata": {"name": "m"}, "status": {"observedGeneration": 3}}
    assert report.stored(ModelServiceStatus, item).observed_generation == 3
    item["status"] = {"observedGeneration": 3, "replicaDetails": [{"name": "m-0", "phase": "Dreaming"}]}
    assert report.stored(ModelServiceStatus, item) == ModelServiceStatus()


def test_first_word_is_an_edge_only_when_it_is_bad_or_an_acceptance() -> None:
    fine = Finding(ConditionType.DEGRADED, "False", Reason.AS_EXPECTED, good="False")
    accepted = Finding(ConditionType.ACCEPTED, "True", Reason.ACCEPTED)
    _, edges = merge((), [fine, READY, accepted], generation=1, now="t")
    assert [edge.finding for edge in edges] == [accepted]


def service(name: str, served: str, created: str, *aliases: str, **spec: Any) -> dict[str, Any]:
    return {
        "kind": "ModelService",
        "metadata": {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": created, "generation": 1},
        "spec": {"model": {"servedName": served, "aliases": list(aliases)}, **spec},
    }


def test_older_service_keeps_its_names() -> None:
    services = [
        service("young", "b", "2026-01-02T00:00:00Z", "a"),
        service("old", "a", "2026-01-01T00:00:00Z"),
        service("apart", "a", "2026-01-03T00:00:00Z", router="other"),
    ]
    assert conflicts(services, "default") == {"young": Claim("a", "old")}
    assert conflicts(services, "other") == {}
    claims = Claims()
    assert claims.of(services, "default") is claims.of(services, "default")


def pod(component: str, **status: Any) -> dict[str, Any]:
    labels = {keys.LABEL_ROUTER: "default", keys.LABEL_COMPONENT: component, keys.LABEL_SERVICE: "m"}
    if component == "router":
        del labels[keys.LABEL_SERVICE]
    meta = {"name": "p", "namespace": "ns", "uid": "p", "labels": labels}
    return {"kind": "Pod", "metadata": meta, "spec": {}, "status": status}


def test_events_concern_the_owner_and_those_that_refer() -> None:
    index = Index()
    m = service("m", "a", "", speculative={"draftModel": "d"}, hardware=[{"gpu": "B200"}])
    index.note(m, None)
    key, router = Key("ModelService", "ns", "m"), Key("Router", "ns", "default")
    assert index.concerned(m) == {key, router, Key("DraftModel", "ns", "d")}
    assert index.concerned(pod("engine")) == {key}
    assert index.concerned(pod("router")) == {router}

    def other(kind: str, name: str, namespace: str | None, **spec: Any) -> dict[str, Any]:
        meta = {"name": name, "uid": name, **({"namespace": namespace} if namespace else {})}
        return {"kind": kind, "metadata": meta, "spec": spec}

    assert key in index.concerned(other("DraftModel", "d", "ns"))
    assert key not in index.concerned(other("DraftModel", "d", "elsewhere"))
    assert key in index.concerned(other("GPUPool", "pool", None, gpu="B200"))
    assert key not in index.concerned(other("GPUPool", "pool", None, gpu="H200"))
    assert key in index.concerned(other("Router", "default", "ns"))
    index.note(m, "DELETED")
    assert key not in index.concerned(other("Router", "default", "ns"))


def test_events_that_say_nothing_new_are_dropped_but_listings_never() -> None:
    index = Index()
    item = service("m", "a", "")
    assert index.changed(item, "ADDED")
    item["status"] = {"observedGeneration": 1}
    assert not index.changed(item, "MODIFIED"), "a status of our own"
    assert index.changed(item, None), "a watch that began anew"
    item["metadata"]["generation"] = 2
    assert index.changed(item, "MODIFIED")
    assert index.changed(item, "DELETED")
    assert index.changed(pod("engine"), "ADDED")
    assert not index.changed(pod("engine"), "MODIFIED")
    assert index.changed(pod("engine", podIP="127.0.0.1"), "MODIFIED")
