"""Readiness, route tables that change, draining of replicas and of the router itself, rooms without replicas."""

import contextlib
import json
import threading

import pytest

from shoal_testing import rawhttp
from shoal_testing.engines import engines
from shoal_testing.routers import RunningRouter, router, service
from shoal_testing.scripted_engine import DONE, Call, chat_event, scripted_engine

pytestmark = pytest.mark.wire

_CHAT = "/v1/chat/completions"


def _body(**fields: object) -> bytes:
    message = {"role": "user", "content": "Hi"}
    return json.dumps({"model": "tiny-llama", "messages": [message], "stream": True, **fields}).encode()


def _ask(one: RunningRouter, body: bytes, *headers: str) -> rawhttp.Answer:
    return rawhttp.exchange(one.host, one.port, rawhttp.post(_CHAT, body, *headers), wait_close=False)


class Gate:
    """Streams that wait in the middle until the test lets them go on."""

    def __init__(self) -> None:
        self.open = threading.Event()

    def __call__(self, call: Call) -> None:
        call.start_events()
        call.chunk(chat_event("begun"))
        self.open.wait(20)
        call.chunk(DONE)
        call.end_chunks()


def test_no_replica_is_503_with_retry_after_and_the_router_is_ready() -> None:
    with router({}) as one:
        answer = _ask(one, _body())
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) >= 1
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("overloaded_error", "no_replica")
        assert one.get("/readyz")[0] == 200


def test_not_ready_and_503_before_the_route_table_is_read() -> None:
    with router({}, wait_ready=False) as one:
        one.wait(lambda it: it.get("/readyz")[0] == 200)
    with router({}, services=[]) as one:
        assert _ask(one, _body()).status == 404


def test_requests_wait_for_the_first_replica_where_the_service_scales_from_zero() -> None:
    with (
        engines(1) as fleet,
        router({}, services=[service(scale_from_zero=True)]) as one,
        rawhttp.connect(one.host, one.port) as sock,
    ):
        sock.sendall(rawhttp.post(_CHAT, _body(max_tokens=2)))
        one.wait(lambda it: it.service_state()["queue"]["no_replica_requests"] == 1)
        one.write_replicas({"a": fleet[0].url})
        assert rawhttp.read_answer(sock, wait_close=False).status == 200


def test_waiting_too_long_is_503_with_retry_after() -> None:
    gate = Gate()
    queue = {"queue": {"ttl_s": 0.3}}
    with (
        scripted_engine(gate, {"max_running_requests": 1}) as engine,
        router({"a": engine.url}, services=[service(**queue)]) as one,
        rawhttp.connect(one.host, one.port) as sock,
    ):
        sock.sendall(rawhttp.post(_CHAT, _body()))
        one.wait(lambda _: len(engine.requests) == 1)
        answer = _ask(one, _body())
        assert (answer.status, answer.json()["error"]["code"]) == (503, "expired")
        assert int(answer.headers["retry-after"]) >= 1
        gate.open.set()


def test_full_queue_is_503_with_retry_after() -> None:
    gate = Gate()
    queue = {"queue": {"requests_max": 1}}
    with (
        scripted_engine(gate, {"max_running_requests": 1}) as engine,
        router({"a": engine.url}, services=[service(**queue)]) as one,
        rawhttp.connect(one.host, one.port) as first,
        rawhttp.connect(one.host, one.port) as second,
    ):
        for sock in (first, second):
            sock.sendall(rawhttp.post(_CHAT, _body()))
        one.wait(lambda it: it.service_state()["queue"]["requests"] == 1)
        answer = _ask(one, _body())
        assert (answer.status, answer.json()["error"]["code"]) == (503, "queue_full")
        assert int(answer.headers["retry-after"]) >= 1
        gate.open.set()
        assert [rawhttp.read_answer(sock, wait_close=False).status for sock in (first, second)] == [200, 200]


