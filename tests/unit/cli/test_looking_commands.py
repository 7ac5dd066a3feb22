"""`status` and `explain` on what a kubectl and a router answer; kubectl here is a script that prints a file."""

import asyncio
import json
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from shoal_cli import explain, status
from shoal_cli.__main__ import main
from shoal_cli.replay import gpus
from shoal_testing import waiting

ITEM: dict[str, Any] = {
    "metadata": {"name": "kimi", "namespace": "shoal"},
    "spec": {
        "routing": {"affinity": "Auto", "slicing": "Off"},
        "hardware": [{"gpu": "B200", "gpusPerReplica": 8}, {"gpu": "B300", "gpusPerReplica": 4}],
    },
    "status": {
        "currentRevision": "0a1b2c3d",
        "replicas": {"desired": 3, "ready": 2, "summary": "2/3"},
        "conditions": [
            {"type": "Ready", "status": "False", "reason": "ScalingUp", "message": "1 of 3 replicas is starting"},
            {"type": "ScalingActive", "status": "True", "reason": "Scaling", "message": "all routers report"},
        ],
        "replicaDetails": [
            {"name": "kimi-0a1b2c3d-0", "phase": "Ready", "gpu": "B200", "node": "n1", "sessions": 4},
            {"name": "kimi-0a1b2c3d-1", "phase": "Ready", "gpu": "B300", "node": "n2", "sessions": 0},
        ],
        "scaling": {
            "desired": 3, "reason": "Backlog", "inputs": {"backlog": 2.4},
            "history": [
                {"time": "2026-01-01T00:00:00Z", "from": 2, "to": 3, "reason": "Backlog", "inputs": {"backlog": 2.4}}
            ],
        },
        "rollout": {"hold": {"gate": "Starting", "reason": "one starts", "since": "2026-01-01T00:00:00Z"}},
        "performance": {"cacheHit": 0.931, "ttft": {"p50": "210ms"}},
    },
}  # fmt: skip


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[object], Path]:
    """Puts a kubectl on PATH that prints the given object, and logs its arguments."""

    def make(answer: object, code: int = 0) -> Path:
        script = tmp_path / "kubectl"
        (tmp_path / "answer").write_text(json.dumps(answer))
        out = f"cat {tmp_path}/answer" if code == 0 else "echo the server says no >&2"
        script.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/log\n{out}\nexit {code}\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return tmp_path / "log"

    return make


def test_status_lists_services(kubectl: Callable[..., Path]) -> None:
    log = kubectl({"items": [ITEM]})
    done = CliRunner().invoke(main, ["status", "-n", "shoal"])
    assert done.exit_code == 0, done.output
    for want in ("kimi", "2/3", "ScalingUp", "3 (Backlog)", "0.931", "210ms"):
        assert want in done.output
    assert "--namespace=shoal get modelservices.shoal.dev -o json" in log.read_text()


def test_status_of_one_shows_replicas_and_conditions(kubectl: Callable[..., Path]) -> None:
    kubectl(ITEM)
    done = CliRunner().invoke(main, ["status", "kimi"])
    for want in ("kimi-0a1b2c3d-1", "1 of 3 replicas is starting", "Rollout is held", "one starts"):
        assert want in done.output


def test_status_of_one_says_whether_its_prompts_are_sliced(kubectl: Callable[..., Path]) -> None:
    kubectl(ITEM)
    lines = CliRunner().invoke(main, ["status", "kimi"]).output.splitlines()
    at = lines.index("Routing")
    assert [line.split() for line in lines[at + 1 : at + 3]] == [["AFFINITY", "SLICING"], ["Auto", "Off"]]


def test_status_of_one_from_before_slices_knows_nothing_of_them(kubectl: Callable[..., Path]) -> None:
    kubectl({**ITEM, "spec": {"routing": {"affinity": "Auto"}}})
    lines = CliRunner().invoke(main, ["status", "kimi"]).output.splitlines()
    assert lines[lines.index("Routing") + 2].split() == ["Auto", "-"]
    kubectl({**ITEM, "spec": {}})
    done = CliRunner().invoke(main, ["status", "kimi"])
    assert done.exit_code == 0
    assert "SLICING" not in done.output


def test_status_without_services_says_so(kubectl: Callable[..., Path]) -> None:
    kubectl({"items": []})
    assert "No ModelServices" in CliRunner().invoke(main, ["status"]).output


def test_status_of_a_service_without_status_is_unknown(kubectl: Callable[..., Path]) -> None:
    kubectl({"items": [{"metadata": {"name": "new", "namespace": "a"}, "spec": {}}]})
    assert "Unknown" in CliRunner().invoke(main, ["status"]).output


def test_kubectl_s_own_words_are_passed_on(kubectl: Callable[..., Path]) -> None:
    kubectl({}, 1)
    done = CliRunner().invoke(main, ["status"])
    assert done.exit_code == 1
    assert "the server says no" in done.output


def test_absent_kubectl_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "kubectl is not on PATH" in CliRunner().invoke(main, ["status"]).output


