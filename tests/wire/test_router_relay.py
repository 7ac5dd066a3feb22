"""What passes through: bytes as they came but for the spliced fields; what the client asked for and nothing more."""

import json
import threading
from typing import Any

import pytest

from shoal_testing import rawhttp
from shoal_testing.engines import engines
from shoal_testing.routers import SERVICE, RunningRouter, router, service
from shoal_testing.scripted_engine import DONE, Call, chat_event, scripted_engine, usage_event

pytestmark = pytest.mark.wire

_CHAT = "/v1/chat/completions"
_BODY = b'{ "messages":[{"role":"user","content":"H\\u00e9 \\"model\\": 1"}],\n "zzz" : 1.50 , "model":"%b"%b}'


def _ask(one: RunningRouter, body: bytes, *headers: str, path: str = _CHAT) -> rawhttp.Answer:
    return rawhttp.exchange(one.host, one.port, rawhttp.post(path, body, *headers), wait_close=False)


def _usage_answer(call: Call) -> None:
    events = [chat_event("a"), chat_event("b")]
    if call.request.json().get("stream_options", {}).get("include_usage"):
        events.append(usage_event(14, 2, 7))
    call.events(*events)


def test_body_is_passed_byte_for_byte_but_for_the_minted_id() -> None:
    with scripted_engine(lambda call: call.answer(200, b"{}")) as engine, router({"a": engine.url}) as one:
        body = _BODY % (b"tiny-llama", b"")
        _ask(one, body)
        (sent,) = engine.requests
        rid = sent.json()["rid"]
        assert sent.body == b'{"rid":"%b",' % rid.encode() + body[1:]
        assert len(rid) == 32
        assert sent.headers["content-type"] == "application/json"


def test_alias_becomes_the_served_name_and_own_id_is_kept() -> None:
    with (
        scripted_engine(lambda call: call.answer(200, b"{}")) as engine,
        router({"a": engine.url}, services=[service(aliases=["org/alias"])]) as one,
    ):
        _ask(one, _BODY % (b"org\\/alias", b',"rid":"mine"'))
        assert engine.requests[0].body == _BODY % (b"tiny-llama", b',"rid":"mine"')


@pytest.mark.parametrize("empty", [b"null", b'""'])
def test_an_empty_id_is_replaced_where_it_stands(empty: bytes) -> None:
    with scripted_engine(lambda call: call.answer(200, b"{}")) as engine, router({"a": engine.url}) as one:
        _ask(one, _BODY % (b"tiny-llama", b',"rid":' + empty))
        (sent,) = engine.requests
        rid = sent.json()["rid"]
        assert len(rid) == 32
        assert sent.body == _BODY % (b"tiny-llama", b',"rid":"%b"' % rid.encode())


def test_headers_pass_but_for_hop_by_hop_and_internal_ones() -> None:
    with (
        scripted_engine(lambda call: call.answer(200, b"{}", "x-engine: 1", "server: y")) as engine,
        router({"a": engine.url}) as one,
    ):
        answer = _ask(
            one,
            _BODY % (b"tiny-llama", b""),
            "X-Custom: Value",
            "traceparent: 00-1-2-01",
            "Authorization: Bearer k",
            "Connection: X-Hop",
            "X-Hop: 1",
            "X-Shoal-Model: a",
            "x-override-rid: b",
            "Accept-Encoding: gzip",
        )
        sent = engine.requests[0].headers
        assert (sent["x-custom"], sent["traceparent"], sent["authorization"]) == ("Value", "00-1-2-01", "Bearer k")
        assert not {"x-hop", "connection", "x-shoal-model", "x-override-rid", "accept-encoding"} & sent.keys()
        assert answer.headers["x-engine"] == "1"
        assert "server" not in answer.headers


def test_client_that_did_not_ask_for_usage_does_not_see_it_and_the_router_learns_it() -> None:
    with scripted_engine(_usage_answer) as engine, router({"a": engine.url}) as one:
        answer = _ask(one, _BODY % (b"tiny-llama", b',"stream":true'))
        assert answer.body == chat_event("a") + chat_event("b") + DONE
        assert engine.requests[0].json()["stream_options"] == {"include_usage": True}
        one.wait(lambda it: it.service_state()["prompt_tokens_total"] == 14)
        assert one.service_state()["cached_tokens_total"] == 7


