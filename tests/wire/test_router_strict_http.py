"""What is no well-formed HTTP, too large or too slow is answered by the router itself and reaches no engine."""

import contextlib
import itertools
import json
import select
import threading
from collections.abc import Iterator

import pytest

from shoal_testing import rawhttp
from shoal_testing.routers import RunningRouter, router
from shoal_testing.scripted_engine import DONE, Call, ScriptedEngine, chat_event, scripted_engine

pytestmark = pytest.mark.wire

_CHAT = json.dumps({"model": "tiny-llama", "messages": [{"role": "user", "content": "Hi"}]}).encode()
_HOST = b"Host: x\r\n"
_JSON = b"Content-Type: application/json\r\n"


@pytest.fixture(scope="module")
def engine() -> Iterator[ScriptedEngine]:
    with scripted_engine(lambda call: call.answer(200, b'{"choices":[],"usage":{"prompt_tokens":3}}')) as running:
        yield running


@pytest.fixture(scope="module")
def one(engine: ScriptedEngine) -> Iterator[RunningRouter]:
    with router({"a": engine.url}, table={"body_bytes_max": 1 << 20}) as running:
        yield running


def _request(headers: bytes, body: bytes = b"", line: bytes = b"POST /v1/chat/completions HTTP/1.1\r\n") -> bytes:
    return line + headers + b"\r\n" + body


_LENGTH = b"Content-Length: %d\r\n" % len(_CHAT)
_CHUNKED = b"Transfer-Encoding: chunked\r\n"
_ONE_CHUNK = b"%x\r\n%b\r\n0\r\n\r\n" % (len(_CHAT), _CHAT)
_GOOD = _HOST + _JSON + _LENGTH

_MALFORMED = {
    "no host": _request(_JSON + _LENGTH, _CHAT),
    "two hosts": _request(_HOST + _GOOD, _CHAT),
    "empty host": _request(b"Host:\r\n" + _JSON + _LENGTH, _CHAT),
    "host with space": _request(b"Host: a b\r\n" + _JSON + _LENGTH, _CHAT),
    "length and coding": _request(_GOOD + _CHUNKED, _ONE_CHUNK),
    "coding and length": _request(_HOST + _JSON + _CHUNKED + _LENGTH, _ONE_CHUNK),
    "two lengths": _request(_GOOD + _LENGTH, _CHAT),
    "different lengths": _request(_GOOD + b"Content-Length: 3\r\n", _CHAT),
    "length list": _request(_HOST + _JSON + b"Content-Length: 5, 5\r\n", b"12345"),
    "length with plus": _request(_HOST + _JSON + b"Content-Length: +5\r\n", b"12345"),
    "length in hex": _request(_HOST + _JSON + b"Content-Length: 0x5\r\n", b"12345"),
    "length with underscore": _request(_HOST + _JSON + b"Content-Length: 1_0\r\n", b"1234567890"),
    "negative length": _request(_HOST + _JSON + b"Content-Length: -1\r\n", _CHAT),
    "coding twice": _request(_HOST + _JSON + _CHUNKED + _CHUNKED, _ONE_CHUNK),
    "gzip, chunked": _request(_HOST + _JSON + b"Transfer-Encoding: gzip, chunked\r\n", _ONE_CHUNK),
    "coding x": _request(_HOST + _JSON + b"Transfer-Encoding: xchunked\r\n", _ONE_CHUNK),
    "coding in 1.0": _request(_HOST + _JSON + _CHUNKED, _ONE_CHUNK, b"POST /v1/chat/completions HTTP/1.0\r\n"),
    "bare lf in header": _request(_GOOD.replace(b"Host: x\r\n", b"Host: x\n"), _CHAT),
    "bare lf everywhere": _request(_GOOD, b"").replace(b"\r\n", b"\n") + _CHAT,
    "bare cr in value": _request(_GOOD + b"X-A: a\rb\r\n", _CHAT),
    "bare lf in chunk": _request(_HOST + _JSON + _CHUNKED, _ONE_CHUNK.replace(b"\r\n", b"\n", 1)),
    "bad chunk size": _request(_HOST + _JSON + _CHUNKED, b"zz\r\n{}\r\n0\r\n\r\n"),
    "chunk longer than its size": _request(_HOST + _JSON + _CHUNKED, b"1\r\n{}\r\n0\r\n\r\n"),
    "folded header": _request(_GOOD + b"X-A: a\r\n b\r\n", _CHAT),
    "folded first header": _request(b" x: y\r\n" + _GOOD, _CHAT),
    "space before colon": _request(_GOOD + b"X-A : a\r\n", _CHAT),
    "tab before colon": _request(_GOOD + b"X-A\t: a\r\n", _CHAT),
    "space before length's colon": _request(_HOST + _JSON + b"Content-Length : 5\r\n", b"12345"),
    "nul in value": _request(_GOOD + b"X-A: a\0b\r\n", _CHAT),
    "nul in name": _request(_GOOD + b"X\0A: a\r\n", _CHAT),
    "no colon": _request(_GOOD + b"X-A\r\n", _CHAT),
    "empty name": _request(_GOOD + b": a\r\n", _CHAT),
    "no version": _request(_GOOD, _CHAT, b"POST /v1/chat/completions\r\n"),
    "lower-case version": _request(_GOOD, _CHAT, b"POST /v1/chat/completions http/1.1\r\n"),
    "spaces in target": _request(_GOOD, _CHAT, b"POST /v1/chat/ completions HTTP/1.1\r\n"),
    "connect": _request(_HOST, b"", b"CONNECT x:80 HTTP/1.1\r\n"),
    "http2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "tls hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "expect something else": _request(_GOOD + b"Expect: magic\r\n", _CHAT),
    "pipelined": _request(_GOOD, _CHAT) * 2,
    "pipelined get": _request(_HOST, b"", b"GET /v1/models HTTP/1.1\r\n") * 2,
    "bytes after the body": _request(_GOOD, _CHAT) + b"X",
}