def test_caller_that_fills_the_queue_for_all_is_429_with_retry_after() -> None:
    gate = Gate()
    mine, other = (f"Authorization: Bearer {name}" for name in ("mine", "other"))
    with (
        scripted_engine(gate, {"max_running_requests": 1}) as engine,
        router({"a": engine.url}, services=[service(queue={"requests_max": 3})]) as one,
        contextlib.ExitStack() as stack,
    ):
        socks = [stack.enter_context(rawhttp.connect(one.host, one.port)) for _ in range(4)]
        for place, (sock, who) in enumerate(zip(socks, (mine, mine, mine, other), strict=True)):
            sock.sendall(rawhttp.post(_CHAT, _body(), who))
            one.wait(lambda it, waiting=place: it.service_state()["queue"]["requests"] == waiting)
        for who, want in ((mine, (429, "tenant_limit")), (other, (503, "queue_full"))):
            answer = _ask(one, _body(), who)
            assert (answer.status, answer.json()["error"]["code"]) == want
            assert int(answer.headers["retry-after"]) >= 1
        gate.open.set()
        assert [rawhttp.read_answer(sock, wait_close=False).status for sock in socks] == [200] * 4


def test_drained_replica_gets_nothing_new_and_finishes_what_it_has() -> None:
    gate = Gate()
    with scripted_engine(gate) as a, engines(1) as fleet, router({"a": a.url}) as one:
        with rawhttp.connect(one.host, one.port) as sock:
            sock.sendall(rawhttp.post(_CHAT, _body()))
            one.wait(lambda _: len(a.requests) == 1)
            one.write_replicas({"a": a.url, "b": fleet[0].url})
            one.wait_routable("b")
            one.write_routes([service(draining=["a"])], generation="g2")
            one.wait(lambda it: it.state()["routes_generation"] == "g2")
            assert one.states() == {"a": "Draining", "b": "Routable"}
            assert all(_ask(one, _body(max_tokens=2)).status == 200 for _ in range(5))
            assert len(a.requests) == 1
            gate.open.set()
            assert rawhttp.read_answer(sock, wait_close=False).body.endswith(DONE)
        one.wait(lambda it: all(r["in_flight_requests"] == 0 for r in it.service_state()["replicas"]))


def test_replica_that_is_no_longer_listed_finishes_its_stream() -> None:
    gate = Gate()
    with scripted_engine(gate) as a, router({"a": a.url}) as one, rawhttp.connect(one.host, one.port) as sock:
        sock.sendall(rawhttp.post(_CHAT, _body()))
        one.wait(lambda _: len(a.requests) == 1)
        one.write_replicas({})
        one.wait(lambda it: it.states() == {})
        assert _ask(one, _body()).status == 503
        gate.open.set()
        assert rawhttp.read_answer(sock, wait_close=False).body.endswith(DONE)


def test_unlisted_replica_that_is_gone_ends_its_streams() -> None:
    with engines(1) as fleet, router({"a": fleet[0].url}) as one, rawhttp.connect(one.host, one.port) as sock:
        sock.sendall(rawhttp.post(_CHAT, _body(max_tokens=5000, ignore_eos=True)))
        assert sock.recv(1024)
        fleet[0].stop_signal()
        one.write_replicas({})
        received = b""
        while data := sock.recv(1 << 20):
            received += data
        assert b'data: {"error"' in received


def test_route_tables_change_while_running() -> None:
    with engines(1) as fleet, router({"a": fleet[0].url}) as one:
        one.write_routes([service(aliases=["other"])], generation="g2")
        one.wait(lambda it: it.state()["routes_generation"] == "g2")
        assert _ask(one, _body(model="other", max_tokens=2)).status == 200
        (one.folder / "routes.json").write_text("{ not json")
        one.wait(lambda it: "not valid" in it.log.read_text())
        assert _ask(one, _body(model="other", max_tokens=2)).status == 200
        one.write_routes([], generation="g3")
        one.wait(lambda it: it.state()["routes_generation"] == "g3")
        assert _ask(one, _body()).status == 404


def test_restarted_engine_has_an_empty_mirror() -> None:
    with scripted_engine(lambda call: call.events(chat_event("a"))) as a, router({"a": a.url}) as one:
        long = _body(messages=[{"role": "user", "content": "word " * 4000}])
        host, _, port = one.admin.removeprefix("http://").partition(":")

        def matched() -> int:
            answer = rawhttp.exchange(host, int(port), rawhttp.post("/debug/route", long), wait_close=False).json()
            return int(answer["candidates"][0]["matched_tokens"]) if answer["candidates"] else -1

        assert matched() == 0
        assert _ask(one, long).status == 200
        assert matched() > 1000
        a.info["random_seed"] = 2
        a.healthy = False
        one.wait(lambda it: it.states()["a"] == "Ejected")
        a.healthy = True
        one.wait(lambda it: it.states()["a"] == "Routable" and matched() == 0)