@pytest.mark.parametrize(
    ("options", "want_usage"),
    [({"include_usage": True}, True), ({"include_usage": False}, False), ({}, False), (None, False)],
)
def test_client_that_said_something_about_usage_gets_just_that(options: Any, want_usage: bool) -> None:
    def script(call: Call) -> None:
        asked = (call.request.json()["stream_options"] or {}).get("include_usage")
        call.events(chat_event("a"), *([usage_event(14, 1, 7)] if asked else []))

    with scripted_engine(script) as engine, router({"a": engine.url}) as one:
        extra = b',"stream":true,"stream_options":' + json.dumps(options).encode()
        answer = _ask(one, _BODY % (b"tiny-llama", extra))
        assert answer.body == chat_event("a") + (usage_event(14, 1, 7) if want_usage else b"") + DONE
        assert engine.requests[0].body.endswith(_BODY[1:] % (b"tiny-llama", extra))


def test_engine_that_sends_usage_by_default_keeps_doing_so() -> None:
    script = lambda call: call.events(chat_event("a"), usage_event(14, 1, 7))  # noqa: E731
    with (
        scripted_engine(script, {"stream_response_default_include_usage": True}) as engine,
        router({"a": engine.url}) as one,
    ):
        answer = _ask(one, _BODY % (b"tiny-llama", b',"stream":true'))
        assert answer.body == chat_event("a") + usage_event(14, 1, 7) + DONE
        assert "stream_options" not in engine.requests[0].json()


@pytest.mark.parametrize("size", [1, 7, 50, 1000])
def test_stream_cut_anywhere_is_the_same_stream(size: int) -> None:
    """Chunks of the engine that are no events reach the client as the same events."""
    stream = b"".join(chat_event(f"token {index}") for index in range(20)) + usage_event(9, 20, 0) + DONE

    def script(call: Call) -> None:
        call.start_events()
        for start in range(0, len(stream), size):
            call.chunk(stream[start : start + size])
        call.end_chunks()

    with scripted_engine(script) as engine, router({"a": engine.url}) as one:
        answer = _ask(one, _BODY % (b"tiny-llama", b',"stream":true'))
        assert answer.body == stream.replace(usage_event(9, 20, 0), b"")


def test_events_arrive_as_they_are_made() -> None:
    go_on = threading.Event()

    def script(call: Call) -> None:
        call.start_events()
        call.chunk(chat_event("a"))
        go_on.wait(10)
        call.chunk(DONE)
        call.end_chunks()

    with (
        scripted_engine(script) as engine,
        router({"a": engine.url}) as one,
        rawhttp.connect(one.host, one.port) as sock,
    ):
        sock.sendall(rawhttp.post(_CHAT, _BODY % (b"tiny-llama", b',"stream":true')))
        received = b""
        while chat_event("a") not in received:
            received += sock.recv(65536)
        go_on.set()
        while not received.endswith(b"0\r\n\r\n"):
            received += sock.recv(65536)


def test_http_1_0_client_gets_a_stream_that_ends_with_the_connection() -> None:
    with scripted_engine(lambda call: call.events(chat_event("a"))) as engine, router({"a": engine.url}) as one:
        body = _BODY % (b"tiny-llama", b',"stream":true')
        head = f"POST {_CHAT} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        with rawhttp.connect(one.host, one.port) as sock:
            sock.sendall(head + body)
            received = b""
            while data := sock.recv(65536):
                received += data
        assert b"transfer-encoding" not in received
        assert received.endswith(b"\r\n\r\n" + chat_event("a") + DONE)


def test_large_answer_passes_unchanged() -> None:
    text = "x" * (3 << 20)
    answer_body = json.dumps({"text": text, "usage": {"prompt_tokens": 5, "completion_tokens": 6}}).encode()
    with scripted_engine(lambda call: call.answer(200, answer_body)) as engine, router({"a": engine.url}) as one:
        answer = _ask(one, _BODY % (b"tiny-llama", b""))
        assert answer.body == answer_body
        assert answer.headers["content-length"] == str(len(answer_body))
        one.wait(lambda it: it.service_state()["output_tokens_total"] == 6)


