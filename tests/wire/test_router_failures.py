"""Engines that die, hang, refuse or talk nonsense: what is retried, what ends with an error event, how soon."""

import contextlib
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from shoal_testing import rawhttp
from shoal_testing.engines import SimulatedEngine, engines
from shoal_testing.routers import RunningRouter, router
from shoal_testing.scripted_engine import DONE, Call, Request, Script, ScriptedEngine, chat_event, scripted_engine

pytestmark = pytest.mark.wire

_CHAT = "/v1/chat/completions"
ERROR_DEADLINE_S = 5.0
"""The promise of the product: a stream on a dead or hung engine ends within so many seconds. The only asserted time."""
SLACK_S = 5.0
"""For a test machine that does other things too: what is to be seen is seconds, not a client's time limit."""


def _body(stream: bool = True, **fields: object) -> bytes:
    message = {"role": "user", "content": "Hi"}
    return json.dumps({"model": "tiny-llama", "messages": [message], "stream": stream, **fields}).encode()


def _ask(one: RunningRouter, body: bytes, path: str = _CHAT) -> rawhttp.Answer:
    return rawhttp.exchange(one.host, one.port, rawhttp.post(path, body), wait_close=False)


def _good(call: Call) -> None:
    if call.request.json().get("stream"):
        call.events(chat_event("good"))
    else:
        call.answer(200, b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}')


def _first_fails(bad: Script) -> Script:
    """The first request that any of the engines gets meets `bad`, all others succeed."""
    lock = threading.Lock()
    met = []

    def script(call: Call) -> None:
        with lock:
            first = not met
            met.append(1)
        (bad if first else _good)(call)

    return script


def _error_event(code: int) -> bytes:
    error = {"object": "error", "message": "The request queue is full.", "type": "X", "param": None, "code": code}
    return b"data: " + json.dumps({"error": error}).encode() + b"\n\n"


def _reset_before_head(call: Call) -> None:
    """Late: a reset at once on a used connection says that it was idle for too long."""
    threading.Event().wait(0.4)
    call.reset()


def _close_in_head(call: Call) -> None:
    call.send(b"HTTP/1.1 200 OK\r\ncontent-")
    call.close()


def _close_before_first_event(call: Call) -> None:
    call.start_events()
    call.chunk(b"data: {")
    call.close()


def _status(status: int, *headers: str) -> Script:
    return lambda call: call.answer(status, b'{"object":"error","message":"busy","code":%d}' % status, *headers)


def _huge_head(call: Call) -> None:
    call.send(b"HTTP/1.1 200 OK\r\n" + b"x-a: %b\r\n" % (b"b" * 1000) * 1000 + b"\r\n")
    call.wait_gone()


def _garbage(call: Call) -> None:
    call.send(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    call.wait_gone()


def _bad_chunk(call: Call) -> None:
    call.start_events()
    call.send(b"zz\r\n")
    call.wait_gone()


def _done_without_event(call: Call) -> None:
    call.start_events()
    call.end_chunks()


_BEFORE_FIRST_BYTE: dict[str, Script] = {
    "reset before the head": _reset_before_head,
    "closed in the head": _close_in_head,
    "closed before the first event": _close_before_first_event,
    "502": _status(502),
    "503": _status(503),
    "504": _status(504),
    "queue full in the stream": lambda call: call.events(_error_event(503)),
    "error 500 in the stream": lambda call: call.events(_error_event(500)),
    "huge head": _huge_head,
    "garbage": _garbage,
    "bad chunk": _bad_chunk,
    "stream without an event": _done_without_event,
    "interim flood": lambda call: call.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 50),
}


@dataclass
class Pair:
    """Two scripted engines behind a router that a module's tests share."""

    engines: tuple[ScriptedEngine, ScriptedEngine]
    one: RunningRouter

    def set(self, script: Script) -> None:
        for engine in self.engines:
            engine.script = script
            engine.requests.clear()

    @property
    def requests(self) -> list[Request]:
        return [request for engine in self.engines for request in engine.requests]


@pytest.fixture(scope="module")
def shared() -> Iterator[Pair]:
    with scripted_engine(_good) as a, scripted_engine(_good) as b, router({"a": a.url, "b": b.url}) as one:
        yield Pair((a, b), one)


@pytest.fixture
def pair(shared: Pair) -> Iterator[Pair]:
    """Afterwards both engines have succeeded again, so that no test finds a circuit open."""
    yield shared
    shared.set(_good)
    shared.one.wait(lambda one: _ask(one, _body(seed=random.randrange(1 << 30))).status == 200 and _both_used(shared))
    shared.one.wait(lambda one: set(one.states().values()) == {"Routable"})


def _both_used(pair: Pair) -> bool:
    return all(engine.requests for engine in pair.engines)


