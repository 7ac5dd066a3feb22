"""Probes of the node agent against real listeners."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from shoal_local.agent import probe_rules, prober
from shoal_local.agent.probe_rules import ProbeSpec, Verdict
from shoal_local.agent.prober import Answer, Target
from shoal_local.ports import pick_ports

pytestmark = pytest.mark.wire


def spec(probe: dict[str, Any], kind: probe_rules.Kind = "readiness") -> ProbeSpec:
    parsed = probe_rules.parse_probe(kind, probe)
    assert parsed is not None
    return parsed


async def run_inside(command: list[str], _timeout_s: float) -> tuple[int, str]:
    if command == ["hang"]:
        await asyncio.sleep(60)
    return (0, "") if command == ["good"] else (2, "it is bad")


class Asked:
    """An HTTP server that answers by path and notes what it was asked."""

    def __init__(self) -> None:
        self.port = pick_ports(1)[0]
        self.headers: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(request.headers.get("X-Probe", ""))
        if request.path == "/slow":
            await asyncio.sleep(60)
        codes = {"/ok": 200, "/moved": 302, "/bad": 503}
        return web.Response(status=codes[request.path], text="overloaded" if request.path == "/bad" else "")


@pytest.fixture
async def asked() -> AsyncIterator[Asked]:
    server = Asked()
    application = web.Application()
    application.router.add_get("/{path:.*}", server.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", server.port).start()
    try:
        yield server
    finally:
        await runner.cleanup()


@pytest.fixture
async def target(asked: Asked) -> AsyncIterator[Target]:
    async with prober.probe_session() as session:
        yield Target("127.0.0.1", [{"name": "http", "containerPort": asked.port}], session, run_inside)


@pytest.mark.parametrize(
    ("path", "succeeded", "message"),
    [
        ("ok", True, ""),
        ("/moved", True, ""),
        ("/bad", False, "HTTP probe failed with statuscode: 503 overloaded"),
    ],
)
async def test_http_probe_by_status(target: Target, path: str, succeeded: bool, message: str) -> None:
    asked_for = spec({"httpGet": {"path": path, "port": "http"}, "timeoutSeconds": 10})
    assert await prober.ask(asked_for, target) == Answer(succeeded, message)


async def test_http_probe_sends_its_headers(target: Target, asked: Asked) -> None:
    headers = [{"name": "X-Probe", "value": "yes"}]
    await prober.ask(spec({"httpGet": {"path": "/ok", "port": asked.port, "httpHeaders": headers}}), target)
    assert asked.headers == ["yes"]


async def test_slow_answer_is_a_failure(target: Target) -> None:
    answer = await prober.ask(spec({"httpGet": {"path": "/slow", "port": "http"}, "timeoutSeconds": 1}), target)
    assert answer == Answer(False, "httpGet probe timed out after 1 s")


async def test_unknown_port_name_is_a_failure(target: Target) -> None:
    answer = await prober.ask(spec({"httpGet": {"path": "/", "port": "nope"}}), target)
    assert answer == Answer(False, "no container port is called 'nope'")


async def test_tcp_probe(target: Target) -> None:
    assert (await prober.ask(spec({"tcpSocket": {"port": "http"}, "timeoutSeconds": 10}), target)).succeeded
    refused = await prober.ask(spec({"tcpSocket": {"port": pick_ports(1)[0]}, "timeoutSeconds": 10}), target)
    assert not refused.succeeded


async def test_exec_probe(target: Target) -> None:
    assert await prober.ask(spec({"exec": {"command": ["good"]}}), target) == Answer(True)
    assert await prober.ask(spec({"exec": {"command": ["bad"]}}), target) == Answer(False, "it is bad")
    hung = await prober.ask(spec({"exec": {"command": ["hang"]}}), target)
    assert hung == Answer(False, "exec probe timed out after 1 s")


async def test_probing_ends_when_the_listener_says_so(target: Target) -> None:
    verdicts: list[bool | None] = []

    def on_verdict(_spec: ProbeSpec, verdict: Verdict, _answer: Answer) -> bool:
        verdicts.append(verdict.passed)
        return len(verdicts) < 2

    probe = spec({"exec": {"command": ["bad"]}, "failureThreshold": 2, "periodSeconds": 1}, "liveness")
    await asyncio.wait_for(prober.probe_until(probe, target, on_verdict), 20)
    assert verdicts == [None, False]
