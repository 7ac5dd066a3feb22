"""Slices of a prompt when something ends or breaks: none is left on an engine, and the client gets its answer.

Scripted engines: each tokenizes, computes slices and answers as it is told, and every case breaks one of these. A
stream of another session runs beside, or nothing would be sliced.
"""

import contextlib
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from shoal_testing import rawhttp
from shoal_testing.engines import engines
from shoal_testing.routers import RunningRouter, router, service
from shoal_testing.scripted_engine import DONE, Call, Request, ScriptedEngine, chat_event, scripted_engine, usage_event

pytestmark = pytest.mark.wire

TOKENS = 16_000
INFO: dict[str, Any] = {"context_length": 200_000, "max_total_num_tokens": 1_000_000, "vocab_size": 100_000}
LEAK = "LEAK"
"""What slices generate."""
_CHAT = "/v1/chat/completions"
_NUMBERS = itertools.count()
DEADLINE_S = 10.0
HELD_S = 300.0

Deed = Callable[[Call], None]


def _is_slice(request: Request) -> bool:
    doc = request.json()
    kind = doc.get("sampling_params") or {}
    return request.path != "/v1/tokenize" and (kind.get("max_new_tokens") == 1 or doc.get("max_tokens") == 1)


def _answers_ids(call: Call) -> None:
    call.answer(200, json.dumps({"tokens": list(range(100, 100 + TOKENS)), "count": TOKENS}).encode())


def _slice_events(prompt: int, cached: int) -> bytes:
    meta = {
        "prompt_tokens": prompt,
        "completion_tokens": 1,
        "cached_tokens": cached,
        "finish_reason": {"type": "length"},
    }
    return b"data: " + json.dumps({"text": LEAK, "meta_info": meta}).encode() + b"\n\n"


