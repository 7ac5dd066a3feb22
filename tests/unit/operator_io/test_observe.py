"""From StatefulSets and Pods to replica groups."""

from typing import Any

import pytest

from shoal_api import keys
from shoal_operator.reconcile import observe


def pod(replica: str = "m-abc-0", **status: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {
            "name": f"{replica}-0",
            "uid": f"uid-{replica}",
            "namespace": "ns",
            "labels": {keys.LABEL_REPLICA: replica},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"nodeName": "n1"},
        "status": status,
    }


def engine(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": "sidecar", "restartCount": 9}, {"name": keys.ENGINE_CONTAINER, **fields}]


def test_pod_without_status_is_nothing_yet() -> None:
    seen = observe.pod_of(pod())
    assert not seen.ready
    assert not seen.started
    assert seen.failing is None
    assert seen.ip is None


def test_unschedulable_keeps_the_schedulers_words() -> None:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: gpu"}
    assert observe.pod_of(pod(conditions=[said])).unschedulable == "0/3 nodes: gpu"


@pytest.mark.parametrize(
    ("container", "want"),
    [
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, None),
        ({"state": {"waiting": {"reason": "ImagePullBackOff"}}}, "ImagePullBackOff"),
        (
            {
                "restartCount": 2,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            },
            "CrashLoopBackOff: exit 137 OOMKilled",
        ),
        (
            {
                "restartCount": 3,
                "state": {"running": {}},
                "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
            },
            "3 restarts: exit 1",
        ),
        ({"restartCount": 1, "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1}}}, None),
    ],
)
def test_failing(container: dict[str, Any], want: str | None) -> None:
    assert observe.pod_of(pod(containerStatuses=engine(**container))).failing == want


def test_only_the_engine_container_counts() -> None:
    assert observe.pod_of(pod(containerStatuses=engine(restartCount=1))).restarts == 1


def stateful_set(name: str, owner: str = "owner", **annotations: str) -> dict[str, Any]:
    return {
        "kind": "StatefulSet",
        "metadata": {
            "name": name,
            "uid": f"set-{name}",
            "labels": {keys.LABEL_REVISION: "abc", keys.LABEL_GPU: "B200"},
            "annotations": annotations,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"uid": owner, "controller": True}],
        },
    }


def test_groups_join_sets_and_pods_and_leave_out_what_is_not_owned() -> None:
    sets = [
        stateful_set("m-abc-10"),
        stateful_set("m-abc-2", **{keys.ANNOTATION_DRAIN_SINCE: "2026-01-01T00:01:00Z"}),
        stateful_set("m-abc-3", owner="another"),
        stateful_set("by-hand"),
    ]
    found = observe.groups_of(sets, [pod("m-abc-2"), pod("m-abc-3")], "owner")
    assert [group.number for group in found] == [2, 10]
    assert found[0].pod is not None
    assert found[0].drain_since_s == found[0].created_at_s + 60
    assert found[1].pod is None


def test_of_two_pods_of_one_replica_the_living_one_counts() -> None:
    old = pod("m-abc-0")
    old["metadata"] |= {"uid": "old", "deletionTimestamp": "2026-01-01T00:01:00Z"}
    found = observe.groups_of([stateful_set("m-abc-0")], [old, pod("m-abc-0")], "owner")
    assert found[0].pod is not None
    assert found[0].pod.uid == "uid-m-abc-0"


def test_router_pods_are_those_that_run_ready_or_not() -> None:
    def router(name: str, phase: str, ip: str | None) -> dict[str, Any]:
        return {
            "metadata": {"name": name, "namespace": "ns", "labels": {keys.LABEL_ROUTER: "default"}},
            "status": {"phase": phase, "podIP": ip},
        }

    items = [router("a", "Running", "127.0.1.1"), router("b", "Pending", None), router("c", "Succeeded", "127.0.1.2")]
    assert [one.pod for one in observe.router_pods_of(items)] == ["a"]


def test_rfc3339_round_trip_and_nonsense() -> None:
    assert observe.time_s(observe.rfc3339(1_700_000_000.0)) == 1_700_000_000.0
    assert observe.time_s("yesterday") is None
    assert observe.time_s(None) is None