def test_unready_engine_gets_nothing_new_and_keeps_its_streams() -> None:
    gate = Gate()
    with scripted_engine(gate) as a, router({"a": a.url}) as one, rawhttp.connect(one.host, one.port) as sock:
        sock.sendall(rawhttp.post(_CHAT, _body()))
        one.wait(lambda _: len(a.requests) == 1)
        a.healthy = False
        one.wait(lambda it: it.states()["a"] == "Ejected")
        gate.open.set()
        assert rawhttp.read_answer(sock, wait_close=False).body.endswith(DONE)


def test_sigterm_finishes_streams_and_closes_idle_connections() -> None:
    gate = Gate()
    with scripted_engine(gate) as engine, router({"a": engine.url}, "--listen-after-term-s", "1.5") as one:
        idle = rawhttp.connect(one.host, one.port)
        busy = rawhttp.connect(one.host, one.port)
        with idle, busy:
            idle.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
            assert rawhttp.read_answer(idle, wait_close=False).status == 200
            busy.sendall(rawhttp.post(_CHAT, _body()))
            one.wait(lambda _: len(engine.requests) == 1)
            one.terminate()
            one.wait(lambda it: it.get("/readyz")[0] == 503)
            late = rawhttp.exchange(one.host, one.port, b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (late.status, late.headers["connection"], late.closed) == (200, "close", True)
            assert one.state()["draining"] is True
            assert rawhttp.closed_within(idle, 8)
            with pytest.raises(ConnectionRefusedError):
                one.wait(lambda it: rawhttp.connect(it.host, it.port).close())
            gate.open.set()
            assert rawhttp.read_answer(busy, wait_close=False).body.endswith(DONE)
        assert one.process.wait(10) == 0


def test_sigterm_cuts_what_the_grace_leaves() -> None:
    gate = Gate()
    with (
        scripted_engine(gate) as engine,
        router({"a": engine.url}, "--listen-after-term-s", "0", "--grace-s", "0.3") as one,
    ):
        with rawhttp.connect(one.host, one.port) as sock:
            sock.sendall(rawhttp.post(_CHAT, _body()))
            one.wait(lambda _: len(engine.requests) == 1)
            one.terminate()
            assert one.process.wait(10) == 0
        gate.open.set()


def test_admin_port() -> None:
    with router({}) as one:
        assert one.get("/livez") == (200, b"ok\n")
        assert one.get("/nope")[0] == 404
        host, _, port = one.admin.removeprefix("http://").partition(":")
        assert rawhttp.exchange(host, int(port), b"POST /livez HTTP/1.1\r\nHost: x\r\n\r\n").status == 405
        assert rawhttp.exchange(host, int(port), rawhttp.post("/debug/route", b"{")).status == 400
        state = one.state()
        assert (state["router"], state["discovery_synced"], state["draining"]) == ("static", True, False)


def test_requests_that_still_wait_when_the_grace_ends_are_told_so() -> None:
    gate = Gate()
    with (
        scripted_engine(gate, {"max_running_requests": 1}) as engine,
        router({"a": engine.url}, "--listen-after-term-s", "0", "--grace-s", "0.3") as one,
        rawhttp.connect(one.host, one.port) as first,
        rawhttp.connect(one.host, one.port) as second,
    ):
        for sock in (first, second):
            sock.sendall(rawhttp.post(_CHAT, _body()))
        one.wait(lambda it: it.service_state()["queue"]["requests"] == 1)
        one.terminate()
        answers = [sock.recv(65536) for sock in (first, second)]
        waiting = next(answer for answer in answers if b" 503 " in answer[:16])
        assert b'"code":"draining"' in waiting
        assert b"retry-after: " in waiting
        assert one.process.wait(10) == 0
        gate.open.set()