@dataclass
class Engine:
    """A healthy one, but for `deeds`: by what is asked (`tokenize`, `slice 0`, `slice 1`..., `request`)."""

    deeds: dict[str, Deed] = field(default_factory=dict)
    slices: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    cached: int = 0
    """Tokens found by the first slice."""
    last: int = 0
    warm: bool = False
    """The whole prompt is in its cache."""

    def reset(self, **deeds: Deed) -> None:
        """For the next case."""
        self.deeds = {name.replace("_", " "): deed for name, deed in deeds.items()}
        self.slices, self.asked, self.cached, self.last, self.warm = [], [], 0, 0, False

    def script(self, call: Call) -> None:
        doc = call.request.json()
        if "hold" in call.request.body[-400:].decode():
            call.start_events()
            call.chunk(chat_event("held"))
            call.sock.settimeout(HELD_S)
            call.wait_gone()
            return
        if call.request.path == "/v1/tokenize":
            self._do("tokenize", call, _answers_ids)
        elif _is_slice(call.request):
            name = f"slice {len(self.slices)}"
            self.slices.append(doc)
            self._do(name, call, self.computes)
        elif "short" in call.request.body[-400:].decode():
            self._do("short", call, self.request)
        else:
            self._do("request", call, self.request)

    def _do(self, name: str, call: Call, healthy: Deed) -> None:
        self.asked.append(name)
        self.deeds.get(name, healthy)(call)

    def held(self, name: str) -> tuple[threading.Event, threading.Event]:
        """A slice that is computed when told to: it has come, and it may go on."""
        begun, go_on = threading.Event(), threading.Event()

        def waits(call: Call) -> None:
            begun.set()
            assert go_on.wait(DEADLINE_S)
            self.computes(call)

        self.deeds[name] = waits
        return begun, go_on

    def hanging(self, name: str, headers: bool = True) -> tuple[threading.Event, threading.Event]:
        """It is begun, with `headers` so that its caller sees it, and never answered: it has come, and its caller is
        gone."""
        begun, gone = threading.Event(), threading.Event()

        def hangs(call: Call) -> None:
            if headers:
                call.start_events()
            begun.set()
            call.wait_gone()
            gone.set()

        self.deeds[name] = hangs
        return begun, gone

    def computes(self, call: Call) -> None:
        """A slice."""
        doc = call.request.json()
        tokens = len(doc["input_ids"]) if "input_ids" in doc else len(call.request.body) // 4
        cached, self.last = tokens - 64 if self.warm else self.last or self.cached, tokens
        if call.request.path == "/generate":
            call.events(_slice_events(tokens, cached))
        else:
            call.events(chat_event(LEAK), usage_event(tokens, 1, cached))

    def request(self, call: Call) -> None:
        cached = TOKENS - 64 if self.warm else self.last or self.cached
        if call.request.json().get("stream"):
            call.events(chat_event("good"), usage_event(TOKENS, 1, cached))
            return
        usage = {"prompt_tokens": TOKENS, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": cached}}
        answer = {"choices": [{"message": {"content": "good"}}], "usage": usage}
        call.answer(200, json.dumps(answer, separators=(",", ":")).encode())


def _long(stream: bool = True, **fields: Any) -> bytes:
    """A prompt that no other begins as."""
    text = f"{next(_NUMBERS)} " + "word " * 1600
    messages = [{"role": ("user", "assistant")[place % 2], "content": f"{place} {text}"} for place in range(9)]
    doc = {"model": "tiny-llama", "messages": messages, "stream": stream, "user": "long", **fields}
    if stream:
        doc["stream_options"] = {"include_usage": True}
    return json.dumps(doc).encode()


def _small(word: str) -> bytes:
    messages = [{"role": "user", "content": word}]
    return json.dumps({"model": "tiny-llama", "messages": messages, "stream": True}).encode()


def _send(one: RunningRouter, body: bytes, session: str = "long") -> socket.socket:
    sock = rawhttp.connect(one.host, one.port, DEADLINE_S)
    sock.sendall(rawhttp.post(_CHAT, body, f"x-session-id: {session}", "x-shoal-explain: 1"))
    return sock


def _ask(one: RunningRouter, body: bytes) -> rawhttp.Answer:
    with _send(one, body) as sock:
        return rawhttp.read_answer(sock, wait_close=False)


@contextlib.contextmanager
def _held(one: RunningRouter) -> Iterator[None]:
    """Another session's stream, which runs until the end."""
    with _send(one, _small("hold"), "other") as sock:
        assert sock.recv(1000)
        yield


@contextlib.contextmanager
def _stage(*many: Engine) -> Iterator[tuple[RunningRouter, list[ScriptedEngine]]]:
    """A router over these engines, of which each has a stream."""
    listed = [service(itl_objective_s=0.0001)]
    with contextlib.ExitStack() as stack:
        served = [stack.enter_context(scripted_engine(each.script, INFO)) for each in many]
        urls = {f"r{place}": each.url for place, each in enumerate(served)}
        one = stack.enter_context(router({}, services=listed, wait_ready=False))
        for place in range(len(urls)):
            one.write_replicas(dict(list(urls.items())[: place + 1]))
            one.wait_routable(*list(urls)[: place + 1])
            if place == 0:
                stack.enter_context(_held(one))
        yield one, served


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[RunningRouter, Engine]]:
    """For cases that leave nothing behind."""
    engine = Engine()
    with _stage(engine) as (one, _):
        yield one, engine


def _figures(one: RunningRouter) -> tuple[float, float, float]:
    """Sliced requests, slices, failures."""
    return tuple(  # type: ignore[return-value]
        one.metric(f"shoal_router_{name}_total") for name in ("sliced_requests", "slices", "slice_failures")
    )


def _since(one: RunningRouter, before: tuple[float, float, float]) -> tuple[float, float, float]:
    requests, slices, failures = (now - then for now, then in zip(_figures(one), before, strict=True))
    return requests, slices, failures


def _only_the_held_is_left(one: RunningRouter) -> None:
    """Requests, prefill, tokens: what was reserved is back."""

    def left(_: RunningRouter) -> bool:
        state = one.service_state()
        in_flight: int = sum(each["in_flight_requests"] for each in state["replicas"])
        return in_flight == 1 and not state["queue"]["requests"]

    one.wait(left)
    assert sum(each["in_flight_tokens"] for each in one.service_state()["replicas"]) < 1000


def _good(answer: rawhttp.Answer, cached: int | None = None) -> None:
    assert answer.status == 200, answer.body
    assert b"good" in answer.body
    assert LEAK.encode() not in answer.body
    if answer.headers["content-type"].startswith("text/event-stream"):
        assert answer.body.endswith(DONE)
        assert b'"error"' not in answer.body
    if cached is not None:
        assert b'"cached_tokens":%d}' % cached in answer.body


