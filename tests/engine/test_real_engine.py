"""The end-to-end test with two real SGLang 0.5.23 engines on the CPU in place of the simulator, from the same kinds.

The model has random weights: what is said is noise, how it is said is SGLang. Tests run in order on one cluster.
"""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from shoal_local import faults
from shoal_testing.chat import stream
from shoal_testing.localcluster import NAMESPACE, ROOT, ShoalCluster, shoal_cluster, wait_for

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(800)]

READY_S = 600.0


def service(model: Path) -> dict[str, Any]:
    return {
        "apiVersion": "shoal.dev/v1alpha1",
        "kind": "ModelService",
        "metadata": {"name": "nano"},
        "spec": {
            "model": {"source": f"file://{model}", "servedName": "nano", "contextLength": 16384},
            "hardware": [{"gpu": "H200", "gpusPerReplica": 1}],
            "replicas": 2,
            "engine": {
                "version": "0.5.23",
                "args": {
                    "device": "cpu",
                    "load-format": "dummy",
                    "attention-backend": "torch_native",
                    "sampling-backend": "pytorch",
                    "cuda-graph-backend-decode": "disabled",
                    "max-total-tokens": 17000,
                },
            },
        },
    }


@pytest.fixture(scope="module")
def cluster(engine_env: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShoalCluster]:
    with shoal_cluster(tmp_path_factory.mktemp("cluster"), engine="sglang-cpu", engine_env=engine_env) as running:
        running.kubectl("apply", "-f", ROOT / "examples/quickstart/gpupools.yaml")
        manifest = yaml.safe_dump(service(engine_env / "models/nano-llama"))
        running.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=manifest)
        running.wait_ready("nano", deadline_s=READY_S)
        yield running


def chat(*messages: str, **more: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {
        "model": "nano",
        "messages": [{"role": roles[i % 2], "content": text} for i, text in enumerate(messages)],
        "max_tokens": 16,
        "ignore_eos": True,
        **more,
    }


def text_of(events: list[Any]) -> str:
    return "".join(e["choices"][0]["delta"].get("content") or "" for e in events[:-1] if e["choices"])


def test_streamed_chat(cluster: ShoalCluster) -> None:
    _, events = stream(cluster.url, chat("Say something."))
    assert events[-1] == "[DONE]"
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert events[-2]["usage"]["completion_tokens"] == 16


def test_second_turn_is_cached_on_the_same_replica(cluster: ShoalCluster) -> None:
    headers = {"x-session-id": "one", "x-shoal-explain": "1"}
    question = "Tell me about rivers, and about sand. " * 40
    first, events = stream(cluster.url, chat(question), headers)
    answer = text_of(events)
    second, events = stream(cluster.url, chat(question, answer, "Go on."), headers)
    assert first["x-shoal-replica"] == second["x-shoal-replica"]
    assert events[-2]["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_same_answer_through_the_router_and_from_the_engine(cluster: ShoalCluster) -> None:
    request = chat("Is it the same?", temperature=0, max_tokens=24)
    routed = httpx.post(f"{cluster.url}/v1/chat/completions", json=request, timeout=120).json()
    for pod in cluster.engine_pods("nano"):
        url = f"http://{pod['status']['podIP']}:30000/v1/chat/completions"
        direct = httpx.post(url, json=request, timeout=120).json()
        assert direct["choices"][0]["message"]["content"] == routed["choices"][0]["message"]["content"]
        assert direct.keys() == routed.keys()


def running_requests(cluster: ShoalCluster) -> int:
    """Requests that the engines themselves say they have."""
    total = 0
    for pod in cluster.engine_pods("nano"):
        loads = httpx.get(f"http://{pod['status']['podIP']}:30000/v1/loads", timeout=10).json()["loads"]
        total += sum(load["num_running_reqs"] + load["num_waiting_reqs"] for load in loads)
    return total


def test_client_that_goes_away_frees_the_engine(cluster: ShoalCluster) -> None:
    asked = chat("Count for a long time.", max_tokens=4000, stream=True)
    with httpx.stream("POST", f"{cluster.url}/v1/chat/completions", json=asked, timeout=120) as answer:
        lines = answer.iter_lines()  # held: an iterator that is dropped closes the answer
        next(lines)
        wait_for("the engine to run it", lambda: running_requests(cluster) == 1, 30)
    wait_for("the engine to drop it", lambda: running_requests(cluster) == 0, 30)


def test_kill_of_an_engine_ends_only_its_own_streams(cluster: ShoalCluster) -> None:
    ends: list[str] = []
    begun = threading.Semaphore(0)

    def run(number: int) -> None:
        asked = chat(f"{number} " * 100, max_tokens=300, stream=True)
        with httpx.stream("POST", f"{cluster.url}/v1/chat/completions", json=asked, timeout=180) as answer:
            last = f"status {answer.status_code}"
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    if last.startswith("status"):
                        begun.release()
                    last = line.removeprefix("data: ")
        ends.append("done" if last == "[DONE]" else "error event" if '"error"' in last else last)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert begun.acquire(timeout=120)
    victim = cluster.engine_pods("nano")[0]["metadata"]["name"]
    faults.send(faults.find_container(cluster.folder, victim, NAMESPACE, None), signal.SIGKILL)
    _, events = stream(cluster.url, chat("Still there?"))
    assert events[-1] == "[DONE]"
    for thread in threads:
        thread.join(180)
    assert len(ends) == 4
    assert set(ends) <= {"done", "error event"}, ends
    assert "done" in ends
    cluster.wait_ready("nano", deadline_s=READY_S)