def test_engine_errors_come_in_the_api_s_shape_without_the_engine_s_insides() -> None:
    flat = {"object": "error", "message": 'bad thing\n\n  File "/site/x.py", line 1', "type": "Bad", "code": 400}
    replies = [(400, json.dumps(flat).encode()), (500, b"Internal Server Error"), (400, b'{"error":"unknown field"}')]

    def script(call: Call) -> None:
        call.answer(*replies[call.number])

    with scripted_engine(script) as engine, router({"a": engine.url}) as one:
        first, second = (_ask(one, _BODY % (b"tiny-llama", b"")) for _ in range(2))
        assert (first.status, first.json()["error"]["message"]) == (400, "bad thing")
        assert first.json()["error"]["type"] == "invalid_request_error"
        assert (second.status, second.json()["error"]["type"]) == (500, "server_error")
        third = _ask(one, b'{"text":"x"}', path="/generate")
        assert (third.status, third.json()["error"]) == (
            400,
            {"message": "unknown field", "type": "invalid_request_error", "code": 400},
        )
        assert len(engine.requests) == 3


@pytest.mark.parametrize("stream", [False, True])
def test_explain_headers_on_request_only(stream: bool) -> None:
    with engines(2) as fleet, router({"a": fleet[0].url, "b": fleet[1].url}) as one:
        body = json.dumps(
            {
                "model": "tiny-llama",
                "messages": [{"role": "user", "content": "Hi " * 2000}],
                "stream": stream,
                "max_tokens": 2,
            }
        ).encode()
        plain, first, second = (
            _ask(one, body, *extra) for extra in ((), ("x-shoal-explain: 1",), ("x-shoal-explain: 1",))
        )
        assert not [name for name in plain.headers if name.startswith("x-shoal")]
        assert first.headers["x-shoal-replica"] == second.headers["x-shoal-replica"]
        assert int(second.headers["x-shoal-matched-tokens"]) > 1000
        assert second.headers["x-shoal-attempt"] == "1"
        assert {
            "x-shoal-queue-ms",
            "x-shoal-cost-ms",
            "x-shoal-cost-terms-ms",
            "x-shoal-prompt-tokens",
        } <= second.headers.keys()


def test_debug_route_reserves_nothing() -> None:
    with engines(2) as fleet, router({"a": fleet[0].url, "b": fleet[1].url}) as one:
        body = json.dumps({"model": "tiny-llama", "messages": [{"role": "user", "content": "Hi"}]}).encode()
        host, _, port = one.admin.removeprefix("http://").partition(":")
        answer = rawhttp.exchange(host, int(port), rawhttp.post("/debug/route", body), wait_close=False).json()
        assert {candidate["replica"] for candidate in answer["candidates"]} == {"a", "b"}
        assert {"cost_s", "busy_s", "work_s", "matched_tokens", "room"} <= answer["candidates"][0].keys()
        state = one.service_state(SERVICE)
        assert (state["requests_total"], [one["in_flight_requests"] for one in state["replicas"]]) == (0, [0, 0])


def test_every_api_against_the_simulator() -> None:
    with engines(1) as fleet, router({"a": fleet[0].url}) as one:
        chat = _ask(one, b'{"model":"tiny-llama","messages":[{"role":"user","content":"Hi"}],"max_tokens":3}').json()
        text = _ask(one, b'{"model":"tiny-llama","prompt":"Hi","max_tokens":3}', path="/v1/completions").json()
        native = _ask(one, b'{"text":"Hi","sampling_params":{"max_new_tokens":3}}', path="/generate").json()
        ids = _ask(one, b'{"model":"tiny-llama","prompt":"Hi there"}', path="/v1/tokenize").json()
        assert chat["usage"]["completion_tokens"] == text["usage"]["completion_tokens"] == 3
        assert native["meta_info"]["completion_tokens"] == 3
        assert len(chat["id"]) == len(native["meta_info"]["id"]) == 32
        back = _ask(one, json.dumps({"model": "tiny-llama", "tokens": ids["tokens"]}).encode(), path="/v1/detokenize")
        assert back.json()["text"].startswith("Hi there")
        one.wait(lambda it: it.metric("shoal_router_requests_total", code="200", reason="ok") == 5)