@pytest.mark.parametrize("case", _MALFORMED)
def test_malformed_http_is_refused_and_closed(one: RunningRouter, engine: ScriptedEngine, case: str) -> None:
    before = len(engine.requests)
    answer = rawhttp.exchange(one.host, one.port, _MALFORMED[case])
    assert answer.status in (400, 417, 505)
    assert answer.closed
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert len(engine.requests) == before


_ACCEPTED = {
    "plain": _request(_GOOD, _CHAT),
    "chunked": _request(_HOST + _JSON + _CHUNKED, _ONE_CHUNK),
    "chunked with extension and trailer": _request(
        _HOST + _JSON + _CHUNKED, b"%x;a=b\r\n%b\r\n0\r\nX-T: 1\r\n\r\n" % (len(_CHAT), _CHAT)
    ),
    "absolute form": _request(_GOOD, _CHAT, b"POST http://x/v1/chat/completions?a=b HTTP/1.1\r\n"),
    "empty line before": b"\r\n" + _request(_GOOD, _CHAT),
    "no content type": _request(_HOST + _LENGTH, _CHAT),
    "content type with charset": _request(
        _HOST + _LENGTH + b"Content-Type: Application/JSON; charset=utf-8\r\n", _CHAT
    ),
    "upgrade offered": _request(
        _GOOD + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n", _CHAT
    ),
    "1.0 without host": _request(_JSON + _LENGTH, _CHAT, b"POST /v1/chat/completions HTTP/1.0\r\n"),
}


@pytest.mark.parametrize("case", _ACCEPTED)
def test_well_formed_http_reaches_an_engine_once(one: RunningRouter, engine: ScriptedEngine, case: str) -> None:
    before = len(engine.requests)
    answer = rawhttp.exchange(one.host, one.port, _ACCEPTED[case], wait_close=False)
    assert answer.status == 200
    (request,) = engine.requests[before:]
    assert request.json()["messages"] == json.loads(_CHAT)["messages"]
    assert request.headers["host"] == engine.url.removeprefix("http://")
    assert not {"upgrade", "connection", "transfer-encoding", "http2-settings"} & request.headers.keys()


