"""A body that no engine can take is refused in the shape of its API, names the field, and reaches no engine."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from shoal_testing import rawhttp
from shoal_testing.routers import RunningRouter, router, service
from shoal_testing.scripted_engine import ScriptedEngine, scripted_engine

pytestmark = pytest.mark.wire

_USER = {"role": "user", "content": "Hi"}
_CHAT = "/v1/chat/completions"
_TEXT = "/v1/completions"
_GENERATE = "/generate"


@pytest.fixture(scope="module")
def engine() -> Iterator[ScriptedEngine]:
    with scripted_engine(lambda call: call.answer(200, b'{"usage":{"prompt_tokens":3}}')) as running:
        yield running


@pytest.fixture(scope="module")
def one(engine: ScriptedEngine) -> Iterator[RunningRouter]:
    with router({"a": engine.url}, services=[service(aliases=["other/name"])]) as running:
        yield running


def _chat(**fields: Any) -> bytes:
    return json.dumps({"model": "tiny-llama", "messages": [_USER], **fields}).encode()


def _deep(levels: int) -> dict[str, Any]:
    """Deeper than orjson writes, not deeper than it reads."""
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"a": found}
    return found


def _text(**fields: Any) -> bytes:
    return json.dumps({"model": "tiny-llama", "prompt": "Hi", **fields}).encode()


def _generate(**fields: Any) -> bytes:
    return json.dumps({"text": "Hi", **fields}).encode()


_REFUSED: dict[str, tuple[str, bytes, int, str | None]] = {
    "empty": (_CHAT, b"", 400, None),
    "malformed": (_CHAT, b'{"model": "tiny-llama", "messages": [', 400, None),
    "bad utf-8": (_CHAT, b'{"model": "\xff"}', 400, None),
    "lone surrogate": (_CHAT, b'{"model": "\\ud800"}', 400, None),
    "nan": (_CHAT, b'{"model": "tiny-llama", "temperature": NaN}', 400, None),
    "deep": (_CHAT, b"[" * 100_000, 400, None),
    "array": (_CHAT, b"[1,2]", 400, None),
    "null": (_CHAT, b"null", 400, None),
    "string": (_CHAT, b'"x"', 400, None),
    "empty object": (_CHAT, b"{}", 400, "model"),
    "no model": (_CHAT, json.dumps({"messages": [_USER]}).encode(), 400, "model"),
    "model null": (_CHAT, _chat(model=None), 400, "model"),
    "model number": (_CHAT, _chat(model=5), 400, "model"),
    "unknown model": (_CHAT, _chat(model="nope"), 404, "model"),
    "no messages": (_CHAT, b'{"model": "tiny-llama"}', 400, "messages"),
    "messages text": (_CHAT, _chat(messages="Hi"), 400, "messages"),
    "messages empty": (_CHAT, _chat(messages=[]), 400, "messages"),
    "message text": (_CHAT, _chat(messages=["Hi"]), 400, "messages[0]"),
    "no role": (_CHAT, _chat(messages=[_USER, {"content": "x"}]), 400, "messages[1].role"),
    "content number": (_CHAT, _chat(messages=[{"role": "user", "content": 5}]), 400, "messages[0].content"),
    "content part": (_CHAT, _chat(messages=[{"role": "user", "content": ["x"]}]), 400, "messages[0].content"),
    "part without text": (
        _CHAT,
        _chat(messages=[{"role": "user", "content": [{"type": "text"}]}]),
        400,
        "messages[0].content",
    ),
    "stream text": (_CHAT, _chat(stream="yes"), 400, "stream"),
    "stream number": (_CHAT, _chat(stream=1), 400, "stream"),
    "stream options": (_CHAT, _chat(stream_options=[]), 400, "stream_options"),
    "max_tokens text": (_CHAT, _chat(max_tokens="5"), 400, "max_tokens"),
    "max_tokens negative": (_CHAT, _chat(max_tokens=-5), 400, "max_tokens"),
    "max_tokens fraction": (_CHAT, _chat(max_tokens=1.5), 400, "max_tokens"),
    "max_tokens true": (_CHAT, _chat(max_tokens=True), 400, "max_tokens"),
    "max_tokens huge": (_CHAT, _chat(max_tokens=10**30), 400, "max_tokens"),
    "max_completion_tokens": (_CHAT, _chat(max_completion_tokens=-1), 400, "max_completion_tokens"),
    "n zero": (_CHAT, _chat(n=0), 400, "n"),
    "n large": (_CHAT, _chat(n=1000), 400, "n"),
    "temperature text": (_CHAT, _chat(temperature="hot"), 400, "temperature"),
    "temperature negative": (_CHAT, _chat(temperature=-1), 400, "temperature"),
    "top_p high": (_CHAT, _chat(top_p=1.5), 400, "top_p"),
    "stop number": (_CHAT, _chat(stop=5), 400, "stop"),
    "tools object": (_CHAT, _chat(tools={}), 400, "tools"),
    "rid list": (_CHAT, _chat(rid=["a"]), 400, "rid"),
    "chat ids outside": (_CHAT, _chat(input_ids=[5, 1000]), 400, "input_ids"),
    "no prompt": (_TEXT, b'{"model": "tiny-llama"}', 400, "prompt"),
    "prompt number": (_TEXT, _text(prompt=5), 400, "prompt"),
    "prompt empty list": (_TEXT, _text(prompt=[]), 400, "prompt"),
    "prompt mixed": (_TEXT, _text(prompt=["a", 5]), 400, "prompt"),
    "prompt mixed lists": (_TEXT, _text(prompt=[[1], 5]), 400, "prompt"),
    "id outside": (_TEXT, _text(prompt=[5, 99_999_999]), 400, "prompt"),
    "id at the size": (_TEXT, _text(prompt=[5, 1000]), 400, "prompt"),
    "id negative": (_TEXT, _text(prompt=[5, -1]), 400, "prompt"),
    "id fraction": (_TEXT, _text(prompt=[5, 1.0]), 400, "prompt"),
    "id true": (_TEXT, _text(prompt=[5, True]), 400, "prompt"),
    "id huge": (_TEXT, _text(prompt=[5, 10**25]), 400, "prompt"),
    "ids in a batch": (_TEXT, _text(prompt=[[5, 6], [7, 1000]]), 400, "prompt"),
    "ids over the context": (_TEXT, _text(prompt=[5] * 8193), 400, "prompt"),
    "generate nothing": (_GENERATE, b"{}", 400, None),
    "generate both": (_GENERATE, _generate(input_ids=[1]), 400, None),
    "generate text number": (_GENERATE, _generate(text=5), 400, None),
    "generate id outside": (_GENERATE, json.dumps({"input_ids": [1, 1000]}).encode(), 400, None),
    "generate batch outside": (_GENERATE, json.dumps({"input_ids": [[1], [1000]]}).encode(), 400, None),
    "generate params": (_GENERATE, _generate(sampling_params=5), 400, None),
    "generate n": (_GENERATE, _generate(sampling_params={"n": 0}), 400, None),
    "generate tokens": (_GENERATE, _generate(sampling_params={"max_new_tokens": "x"}), 400, None),
    "tokenize nothing": ("/v1/tokenize", b'{"model": "tiny-llama"}', 400, "prompt"),
    "detokenize outside": (
        "/v1/detokenize",
        json.dumps({"model": "tiny-llama", "tokens": [1, 5000]}).encode(),
        400,
        "tokens",
    ),
    "detokenize text": ("/v1/detokenize", json.dumps({"model": "tiny-llama", "tokens": "x"}).encode(), 400, "tokens"),
}


@pytest.mark.parametrize("case", _REFUSED)
def test_body_is_refused_by_the_router(one: RunningRouter, engine: ScriptedEngine, case: str) -> None:
    path, body, want_status, want_param = _REFUSED[case]
    before = len(engine.requests)
    answer = rawhttp.exchange(one.host, one.port, rawhttp.post(path, body), wait_close=False)
    assert answer.status == want_status
    error = answer.json()["error"]
    assert error["message"]
    if path == _GENERATE:
        assert error["code"] == want_status
    else:
        assert error.keys() == {"message", "type", "param", "code"}
        assert error["param"] == want_param
        assert error["type"] == "invalid_request_error"
    assert len(engine.requests) == before


_PASSED = {
    "all fields": (_CHAT, _chat(max_tokens=0, n=2, temperature=0, top_p=1, stop=["a"], tools=[], logit_bias={"5": 1})),
    "nulls": (_CHAT, _chat(max_tokens=None, stop=None, stream=None, n=None)),
    "unknown field": (_CHAT, _chat(zzz={"a": [1]})),
    "tools nested deep": (_CHAT, _chat(tools=[_deep(500)])),
    "media nested deep": (_CHAT, _chat(messages=[{"role": "user", "content": [{"type": "x", "x": _deep(500)}]}])),
    "parts": (_CHAT, _chat(messages=[{"role": "user", "content": [{"type": "text", "text": "x"}]}])),
    "tool answer": (_CHAT, _chat(messages=[_USER, {"role": "assistant", "content": None, "tool_calls": []}])),
    "alias": (_CHAT, _chat(model="other/name")),
    "adapter": (_CHAT, _chat(model="tiny-llama:adapter")),
    "ids": (_TEXT, _text(prompt=[0, 999])),
    "batch of ids": (_TEXT, _text(prompt=[[0, 999], [1]])),
    "batch of text": (_TEXT, _text(prompt=["a", "b"])),
    "generate": (_GENERATE, _generate(sampling_params={"max_new_tokens": 3})),
    "generate ids": (_GENERATE, json.dumps({"input_ids": [1, 2]}).encode()),
    "tokenize": ("/v1/tokenize", b'{"model": "tiny-llama", "prompt": "x"}'),
    "detokenize": ("/v1/detokenize", b'{"model": "tiny-llama", "tokens": [1, 2]}'),
    "unknown field of another kind": ("/v1/detokenize", b'{"model": "tiny-llama", "tokens": [1, 2], "n": "many"}'),
}


@pytest.mark.parametrize("case", _PASSED)
def test_valid_body_reaches_the_engine(one: RunningRouter, engine: ScriptedEngine, case: str) -> None:
    path, body = _PASSED[case]
    before = len(engine.requests)
    assert rawhttp.exchange(one.host, one.port, rawhttp.post(path, body), wait_close=False).status == 200
    assert len(engine.requests) == before + 1


_ROUTES = {
    "unknown path": ("GET", "/nope", 404, "not_found"),
    "health is no client path": ("GET", "/health", 404, "not_found"),
    "admin is no client path": ("GET", "/state", 404, "not_found"),
    "engine control": ("POST", "/flush_cache", 404, "not_found"),
    "server info": ("GET", "/server_info", 404, "not_found"),
    "get on post": ("GET", _CHAT, 405, None),
    "post on models": ("POST", "/v1/models", 405, None),
    "delete": ("DELETE", _CHAT, 405, None),
    "unknown model": ("GET", "/v1/models/nope", 404, "model_not_found"),
}


@pytest.mark.parametrize("case", _ROUTES)
def test_routes(one: RunningRouter, case: str) -> None:
    method, path, want_status, want_code = _ROUTES[case]
    answer = rawhttp.exchange(one.host, one.port, f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), False)
    assert answer.status == want_status
    assert answer.json()["error"]["code"] == want_code
    assert ("allow" in answer.headers) == (want_status == 405)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
def test_other_content_types_are_refused(one: RunningRouter, engine: ScriptedEngine, kind: str) -> None:
    before = len(engine.requests)
    body = _chat()
    head = f"POST {_CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    assert rawhttp.exchange(one.host, one.port, head.encode() + body).status == 400
    assert len(engine.requests) == before


def test_encoded_body_is_refused(one: RunningRouter) -> None:
    answer = rawhttp.exchange(one.host, one.port, rawhttp.post(_CHAT, _chat(), "Content-Encoding: gzip"))
    assert answer.status == 415


def test_models_are_listed_from_the_route_table(one: RunningRouter) -> None:
    listed = rawhttp.exchange(one.host, one.port, b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", False).json()
    assert [(model["id"], model["parent"]) for model in listed["data"]] == [
        ("tiny-llama", None),
        ("other/name", "tiny-llama"),
    ]
    assert listed["data"][0]["max_model_len"] == 8192
    for path in (b"other/name", b"other%2Fname"):
        request = b"GET /v1/models/%b HTTP/1.1\r\nHost: x\r\n\r\n" % path
        assert rawhttp.exchange(one.host, one.port, request, False).json()["id"] == "other/name"


def test_refusals_are_counted_by_reason(one: RunningRouter) -> None:
    rawhttp.exchange(one.host, one.port, rawhttp.post(_CHAT, b"{"), wait_close=False)
    assert one.metric("shoal_router_requests_total", code="400", reason="invalid_request") >= 1
    assert one.metric("shoal_router_requests_total", code="404", reason="unknown_path") >= 0