@pytest.mark.parametrize("case", _BEFORE_FIRST_BYTE)
def test_failure_before_the_first_byte_is_retried_elsewhere(pair: Pair, case: str) -> None:
    pair.set(_first_fails(_BEFORE_FIRST_BYTE[case]))
    before = pair.one.metric("shoal_router_retries_total")
    answer = _ask(pair.one, _body())
    assert (answer.status, answer.body) == (200, chat_event("good") + DONE)
    first, second = pair.requests
    assert _both_used(pair)
    assert first.json()["rid"] == second.json()["rid"]
    assert pair.one.metric("shoal_router_retries_total") == before + 1


def _truncate_answer(call: Call) -> None:
    call.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")
    call.close()


def test_answer_that_is_cut_before_it_is_whole_is_asked_for_elsewhere(pair: Pair) -> None:
    pair.set(_first_fails(_truncate_answer))
    answer = _ask(pair.one, _body(stream=False))
    assert (answer.status, answer.json()["usage"]["completion_tokens"]) == (200, 1)


def test_request_that_engines_are_lost_with_is_tried_twice_only() -> None:
    """It may be what kills them."""
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(scripted_engine(_reset_before_head)) for _ in range(4)]
        one = stack.enter_context(router({str(index): engine.url for index, engine in enumerate(found)}))
        assert _ask(one, _body()).status == 502
        assert sum(len(engine.requests) for engine in found) == 2


@pytest.mark.parametrize("status", [400, 401, 404, 422, 429, 500])
def test_other_statuses_are_final(pair: Pair, status: int) -> None:
    pair.set(_status(status))
    answer = _ask(pair.one, _body())
    assert (answer.status, answer.json()["error"]["message"]) == (status, "busy")
    assert len(pair.requests) == 1
    assert set(pair.one.states().values()) == {"Routable"}


def test_error_400_in_the_stream_is_final(pair: Pair) -> None:
    pair.set(lambda call: call.events(_error_event(400)))
    assert _ask(pair.one, _body()).body == _error_event(400) + DONE
    assert len(pair.requests) == 1


def test_all_replicas_refusing_is_503_with_retry_after_and_a_bounded_number_of_tries() -> None:
    with (
        scripted_engine(_status(503)) as a,
        scripted_engine(_status(503)) as b,
        router(
            {"a": a.url, "b": b.url}, services=[{"name": "svc", "served_name": "tiny-llama", "queue": {"ttl_s": 5}}]
        ) as one,
    ):
        answers = [_ask(one, _body()) for _ in range(30)]
        assert {answer.status for answer in answers} == {503}
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in answers)
        tries = len(a.requests) + len(b.requests)
        assert 30 < tries < 60
        assert one.metric("shoal_router_retries_total") == tries - 30


def test_retry_after_of_an_engine_is_honoured() -> None:
    def script(call: Call) -> None:
        _status(503, "retry-after: 2")(call) if call.number == 0 else _good(call)

    with scripted_engine(script) as a, router({"a": a.url}) as one:
        began = time.monotonic()
        assert _ask(one, _body()).status == 503
        assert _ask(one, _body()).status == 200
        assert time.monotonic() - began > 1.9, "a promise about time: not asked again before its two seconds are over"
        assert one.states() == {"a": "Routable"}


def test_connection_closed_while_idle_is_no_failure() -> None:
    """An engine that closes kept-alive connections: the request is sent again, on a new one, to the same engine."""

    def script(call: Call) -> None:
        _good(call)
        if call.number == 0:
            call.close()

    with scripted_engine(script) as a, router({"a": a.url}) as one:
        assert [_ask(one, _body()).status for _ in range(3)] == [200, 200, 200]
        assert len(a.requests) == 3
        assert one.metric("shoal_router_retries_total") == 0


def test_bytes_after_an_answer_never_reach_the_next_request() -> None:
    def script(call: Call) -> None:
        body = b'{"n":%d}' % call.number
        call.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%bHTTP/1.1 200 OK\r\n"
            b"content-length: 4\r\n\r\nevil" % (len(body), body)
        )

    with scripted_engine(script) as a, router({"a": a.url}) as one:
        assert [_ask(one, _body(stream=False)).body for _ in range(3)] == [b'{"n":0}', b'{"n":1}', b'{"n":2}']


def _begin(call: Call) -> None:
    call.start_events()
    call.chunk(chat_event("begun"))


def _then(end: Callable[[Call], None]) -> Script:
    def script(call: Call) -> None:
        _begin(call)
        threading.Event().wait(0.2)  # a read of its own: what fails before the client has a byte is tried again
        end(call)

    return script