def test_explain_scale_shows_reason_inputs_and_history(kubectl: Callable[..., Path]) -> None:
    kubectl(ITEM)
    done = CliRunner().invoke(explain.explain, ["scale", "kimi"])
    assert done.exit_code == 0, done.output
    for want in ("2 ready, 3 wanted: Backlog", "backlog", "2026-01-01T00:00:00Z"):
        assert want in done.output


def test_explain_scale_without_scaling_says_who_owns_the_count(kubectl: Callable[..., Path]) -> None:
    kubectl({**ITEM, "status": {}})
    assert "spec.replicas" in CliRunner().invoke(explain.explain, ["scale", "kimi"]).output


@dataclass
class Router:
    """Answers `/debug/route` with what it is told to, and keeps what it was asked."""

    answer: dict[str, Any] = field(default_factory=dict)
    asked: list[httpx.Request] = field(default_factory=list)

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        return httpx.Response(200, json=self.answer)


@pytest.fixture
def router(monkeypatch: pytest.MonkeyPatch) -> Router:
    made = Router()

    def post(url: str, **arguments: Any) -> httpx.Response:
        arguments.pop("trust_env")
        with httpx.Client(transport=httpx.MockTransport(made.handle)) as client:
            return client.post(url, **arguments)

    monkeypatch.setattr(explain.httpx, "post", post)
    return made


def explained(*options: str) -> str:
    """What `shoal explain route` prints for some body."""
    arguments = ["route", "--url", "http://r:8081/", *options, "-"]
    done = CliRunner().invoke(explain.explain, arguments, input='{"model": "kimi"}')
    assert done.exit_code == 0, done.output
    return done.output


def test_explain_route_prints_candidates(router: Router) -> None:
    candidates = [{"replica": "kimi-1", "cost_s": 0.25}, {"replica": "kimi-2", "cost_s": 1.5, "full": True}]
    router.answer = {"service": "kimi", "chosen": "kimi-1", "candidates": candidates}
    shown = explained("--session", "s")
    assert router.asked[0].url.path == "/debug/route"
    assert router.asked[0].headers["x-session-id"] == "s"
    for want in ("chosen", "kimi-2", "1.5"):
        assert want in shown


def test_explain_route_shows_slices_and_what_is_left_of_others(router: Router) -> None:
    candidates = [{"replica": "kimi-1", "room": "ok", "sliced_s": 3.25}, {"replica": "kimi-2", "room": "ok"}]
    router.answer = {"service": "kimi", "slices": 13, "candidates": candidates}
    rows = [line.split() for line in explained().splitlines()]
    assert ["slices", "13"] in rows
    assert ["REPLICA", "ROOM", "SLICED_S"] in rows
    assert ["kimi-1", "ok", "3.25"] in rows
    assert ["kimi-2", "ok", "-"] in rows


@pytest.mark.parametrize(("slices", "want"), [(0, "0 (whole)"), (None, "-")])
def test_explain_route_tells_a_whole_prompt_from_one_that_nobody_knows_of(
    router: Router, slices: int | None, want: str
) -> None:
    router.answer = {"service": "kimi", "slices": slices, "candidates": []}
    assert ["slices", *want.split()] in [line.split() for line in explained().splitlines()]


def test_explain_route_of_a_router_that_knows_no_slices_says_nothing_of_them(router: Router) -> None:
    router.answer = {"service": "kimi", "candidates": [{"replica": "kimi-1", "cost_s": 0.25}]}
    assert "slice" not in explained().lower()


def test_explain_route_without_a_router_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "body.json").write_text("{}")
    done = CliRunner().invoke(explain.explain, ["route", "--url", "http://127.0.0.1:9", str(tmp_path / "body.json")])
    assert done.exit_code == 1
    assert "127.0.0.1:9" in done.output


def test_gpus_are_counted_by_each_replica_s_own_kind() -> None:
    assert gpus.gpus_of(ITEM) == 12.0
    assert gpus.gpus_of({**ITEM, "status": {"replicas": {"ready": 2}}}) == 16.0
    assert gpus.gpus_of({**ITEM, "status": {"replicas": {"ready": 0}}}) == 0.0
    assert gpus.gpus_of({**ITEM, "status": {}}) is None


async def test_gpus_are_sampled_while_a_replay_runs(kubectl: Callable[..., Path]) -> None:
    kubectl(ITEM)
    counter = gpus.Counter(gpus.Source(service="kimi"))
    sampling = asyncio.create_task(counter.watch())
    await waiting.until(lambda: counter.mean() is not None)
    sampling.cancel()
    assert counter.mean() == pytest.approx(12.0)


async def test_gpus_that_cannot_be_read_are_unknown(kubectl: Callable[..., Path]) -> None:
    log = kubectl({}, 1)
    counter = gpus.Counter(gpus.Source(service="kimi"))
    sampling = asyncio.create_task(counter.watch())
    await waiting.until(log.exists)
    sampling.cancel()
    assert counter.mean() is None
    assert gpus.Counter(gpus.Source(count=8)).mean() == 8
    assert gpus.Counter(None).mean() is None


def test_condition_that_is_absent_is_empty() -> None:
    assert status.condition({}, "Ready") == {}
