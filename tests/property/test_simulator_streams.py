"""The simulator's streams, in process: whatever runs beside them, events come in order and texts are whole."""

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_sim import chat_template, flags, server
from shoal_sim.http.app import App
from shoal_sim.runtime import Runtime, Status
from shoal_sim.settings import resolve
from shoal_sim.tokens import expected_text

ARGV = ["--model-path", "/m", "--enable-cache-report", "--max-total-tokens", "4096", "--chunked-prefill-size", "256"]
ARGV += ["--profile", "tiny", "--speedup", "1000000", "--context-length", "2048", "--schedule-conservativeness", "0.01"]


@dataclass(frozen=True)
class Call:
    text: str
    choices: int
    max_tokens: int
    usage: bool
    always: bool
    logprobs: bool
    abort: bool


calls = st.lists(
    st.builds(
        Call,
        text=st.text(max_size=400),
        choices=st.integers(1, 3),
        max_tokens=st.integers(0, 40),
        usage=st.booleans(),
        always=st.booleans(),
        logprobs=st.booleans(),
        abort=st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


class Caller:
    """One ASGI request; keeps what was sent."""

    def __init__(self, app: App, path: str, body: dict[str, Any]) -> None:
        self.status = 0
        self.events: list[str] = []
        self._app = app
        self._path = path
        self._body: bytes | None = json.dumps(body).encode()

    async def run(self) -> None:
        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": self._path, "query_string": b"", "headers": headers}
        await self._app(scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        if self._body is None:
            await asyncio.Event().wait()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["body"]:
            self.events.append(message["body"].decode())


def body_of(call: Call) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": call.text}],
        "n": call.choices,
        "max_tokens": call.max_tokens,
        "stream": True,
        "logprobs": call.logprobs,
        "stream_options": {"include_usage": call.usage, "continuous_usage_stats": call.always},
    }


async def run_calls(drawn: list[Call]) -> tuple[list[Caller], Runtime]:
    runtime = server.build(resolve(flags.parse(ARGV), {}))
    runtime.status = Status.UP
    app = App(runtime)
    callers = [Caller(app, "/v1/chat/completions", {**body_of(c), "rid": f"r{i}x"}) for i, c in enumerate(drawn)]
    steps = asyncio.create_task(runtime.engine.steps())
    tasks = [asyncio.create_task(caller.run()) for caller in callers]
    for index, call in enumerate(drawn):
        if call.abort:
            await asyncio.sleep(0)
            for choice in ("", "_0", "_1", "_2"):
                runtime.engine.abort_rid(f"r{index}x{choice}")
    try:
        await asyncio.wait_for(asyncio.gather(*tasks), 20)
    finally:
        steps.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await steps
    return callers, runtime


def check_stream(call: Call, caller: Caller) -> None:
    body = body_of(call)
    assert caller.status == 200
    assert caller.events[-1] == "data: [DONE]\n\n"
    events = [json.loads(event.removeprefix("data: ")) for event in caller.events[:-1]]
    tail = [event for event in events if not event["choices"]]
    assert events[len(events) - len(tail) :] == tail, "what belongs to no choice comes last"
    assert len(tail) == call.usage
    data = chat_template.render(body)
    total = 0
    ends = []
    for index in range(call.choices):
        mine = [event["choices"][0] for event in events if event["choices"] and event["choices"][0]["index"] == index]
        assert mine[0]["delta"].get("role") == "assistant"
        assert all("role" not in choice["delta"] for choice in mine[1:])
        assert [choice["finish_reason"] is not None for choice in mine] == [False] * (len(mine) - 1) + [True]
        text = "".join(choice["delta"].get("content") or "" for choice in mine)
        if mine[-1]["finish_reason"] == "length":
            assert text == expected_text(data, call.max_tokens, index)
        else:
            assert call.abort
            assert expected_text(data, call.max_tokens, index).startswith(text)
        if call.logprobs:
            shown = [entry["token"] for choice in mine if choice["logprobs"] for entry in choice["logprobs"]["content"]]
            assert "".join(shown) == text
        total += len(text) // 4
        ends.append(mine[-1])
    if call.usage:
        assert tail[0]["usage"]["completion_tokens"] == total


@settings(max_examples=60, deadline=None)
@given(drawn=calls)
def test_streams_are_whole_and_in_order(drawn: list[Call]) -> None:
    callers, runtime = asyncio.run(run_calls(drawn))
    for call, caller in zip(drawn, callers, strict=True):
        check_stream(call, caller)
    cache = runtime.engine.scheduler.cache
    assert runtime.engine.scheduler.idle
    assert not runtime.engine.live
    assert cache.locked_pages == cache.private_pages == 0
    assert all(count == 0 for count in runtime.telemetry.http.active.values())
