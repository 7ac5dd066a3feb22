"""From Pods to engines: address, port, readiness, identity."""

import copy
import ssl
from collections.abc import Mapping
from typing import Any

import pytest

from shoal_api import keys, routes
from shoal_router.discovery import pods
from shoal_router.discovery.access import Access
from shoal_router.discovery.kubernetes import Kubernetes
from shoal_router.discovery.target import Target


def _pod(name: str = "m-r-0-0", **changes: Any) -> dict[str, Any]:
    labels = {keys.LABEL_SERVICE: "m", keys.LABEL_REPLICA: "m-r-0", keys.LABEL_GPU: "B200", keys.LABEL_REVISION: "r"}
    pod: dict[str, Any] = {
        "metadata": {"name": name, "uid": "u1", "labels": labels},
        "spec": {"containers": [{"name": "sidecar"}, {"name": keys.ENGINE_CONTAINER}]},
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {"name": keys.ENGINE_CONTAINER, "restartCount": 0, "state": {"running": {"startedAt": "t1"}}}
            ],
        },
    }
    for path, value in changes.items():
        part, _, key = path.partition("__")
        pod[part][key] = value
    return pod


def test_ready_pod() -> None:
    found = pods.target(_pod())
    assert found is not None
    assert (found.name, found.service, found.url) == ("m-r-0", "m", f"http://10.0.0.1:{keys.ENGINE_PORT}")
    assert (found.ready, found.terminating, found.gpu, found.revision) == (True, False, "B200", "r")


def test_ipv6_address_is_bracketed() -> None:
    found = pods.target(_pod(status__podIP="fd00::1"))
    assert found is not None
    assert found.url == f"http://[fd00::1]:{keys.ENGINE_PORT}"


def test_named_port_wins() -> None:
    container = {
        "name": keys.ENGINE_CONTAINER,
        "ports": [{"containerPort": 1}, {"name": "http", "containerPort": 31000}],
    }
    found = pods.target(_pod(spec__containers=[container]))
    assert found is not None
    assert found.port == 31000


@pytest.mark.parametrize(
    "change",
    [{"status__podIP": None}, {"status__phase": "Failed"}, {"status__phase": "Succeeded"}, {"metadata__labels": {}}],
)
def test_no_engine_yet_or_any_more(change: dict[str, Any]) -> None:
    assert pods.target(_pod(**change)) is None


@pytest.mark.parametrize("conditions", [None, [], [{"type": "Ready", "status": "False"}]])
def test_not_ready(conditions: Any) -> None:
    found = pods.target(_pod(status__conditions=conditions))
    assert found is not None
    assert not found.ready


@pytest.mark.parametrize(
    "change",
    [
        {"metadata__uid": "u2"},
        {
            "status__containerStatuses": [
                {"name": keys.ENGINE_CONTAINER, "restartCount": 1, "state": {"running": {"startedAt": "t2"}}}
            ]
        },
    ],
)
def test_restart_is_another_engine(change: dict[str, Any]) -> None:
    before, after = pods.target(_pod()), pods.target(_pod(**change))
    assert before is not None
    assert after is not None
    assert before.uid != after.uid


@pytest.mark.parametrize("order", [1, -1])
def test_successor_of_a_terminating_pod_counts(order: int) -> None:
    old = _pod("old", metadata__deletionTimestamp="now", metadata__uid="u0")
    found = pods.targets([old, _pod("new")][::order])
    assert not found["m-r-0"].terminating


def test_changes_of_pods_reach_the_sink_and_repeats_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each Pod is read once a version: a thousand of them are not read again at every event."""
    seen: list[dict[str, Target]] = []
    read: list[str] = []
    real = pods.target

    def counting(pod: dict[str, Any]) -> Target | None:
        read.append(pod["metadata"]["name"])
        return real(pod)

    class Sink:
        def on_targets(self, targets: Mapping[str, Target]) -> None:
            seen.append(dict(targets))

        def on_table(self, table: routes.RouteTable) -> None:
            raise AssertionError

    monkeypatch.setattr(pods, "target", counting)
    found = Kubernetes(Access("https://127.0.0.1:1", ssl.create_default_context()), "ns", "r", Sink())
    objects = {name: _pod(name) for name in ("a", "b")}
    for name, one in objects.items():
        one["metadata"]["labels"][keys.LABEL_REPLICA] = name
    found._on_pods(objects)
    found._on_pods(dict(objects))
    assert (read, [sorted(targets) for targets in seen]) == (["a", "b"], [["a", "b"]])
    changed = copy.deepcopy(objects["a"])
    changed["metadata"]["deletionTimestamp"] = "now"
    found._on_pods({**objects, "a": changed})
    found._on_pods({"a": changed})
    assert read == ["a", "b", "a"]
    assert [sorted(targets) for targets in seen[1:]] == [["a", "b"], ["a"]]
    assert seen[1]["a"].terminating