@pytest.mark.parametrize("cut", [1, 20, 60, 90, -1])
def test_request_may_arrive_in_pieces(one: RunningRouter, cut: int) -> None:
    data = _request(_GOOD, _CHAT)
    with rawhttp.connect(one.host, one.port) as sock:
        sock.sendall(data[:cut])
        assert not rawhttp.closed_within(sock, 0.05)
        sock.sendall(data[cut:])
        assert rawhttp.read_answer(sock, wait_close=False).status == 200


def test_connection_is_kept_after_answers_and_after_errors(one: RunningRouter) -> None:
    bad_json = _request(_HOST + _JSON + b"Content-Length: 1\r\n", b"{")
    unknown = _request(_HOST, b"", b"GET /nope HTTP/1.1\r\n")
    with rawhttp.connect(one.host, one.port) as sock:
        for data, want in (
            (_request(_GOOD, _CHAT), 200),
            (bad_json, 400),
            (unknown, 404),
            (_request(_GOOD, _CHAT), 200),
        ):
            sock.sendall(data)
            assert rawhttp.read_answer(sock, wait_close=False).status == want


def test_connection_close_is_honoured(one: RunningRouter) -> None:
    answer = rawhttp.exchange(one.host, one.port, _request(_GOOD + b"Connection: close\r\n", _CHAT))
    assert (answer.status, answer.closed, answer.headers["connection"]) == (200, True, "close")


def test_large_header_is_431(one: RunningRouter, engine: ScriptedEngine) -> None:
    before = len(engine.requests)
    answer = rawhttp.exchange(one.host, one.port, _request(_GOOD + b"X-A: %b\r\n" % (b"a" * 65536), _CHAT))
    assert (answer.status, answer.closed) == (431, True)
    endless = rawhttp.exchange(one.host, one.port, b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * 9000)
    assert (endless.status, endless.closed) == (431, True)
    assert len(engine.requests) == before


def test_large_body_is_413_before_it_is_read(one: RunningRouter, engine: ScriptedEngine) -> None:
    before = len(engine.requests)
    announced = rawhttp.exchange(one.host, one.port, _request(_HOST + _JSON + b"Content-Length: 1048577\r\n"))
    assert (announced.status, announced.closed) == (413, True)
    with rawhttp.connect(one.host, one.port) as sock:
        sock.sendall(_request(_HOST + _JSON + _CHUNKED))
        for _ in range(17):
            sock.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
        answer = rawhttp.read_answer(sock)
    assert (answer.status, answer.closed) == (413, True)
    assert answer.json()["error"]["message"]
    assert len(engine.requests) == before


def test_body_at_the_limit_passes(one: RunningRouter, engine: ScriptedEngine) -> None:
    pad = (1 << 20) - len(_CHAT)
    body = _CHAT[:-1] + b" " * pad + b"}"
    answer = rawhttp.exchange(one.host, one.port, rawhttp.post("/v1/chat/completions", body), wait_close=False)
    assert answer.status == 200
    assert engine.requests[-1].body.endswith(b" " * pad + b"}")


def test_expect_continue_is_answered_before_the_body(one: RunningRouter) -> None:
    with rawhttp.connect(one.host, one.port) as sock:
        sock.sendall(_request(_GOOD + b"Expect: 100-continue\r\n"))
        assert rawhttp.read_answer(sock, wait_close=False).status == 100
        sock.sendall(_CHAT)
        assert rawhttp.read_answer(sock, wait_close=False).status == 200


def test_expect_continue_is_not_answered_for_a_body_that_is_refused(one: RunningRouter) -> None:
    head = _HOST + _JSON + b"Content-Length: 9999999\r\nExpect: 100-continue\r\n"
    answer = rawhttp.exchange(one.host, one.port, _request(head))
    assert (answer.status, answer.closed) == (413, True)


def test_pipelining_while_a_stream_runs_closes_after_it() -> None:
    more = threading.Event()

    def script(call: Call) -> None:
        call.start_events()
        call.chunk(chat_event("a"))
        more.wait(10)
        call.chunk(DONE)
        call.end_chunks()

    with scripted_engine(script) as streaming, router({"a": streaming.url}) as two:
        data = rawhttp.post("/v1/chat/completions", _CHAT[:-1] + b',"stream":true}')
        with rawhttp.connect(two.host, two.port) as sock:
            sock.sendall(data)
            begun = sock.recv(65536)
            sock.sendall(data)
            assert not rawhttp.closed_within(sock, 0.1)
            more.set()
            answer = rawhttp.read_answer(sock, buffer=begun)
        assert answer.body.endswith(DONE)
        assert answer.closed
        assert len(streaming.requests) == 1