@pytest.mark.parametrize("stream", [True, False])
def test_a_healthy_engine_gets_slices_and_the_client_is_told_what_was_cached_before(
    stream: bool, shared: tuple[RunningRouter, Engine]
) -> None:
    one, engine = shared
    engine.reset()
    engine.cached = 1024
    before = _figures(one)
    answer = _ask(one, _long(stream))
    _good(answer, cached=1024)
    requests, slices, failures = _since(one, before)
    assert (requests, failures) == (1, 0)
    assert slices == len(engine.slices) == int(answer.headers["x-shoal-slices"]) >= 4
    assert float(answer.headers["x-shoal-slices-added-ms"]) >= 0.0
    assert engine.asked == ["tokenize", *[f"slice {place}" for place in range(len(engine.slices))], "request"]
    sizes = [len(each["input_ids"]) for each in engine.slices]
    assert sizes == sorted(set(sizes))
    assert all(size % 64 == 0 for size in sizes)
    _only_the_held_is_left(one)


@pytest.mark.parametrize("stream", [True, False])
def test_a_cache_that_held_the_prompt_and_of_which_the_router_does_not_know_is_told_of(
    stream: bool, shared: tuple[RunningRouter, Engine]
) -> None:
    """As after a restart of the router."""
    one, engine = shared
    engine.reset()
    engine.warm = True
    _good(_ask(one, _long(stream)), cached=TOKENS - 64)
    assert len(engine.slices) >= 2
    _only_the_held_is_left(one)


# Ids cannot be had


def _status(status: int) -> Deed:
    return lambda call: call.answer(status, b'{"object":"error","message":"no","code":%d}' % status)


def _raw(body: bytes) -> Deed:
    return lambda call: call.answer(200, body)


def _late_reset(call: Call) -> None:
    """A reset at once on a used connection says that it was idle for too long, and is tried again."""
    threading.Event().wait(0.3)
    call.reset()