_MID_STREAM: dict[str, Script] = {
    "reset": _then(Call.reset),
    "closed between chunks": _then(Call.close),
    "ended without done": _then(Call.end_chunks),
    "closed inside a chunk": _then(lambda call: (call.send(b"ff\r\ndata: {"), call.close())[-1]),
    "closed inside an event": _then(lambda call: (call.chunk(b'data: {"choi'), call.close())[-1]),
    "bad chunk": _then(lambda call: (call.send(b"zz\r\n"), call.wait_gone())[-1]),
}


@pytest.mark.parametrize("case", _MID_STREAM)
def test_stream_that_breaks_ends_with_an_error_event_and_a_close(pair: Pair, case: str) -> None:
    pair.set(_MID_STREAM[case])
    before = pair.one.metric("shoal_router_broken_streams_total")
    answer = rawhttp.exchange(pair.one.host, pair.one.port, rawhttp.post(_CHAT, _body()))
    assert (answer.status, answer.closed) == (200, True)
    assert answer.body.startswith(chat_event("begun") + b"data: ")
    error = json.loads(answer.body.removeprefix(chat_event("begun")).removeprefix(b"data: "))["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert len(pair.requests) == 1
    assert pair.one.metric("shoal_router_broken_streams_total") == before + 1


def test_engine_that_keeps_failing_is_taken_out_and_tried_again() -> None:
    bad = threading.Event()
    bad.set()
    script = lambda call: call.reset() if bad.is_set() else _good(call)  # noqa: E731
    with scripted_engine(script) as a, scripted_engine(_good) as b, router({"a": a.url, "b": b.url}) as one:
        for index in range(60):
            body = json.dumps(
                {"model": "tiny-llama", "messages": [{"role": "user", "content": f"{index}"}], "stream": True}
            ).encode()
            assert _ask(one, body).status == 200
            if one.states()["a"] == "Ejected":
                break
        else:
            pytest.fail("never ejected")
        assert one.metric("shoal_router_ejections_total", reason="breaker") == 1
        bad.clear()
        one.wait(lambda it: it.states()["a"] == "Routable")


def test_first_event_of_a_stream_ends_the_probation_of_a_replica_that_came_back() -> None:
    """Not its last: a stream may take minutes, and until then one request at a time would be let through."""
    go_on = threading.Event()

    def script(call: Call) -> None:
        call.start_events()
        call.chunk(chat_event("a"))
        if call.number == 0:
            go_on.wait(20)
        call.chunk(DONE)
        call.end_chunks()

    with scripted_engine(script) as engine, router({"a": engine.url}) as one:
        engine.healthy = False
        one.wait(lambda it: it.states()["a"] == "Ejected")
        engine.healthy = True
        one.wait(lambda it: it.states()["a"] == "Routable")
        with rawhttp.connect(one.host, one.port) as sock:
            sock.sendall(rawhttp.post(_CHAT, _body()))
            begun = sock.recv(1024)
            assert _ask(one, _body()).body.endswith(DONE)
            go_on.set()
            assert rawhttp.read_answer(sock, wait_close=False, buffer=begun).body.endswith(DONE)


def test_half_of_the_replicas_stay_whatever_fails() -> None:
    script = lambda call: call.reset()  # noqa: E731
    with scripted_engine(script) as a, scripted_engine(script) as b, router({"a": a.url, "b": b.url}) as one:
        for _ in range(12):
            assert _ask(one, _body()).status == 502
            assert "Routable" in one.states().values()


# Real engine processes


class Stream(threading.Thread):
    """One streamed request, read to its end in a thread."""

    def __init__(self, one: RunningRouter, number: int, tokens: int) -> None:
        super().__init__(daemon=True)
        content = f"{number} " * 50
        self._data = rawhttp.post(
            _CHAT,
            json.dumps(
                {
                    "model": "tiny-llama",
                    "messages": [{"role": "user", "content": content}],
                    "stream": True,
                    "max_tokens": tokens,
                    "ignore_eos": True,
                }
            ).encode(),
            "x-shoal-explain: 1",
        )
        self._address = (one.host, one.port)
        self.received = b""
        self.ended_s = 0.0
        self.start()

    def run(self) -> None:
        with rawhttp.connect(*self._address, deadline_s=30) as sock:
            sock.sendall(self._data)
            while data := sock.recv(65536):
                self.received += data
                if data.endswith(b"0\r\n\r\n"):
                    break
        self.ended_s = time.monotonic()

    @property
    def begun(self) -> bool:
        return b'"content":' in self.received

    @property
    def complete(self) -> bool:
        return b"data: [DONE]" in self.received and b'"error"' not in self.received

    @property
    def broken(self) -> bool:
        return b'data: {"error"' in self.received and b"[DONE]" not in self.received

    def on(self, name: str) -> bool:
        return f"x-shoal-replica: {name}\r\n".encode() in self.received


def _run_streams(one: RunningRouter, count: int, tokens: int) -> list[Stream]:
    streams = [Stream(one, number, tokens) for number in range(count)]
    one.wait(lambda _: all(stream.begun for stream in streams), 20)
    return streams


def _check_loss(streams: list[Stream], name: str, lost_s: float) -> None:
    for stream in streams:
        stream.join(25)
        assert not stream.is_alive()
    lost = [stream for stream in streams if stream.on(name)]
    assert lost
    assert all(stream.broken for stream in lost)
    assert all(stream.complete for stream in streams if not stream.on(name))
    assert max(stream.ended_s for stream in lost) - lost_s < ERROR_DEADLINE_S + SLACK_S


def _named(fleet: list[SimulatedEngine]) -> dict[str, str]:
    return {name: engine.url for name, engine in zip("abc", fleet, strict=True)}


@pytest.mark.parametrize("how", ["kill", "stop_signal"])
def test_one_of_three_engines_is_lost_with_streams_on_it(how: str) -> None:
    """SIGKILL, and SIGSTOP: the process hangs with its connections open."""
    with engines(3) as fleet, router(_named(fleet)) as one:
        streams = _run_streams(one, 12, 1200)
        lost_s = time.monotonic()
        getattr(fleet[1], how)()
        _check_loss(streams, "b", lost_s)
        lost = sum(stream.on("b") for stream in streams)
        assert one.metric("shoal_router_broken_streams_total") == lost
        one.wait(lambda it: it.states()["b"] == "Ejected")
        assert all(_ask(one, _body(max_tokens=2)).status == 200 for _ in range(10))
        if how == "stop_signal":
            fleet[1].continue_signal()
            one.wait(lambda it: it.states()["b"] == "Routable")


def test_scheduler_that_stops_producing_is_a_stall_although_its_server_answers() -> None:
    with engines(2) as fleet, router({"a": fleet[0].url, "b": fleet[1].url}) as one:
        streams = _run_streams(one, 6, 2500)
        lost_s = time.monotonic()
        fleet[1].fault(stall=True)
        _check_loss(streams, "b", lost_s)
        assert one.metric("shoal_router_requests_total", reason="replica_stalled") >= 1


def test_long_prefill_of_another_request_is_no_stall() -> None:
    """A running stream is silent for longer than the stall limit while the engine prefills: nothing is ejected."""
    with (
        engines(1, "--context-length", "1000000", profile="kimi-k2.5-h200", speedup=5) as fleet,
        router({"a": fleet[0].url}, services=[_slow_service()]) as one,
    ):
        running = Stream(one, 1, 300)
        one.wait(lambda _: running.begun, 20)
        long = json.dumps(
            {"model": "tiny-llama", "messages": [{"role": "user", "content": "word " * 100_000}], "max_tokens": 1}
        ).encode()
        with rawhttp.connect(one.host, one.port, deadline_s=25) as sock:
            sock.sendall(rawhttp.post(_CHAT, long))
            assert rawhttp.read_answer(sock, wait_close=False).status == 200
        running.join(25)
        assert running.complete
        assert one.metric("shoal_router_ejections_total") == 0


def _slow_service() -> dict[str, object]:
    timing = {"a_s": 0.0051, "b_s": 1e-5, "c_s": 0.69e-9, "alpha_s": 0.0008, "beta_s": 0.0005, "gamma_s": 3.2e-9}
    return {"name": "svc", "served_name": "tiny-llama", "timing": {"": timing}}


def test_waiting_requests_move_when_their_engine_hangs() -> None:
    """Nothing of them was answered yet: they are served elsewhere, not failed."""
    with engines(2) as fleet, router({"a": fleet[0].url, "b": fleet[1].url}) as one:
        fleet[1].stop_signal()
        try:
            answers: list[rawhttp.Answer] = []
            threads = [
                threading.Thread(target=lambda: answers.append(_ask(one, _body(max_tokens=2))), daemon=True)
                for _ in range(8)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(20)
            assert [answer.status for answer in answers] == [200] * 8
        finally:
            fleet[1].continue_signal()


def test_full_engine_queue_is_tried_elsewhere() -> None:
    with engines(2) as fleet, router({"a": fleet[0].url, "b": fleet[1].url}) as one:
        fleet[0].fault(reject=True)
        assert all(_ask(one, _body(stream, max_tokens=2)).status == 200 for stream in (True, False) * 5)
        assert one.states() == {"a": "Routable", "b": "Routable"}


def test_refused_connections_move_on_at_once() -> None:
    with engines(2) as fleet, router({"a": fleet[0].url, "b": fleet[1].url}) as one:
        fleet[0].kill()
        assert all(_ask(one, _body(max_tokens=2)).status == 200 for _ in range(10))
        one.wait(lambda it: it.states()["a"] == "Ejected")