def test_slow_headers_get_408_and_silent_connections_are_closed() -> None:
    with router({}, table={"header_timeout_s": 0.5, "idle_timeout_s": 0.5}) as two:
        with rawhttp.connect(two.host, two.port) as sock:
            assert rawhttp.closed_within(sock, 8)
        with rawhttp.connect(two.host, two.port) as sock:
            sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n")
            answer = rawhttp.read_answer(sock)
            assert (answer.status, answer.closed) == (408, True)
        with rawhttp.connect(two.host, two.port) as sock:
            sock.sendall(b"POST / HTTP/1.1\r\n")
            for _ in range(40):
                if rawhttp.closed_within(sock, 0.1):
                    break
                sock.sendall(b"X")
            else:
                pytest.fail("bytes that come slowly moved the header's deadline")
        with rawhttp.connect(two.host, two.port) as sock:
            sock.sendall(_request(_HOST, b"", b"GET /v1/models HTTP/1.1\r\n"))
            assert rawhttp.read_answer(sock, wait_close=False).status == 200
            assert rawhttp.closed_within(sock, 8)


def test_trailers_are_no_headers(one: RunningRouter, engine: ScriptedEngine) -> None:
    trailers = b"X-T: 1\r\nX-Shoal-Explain: 1\r\nContent-Type: text/plain\r\n"
    data = _request(_HOST + _JSON + _CHUNKED, b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(_CHAT), _CHAT, trailers))
    answer = rawhttp.exchange(one.host, one.port, data, wait_close=False)
    assert answer.status == 200
    assert "x-shoal-replica" not in answer.headers
    assert "x-t" not in engine.requests[-1].headers


@pytest.mark.parametrize(
    "padding", [b"0\r\nX-T: ", b"0\r\n" + b"A: b\r\n" * 100, b"1;a="], ids=["value", "lines", "extension"]
)
def test_endless_trailers_and_extensions_are_refused(
    one: RunningRouter, engine: ScriptedEngine, padding: bytes
) -> None:
    before = len(engine.requests)
    with rawhttp.connect(one.host, one.port) as sock:
        sock.sendall(_request(_HOST + _JSON + _CHUNKED, b"1\r\n{\r\n" + padding))
        filler = (padding.removeprefix(b"0\r\n") if padding.endswith(b"\n") else b"x") * 4096
        with contextlib.suppress(ConnectionError):
            for _ in range(1024):
                sock.sendall(filler[:4096])
                if select.select([sock], [], [], 0)[0]:
                    break
        answer = rawhttp.read_answer(sock)
    assert (answer.status, answer.closed) == (431, True)
    assert len(engine.requests) == before


def test_body_of_tiny_chunks_is_put_together(one: RunningRouter, engine: ScriptedEngine) -> None:
    body = json.dumps({**json.loads(_CHAT), "pad": "p" * 20_000}).encode()
    sizes = itertools.cycle((1, 2, 3, 5000, 1))
    chunks, at = [], 0
    while at < len(body):
        piece = body[at : at + next(sizes)]
        chunks.append(b"%x\r\n%b\r\n" % (len(piece), piece))
        at += len(piece)
    data = _request(_HOST + _JSON + _CHUNKED, b"".join(chunks) + b"0\r\n\r\n")
    assert rawhttp.exchange(one.host, one.port, data, wait_close=False).status == 200
    assert engine.requests[-1].json()["pad"] == "p" * 20_000


def test_empty_line_between_requests_begins_none() -> None:
    with router({}, table={"header_timeout_s": 0.2}) as one, rawhttp.connect(one.host, one.port) as sock:
        for _ in range(2):
            sock.sendall(_request(_HOST, b"", b"GET /v1/models HTTP/1.1\r\n"))
            assert rawhttp.read_answer(sock, wait_close=False).status == 200
            sock.sendall(b"\r\n")
            assert not rawhttp.closed_within(sock, 0.5)
