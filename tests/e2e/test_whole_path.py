"""The whole path on the local cluster: chart, kinds, streams, a killed replica, scaling by hand, edits, uninstall.

One cluster for the module; tests run in order and leave the service `coder` ready for the next.
"""

import json
import signal
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import yaml

from shoal_local import faults
from shoal_testing.chat import stream
from shoal_testing.localcluster import NAMESPACE, ROOT, ShoalCluster, shoal_cluster, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

SERVICE = """
apiVersion: shoal.dev/v1alpha1
kind: ModelService
metadata: {name: tiny}
spec:
  model: {source: "hf://acme/tiny-llama", servedName: tiny, contextLength: 32768}
  hardware: [{gpu: H200, gpusPerReplica: 1}]
  parallelism: {tensor: 1}
  replicas: 2
  rollout: {maxSurge: 1, maxUnavailable: 0, drainTimeout: 60s}
"""
PROMPT = "Rivers carry sand to the sea. " * 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShoalCluster]:
    with shoal_cluster(tmp_path_factory.mktemp("cluster"), routers=2, speedup=1, profile="tiny") as running:
        running.kubectl("apply", "-f", ROOT / "examples/quickstart/gpupools.yaml")
        running.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=SERVICE)
        yield running


def body(text: str = PROMPT, **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 8, **more}


def test_applied_service_answers_with_a_stream(cluster: ShoalCluster) -> None:
    status = cluster.wait_ready("tiny")
    assert status["replicas"]["ready"] == 2
    _, events = stream(cluster.url, body())
    assert events[-1] == "[DONE]"
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert events[-2]["usage"]["completion_tokens"] == 8


def test_second_turn_of_a_session_finds_its_cache(cluster: ShoalCluster) -> None:
    headers = {"x-session-id": "turns", "x-shoal-explain": "1"}
    with httpx.Client() as client:  # one connection, and so one of the two routers
        first, _ = stream(cluster.url, body("A" * 4096), headers, client)
        second, events = stream(cluster.url, body("A" * 4096 + " and then?"), headers, client)
    assert events[-2]["usage"]["prompt_tokens_details"]["cached_tokens"] > 900
    assert first["x-shoal-replica"] == second["x-shoal-replica"]


def test_kubectl_tells_what_is_there(cluster: ShoalCluster) -> None:
    titles, row = (line.split() for line in cluster.kubectl("get", "-n", NAMESPACE, "msvc").stdout.splitlines())
    assert titles == ["NAME", "READY", "REVISION", "REPLICAS", "REASON", "AGE"]
    assert row[:5] == ["tiny", "True", cluster.status("tiny")["currentRevision"], "2/2", "Available"]
    described = cluster.kubectl("describe", "-n", NAMESPACE, "msvc", "tiny").stdout
    assert "Events:" in described
    pod = cluster.engine_pods("tiny")[0]["metadata"]["name"]
    assert "ready to roll" in cluster.kubectl("logs", "-n", NAMESPACE, pod, "--tail=200").stdout


class Load:
    """Streams in the background; `ends` has one entry for each: "done", "error event", or what else happened."""

    def __init__(self, url: str, streams: int, tokens: int, session: str) -> None:
        self.url = url
        self.tokens = tokens
        self.begun = threading.Semaphore(0)
        self.ends: list[str] = []
        self.threads = [threading.Thread(target=self._run, args=(f"{session}-{i}",)) for i in range(streams)]
        for thread in self.threads:
            thread.start()

    def _run(self, session: str) -> None:
        request = body(session * 200, max_tokens=self.tokens, ignore_eos=True, stream=True)
        try:
            with httpx.stream("POST", f"{self.url}/v1/chat/completions", json=request, timeout=60) as answer:
                last, began = f"status {answer.status_code}", False
                for line in answer.iter_lines():
                    if line.startswith("data: "):
                        last = line.removeprefix("data: ")
                        if not began:
                            began = True
                            self.begun.release()
            end = "done" if last == "[DONE]" else "error event" if '"error"' in last else last[:80]
        except httpx.HTTPError as error:
            end = repr(error)
        self.ends.append(end)

    def wait(self) -> list[str]:
        for thread in self.threads:
            thread.join(90)
        return sorted(self.ends)


def test_killed_replica_ends_only_its_own_streams(cluster: ShoalCluster) -> None:
    load = Load(cluster.url, 8, 400, "kill")
    for _ in range(8):
        assert load.begun.acquire(timeout=60)
    victim = cluster.engine_pods("tiny")[0]["metadata"]["name"]
    faults.send(faults.find_container(cluster.folder, victim, NAMESPACE, None), signal.SIGKILL)
    # New requests are answered all the while.
    for i in range(5):
        _, events = stream(cluster.url, body(f"after the kill {i}"))
        assert events[-1] == "[DONE]"
    ends = load.wait()
    assert set(ends) == {"done", "error event"}, ends
    cluster.wait_ready("tiny")