def _garbage(call: Call) -> None:
    call.send(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    call.wait_gone()


def _cut_answer(call: Call) -> None:
    call.send(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{")
    call.close()


@pytest.mark.parametrize(
    ("deed", "cut"),
    [
        pytest.param(_status(404), True, id="404"),
        pytest.param(_status(500), True, id="500"),
        pytest.param(_status(400), True, id="400"),
        pytest.param(_raw(b"{"), True, id="not JSON"),
        pytest.param(_raw(b'{"tokens": ["a", 1]}'), True, id="no ids"),
        pytest.param(_raw(b'{"tokens": []}'), True, id="empty"),
        pytest.param(_late_reset, False, id="reset"),
        pytest.param(_garbage, False, id="garbage"),
        pytest.param(_cut_answer, False, id="cut"),
    ],
)
def test_without_ids_it_goes_in_whole_messages_or_whole(
    deed: Deed, cut: bool, shared: tuple[RunningRouter, Engine]
) -> None:
    one, engine = shared
    engine.reset(tokenize=deed)
    body = _long(cache_salt="s", priority=3)
    _good(_ask(one, body))
    assert engine.asked.count("request") == 1
    assert (len(engine.slices) > 1) is cut
    messages = json.loads(body)["messages"]
    counts = [len(each["messages"]) for each in engine.slices]
    assert counts == sorted(set(counts))
    for each, count in zip(engine.slices, counts, strict=True):
        assert 0 < count < len(messages)
        assert each["messages"] == messages[:count]
        assert (each["cache_salt"], each["priority"], each["model"]) == ("s", 3, "tiny-llama")
    _only_the_held_is_left(one)


def test_a_prompt_that_is_shorter_than_it_looked_goes_whole(shared: tuple[RunningRouter, Engine]) -> None:
    one, engine = shared
    engine.reset(tokenize=_raw(b'{"tokens": [5, 6, 7]}'))
    _good(_ask(one, _long()))
    assert engine.asked == ["tokenize", "request"]
    _only_the_held_is_left(one)


# A slice fails


def _cut_stream(call: Call) -> None:
    call.start_events()
    call.chunk(_slice_events(100, 0))
    call.close()


def _no_done(call: Call) -> None:
    call.events(_slice_events(100, 0), done=False)


def _error_event(call: Call) -> None:
    call.events(b'data: {"error":{"message":"full","code":503}}\n\n')


def _aborted(call: Call) -> None:
    reason = {"type": "abort", "status_code": 503, "message": "no"}
    meta = {"prompt_tokens": 64, "completion_tokens": 0, "cached_tokens": 0, "finish_reason": reason}
    call.events(b"data: " + json.dumps({"text": LEAK, "meta_info": meta}).encode() + b"\n\n")


_BROKEN: dict[str, Deed] = {
    "400": _status(400),
    "500": _status(500),
    "503": _status(503),
    "reset": _late_reset,
    "garbage": _garbage,
    "cut": _cut_stream,
    "no end": _no_done,
    "error event": _error_event,
    "aborted": _aborted,
    "no answer that is one": _raw(b'{"text": "LEAK"}'),
}


@pytest.mark.parametrize("which", [0, 2])
@pytest.mark.parametrize("how", list(_BROKEN))
def test_after_a_slice_that_failed_the_request_goes_whole(
    how: str, which: int, shared: tuple[RunningRouter, Engine]
) -> None:
    one, engine = shared
    engine.reset(**{f"slice_{which}": _BROKEN[how]})
    before = _figures(one)
    _good(_ask(one, _long(stream=which == 0)))
    assert len(engine.slices) == which + 1
    assert engine.asked.count("request") == 1
    assert _since(one, before) == (1, which + 1, 1)
    _only_the_held_is_left(one)


# The client goes away


def test_a_client_that_leaves_while_ids_are_fetched_leaves_nothing() -> None:
    engine = Engine()
    begun, gone = engine.hanging("tokenize", headers=False)
    with _stage(engine) as (one, _):
        with _send(one, _long()):
            assert begun.wait(DEADLINE_S)
        assert gone.wait(DEADLINE_S)
        _only_the_held_is_left(one)
        assert engine.asked == ["tokenize"]


@pytest.mark.parametrize("which", [0, 1])
def test_a_client_that_leaves_during_a_slice_ends_it(which: int) -> None:
    engine = Engine()
    begun, gone = engine.hanging(f"slice {which}")
    with _stage(engine) as (one, (served,)):
        with _send(one, _long()):
            assert begun.wait(DEADLINE_S)
        assert gone.wait(DEADLINE_S)
        _only_the_held_is_left(one)
        one.wait(lambda _: engine.slices[-1]["rid"] in served.aborted)
        assert len(engine.slices) == which + 1
        assert "request" not in engine.asked


def test_a_client_that_leaves_between_slices_leaves_nothing() -> None:
    """The next slice waits for a first token that is owed."""
    engine = Engine()
    sliced, answer = engine.held("slice 0")
    owed, _ = engine.hanging("short", headers=False)
    with _stage(engine) as (one, (served,)):
        with _send(one, _long()) as sock:
            assert sliced.wait(DEADLINE_S)
            with _send(one, _small("short"), "short"):
                assert owed.wait(DEADLINE_S)
                answer.set()
                # Closed at once, so within the half second; were it later, the second slice would be aborted.
                sock.close()
                one.wait(lambda it: it.service_state()["replicas"][0]["in_flight_requests"] == 2)
        _only_the_held_is_left(one)
        assert "request" not in engine.asked
        one.wait(lambda _: {each["rid"] for each in engine.slices[1:]} <= set(served.aborted))


def test_a_client_that_leaves_during_the_last_part_ends_it() -> None:
    engine = Engine()
    begun, gone = engine.hanging("request")
    with _stage(engine) as (one, (served,)):
        with _send(one, _long()):
            assert begun.wait(DEADLINE_S)
        assert gone.wait(DEADLINE_S)
        _only_the_held_is_left(one)
        one.wait(lambda _: len(served.aborted) == 1)
        assert served.aborted[0] not in {each["rid"] for each in engine.slices}


# Its replica goes away


def test_a_replica_that_is_no_longer_listed_finishes_the_slices_that_it_has() -> None:
    engine = Engine()
    sliced, listed = engine.held("slice 1")
    with _stage(engine) as (one, _), _send(one, _long()) as sock:
        assert sliced.wait(DEADLINE_S)
        one.write_replicas({})
        one.wait(lambda it: not it.service_state()["replicas"])
        listed.set()
        _good(rawhttp.read_answer(sock, wait_close=False))
        assert len(engine.slices) >= 4


def test_a_replica_that_drains_finishes_the_slices_that_it_has() -> None:
    engine = Engine()
    sliced, draining = engine.held("slice 1")
    with _stage(engine) as (one, _), _send(one, _long()) as sock:
        assert sliced.wait(DEADLINE_S)
        one.write_routes([service(itl_objective_s=0.0001, draining=["r0"])], "g2")
        one.wait(lambda it: it.states() == {"r0": "Draining"})
        draining.set()
        _good(rawhttp.read_answer(sock, wait_close=False))
        assert len(engine.slices) >= 4
        _only_the_held_is_left(one)


@pytest.mark.parametrize("at", ["tokenize", "slice 1", "request"])
def test_an_engine_that_dies_loses_the_request_to_another(at: str) -> None:
    """Whatever it was doing for it; the other starts anew, and the client is told what that one found."""
    first, second = Engine(), Engine(cached=640)
    with _stage(first) as (one, (served,)), scripted_engine(second.script, INFO) as other:

        def dies(call: Call) -> None:
            one.write_replicas({"r0": served.url, "r1": other.url})
            one.wait_routable("r1")
            served.close_listener()
            _late_reset(call)

        first.deeds = {at: dies}
        answer = _ask(one, _long())
        _good(answer, cached=640)
        assert at in first.asked
        assert first.asked.count("request") == (at == "request")
        assert second.asked[-1] == "request"
        assert answer.headers["x-shoal-attempt"] == "2"
        assert answer.headers["x-shoal-replica"] == "r1"
        one.wait(lambda it: sum(each["in_flight_requests"] for each in it.service_state()["replicas"]) <= 1)


def test_an_engine_that_hangs_during_a_slice_loses_the_request_to_another() -> None:
    """A real process that is stopped: no byte, no answer to probes. Its prefill takes two seconds, half of a second for
    two slices."""
    listed = [service(itl_objective_s=0.0001)]
    with (
        engines(2, "--context-length", "120000", profile="study-8k") as fleet,
        router({"a": fleet[0].url}, services=listed) as one,
        _held(one),
        _send(one, _long(max_tokens=3)) as sock,
    ):
        stopped = fleet[0]
        one.wait(lambda it: it.metric("shoal_router_slices_total") >= 2)
        stopped.stop_signal()
        try:
            one.write_replicas({"a": stopped.url, "b": fleet[1].url})
            one.wait_routable("b")
            answer = rawhttp.read_answer(sock, wait_close=False)
        finally:
            stopped.continue_signal()
        assert answer.status == 200
        assert answer.body.endswith(DONE)
        assert answer.headers["x-shoal-replica"] == "b"
        assert answer.headers["x-shoal-attempt"] == "2"
        one.wait(lambda it: sum(each["in_flight_requests"] for each in it.service_state()["replicas"]) == 0)


# Bodies that are odd


@pytest.mark.parametrize("field", ["tools", "metadata", "unknown", "cache_salt"])
@pytest.mark.parametrize("ids", [True, False])
def test_a_body_that_is_nested_deeper_than_can_be_written_goes_whole(
    field: str, ids: bool, shared: tuple[RunningRouter, Engine]
) -> None:
    """It can be read. What the engine says of it is the engine's."""
    one, engine = shared
    engine.reset(**({} if ids else {"tokenize": _status(404)}))
    deep = '{"a":' * 400 + "1" + "}" * 400
    value = f"[{deep}]" if field == "tools" else deep
    body = b'{"%s": %s, ' % (field.encode(), value.encode()) + _long()[1:]
    _good(_ask(one, body))
    assert engine.asked.count("request") == 1
    _only_the_held_is_left(one)


# The router and its table


def test_a_router_that_ends_finishes_the_slices_that_it_has() -> None:
    engine = Engine()
    sliced, ending = engine.held("slice 1")
    with _stage(engine) as (one, _), _send(one, _long()) as sock:
        assert sliced.wait(DEADLINE_S)
        one.terminate()
        one.wait(lambda it: it.get("/readyz")[0] == 503)
        ending.set()
        _good(rawhttp.read_answer(sock, wait_close=False))
        assert len(engine.slices) >= 4


def test_slices_are_switched_off_and_on_while_it_runs() -> None:
    engine = Engine()
    with _stage(engine) as (one, _):
        for generation, slicing in (("g2", "Off"), ("g3", "Auto"), ("g4", "Off")):
            engine.reset()
            one.write_routes([service(itl_objective_s=0.0001, slicing=slicing)], generation)
            one.wait(lambda it, wanted=generation: it.state()["routes_generation"] == wanted)  # type: ignore[misc]
            answer = _ask(one, _long())
            _good(answer)
            assert bool(engine.slices) is (slicing == "Auto")
            assert ("x-shoal-slices" in answer.headers) is (slicing == "Auto")
            assert ("tokenize" in engine.asked) is (slicing == "Auto")
        _only_the_held_is_left(one)