def test_scale_by_hand_and_back(cluster: ShoalCluster) -> None:
    cluster.kubectl("scale", "-n", NAMESPACE, "msvc/tiny", "--replicas=3")
    wait_for("three ready", lambda: cluster.status("tiny")["replicas"]["ready"] == 3, 60)
    cluster.kubectl("scale", "-n", NAMESPACE, "msvc/tiny", "--replicas=2")
    wait_for("two left", lambda: len(cluster.engine_pods("tiny")) == 2, 60)
    cluster.wait_ready("tiny")


def test_edits_in_mid_rollout_end_at_the_last_and_lose_nothing(cluster: ShoalCluster) -> None:
    before = cluster.status("tiny")["servingRevision"]
    stop = threading.Event()
    failures: list[Any] = []

    def ask() -> None:
        count = 0
        while not stop.is_set():
            count += 1
            try:
                answer = httpx.post(f"{cluster.url}/v1/chat/completions", json=body(f"rollout {count}"), timeout=30)
            except httpx.HTTPError as error:
                failures.append(repr(error))
            else:
                if answer.status_code != 200:
                    failures.append(answer.text)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for tokens in (4096, 2048):
            patch = {"spec": {"engine": {"args": {"chunked-prefill-size": tokens}}}}
            cluster.kubectl("patch", "-n", NAMESPACE, "msvc", "tiny", "--type=merge", "-p", json.dumps(patch))
            wait_for(
                "a replica of the new revision",
                lambda: (
                    cluster.status("tiny").get("currentRevision") not in (None, before)
                    and any(one["revision"] != before for one in cluster.status("tiny").get("replicaDetails", ()))
                ),
                60,
            )
        cluster.wait_ready("tiny", deadline_s=120)
        wait_for("two left", lambda: len(cluster.engine_pods("tiny")) == 2, 60)
    finally:
        stop.set()
        asking.join(60)
    assert not failures
    status = cluster.status("tiny")
    assert status["servingRevision"] == status["currentRevision"] != before
    commands = [pod["spec"]["containers"][0]["args"] for pod in cluster.engine_pods("tiny")]
    assert all("2048" in command for command in commands)


def test_service_that_no_pool_can_hold_creates_nothing_and_says_why(cluster: ShoalCluster) -> None:
    wanted = yaml.safe_load(SERVICE)
    wanted["metadata"]["name"] = "nowhere"
    wanted["spec"]["model"]["servedName"] = "nowhere"
    wanted["spec"]["hardware"] = [{"gpu": "GB300", "gpusPerReplica": 4}]
    wanted["spec"]["parallelism"] = {"tensor": 4}
    cluster.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=yaml.safe_dump(wanted))
    try:
        reason = wait_for("a verdict", lambda: cluster.condition("nowhere", "Accepted") or None, 30)
        assert reason["status"] == "False"
        assert "GB300" in reason["message"]
        assert reason["reason"] in cluster.kubectl("get", "-n", NAMESPACE, "msvc", "nowhere").stdout
        assert not cluster.engine_pods("nowhere")
    finally:
        cluster.kubectl("delete", "-n", NAMESPACE, "msvc", "nowhere")


def test_scale_is_refused_where_scaling_owns_the_count(cluster: ShoalCluster) -> None:
    scaling = [
        {"op": "remove", "path": "/spec/replicas"},
        {"op": "add", "path": "/spec/scaling", "value": {"min": 2, "max": 3, "slo": {"ttft": "2s", "itl": "50ms"}}},
    ]
    cluster.kubectl("patch", "-n", NAMESPACE, "msvc", "tiny", "--type=json", "-p", json.dumps(scaling))
    refused = cluster.kubectl("scale", "-n", NAMESPACE, "msvc/tiny", "--replicas=5", check=False)
    assert refused.returncode != 0
    assert "scaling" in refused.stderr
    wait_for("the scaler speaks", lambda: cluster.status("tiny").get("scaling", {}).get("reason"), 30)
    cluster.wait_ready("tiny")


def test_traffic_goes_on_while_the_operator_is_away(cluster: ShoalCluster) -> None:
    cluster.kubectl("scale", "-n", NAMESPACE, "deployment/shoal-operator", "--replicas=0")
    wait_for(
        "no operator",
        lambda: not cluster.get("pods", "-l", "app.kubernetes.io/component=operator")["items"],
        60,
    )
    try:
        for i in range(3):
            assert stream(cluster.url, body(f"alone {i}"))[1][-1] == "[DONE]"
    finally:
        cluster.kubectl("scale", "-n", NAMESPACE, "deployment/shoal-operator", "--replicas=2")
    cluster.wait_ready("tiny")


def test_uninstall_leaves_nothing_stuck(cluster: ShoalCluster) -> None:
    cluster.kubectl("delete", "-n", NAMESPACE, "msvc", "--all")
    wait_for("no engine", lambda: not cluster.engine_pods("tiny"), 60)
    cluster.helm("uninstall", "shoal", "-n", NAMESPACE)
    cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=60s", timeout_s=70)
