"""Clients that read slowly, stop reading, or go away: the engine feels it, the router's memory does not."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from shoal_testing import rawhttp
from shoal_testing.engines import engines
from shoal_testing.routers import RunningRouter, router
from shoal_testing.scripted_engine import DONE, Call, chat_event, scripted_engine

pytestmark = pytest.mark.wire

_CHAT = "/v1/chat/completions"


def _body(**fields: object) -> bytes:
    message = {"role": "user", "content": "Hi"}
    return json.dumps({"model": "tiny-llama", "messages": [message], "stream": True, **fields}).encode()


def _rss_bytes(one: RunningRouter) -> int:
    for line in Path(f"/proc/{one.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


class Flood:
    """An engine that sends as fast as it is read, and counts."""

    def __init__(self, events: int) -> None:
        self.events = events
        self.sent_bytes = 0
        self.finished = threading.Event()
        self.gone = threading.Event()

    def __call__(self, call: Call) -> None:
        event = chat_event("x" * 4000)
        call.sock.settimeout(60)
        try:
            call.start_events()
            for _ in range(self.events):
                call.chunk(event)
                self.sent_bytes += len(event)
            call.chunk(DONE)
            call.end_chunks()
            self.finished.set()
        finally:
            self.gone.set()


def test_slow_reader_pauses_its_engine_and_gets_everything() -> None:
    flood = Flood(2000)  # 8 MB
    with scripted_engine(flood) as engine, router({"a": engine.url}) as one:
        before = _rss_bytes(one)
        with rawhttp.connect(one.host, one.port, deadline_s=25, receive_bytes=65536) as sock:
            sock.sendall(rawhttp.post(_CHAT, _body()))
            first = sock.recv(1024)
            seen = -1

            def still(_: RunningRouter) -> bool:
                nonlocal seen
                stalled = seen == flood.sent_bytes
                seen = flood.sent_bytes
                threading.Event().wait(0.2)
                return stalled

            one.wait(still)
            assert not flood.finished.is_set()
            assert flood.sent_bytes < 2 << 20  # what kernels buffer on two loopback connections; the rest waits
            assert _rss_bytes(one) - before < 4 << 20
            answer = rawhttp.read_answer(sock, wait_close=False, buffer=first)
        assert answer.body.count(b"data: {") == 2000
        assert answer.body.endswith(DONE)


def test_reader_that_stopped_is_cut_and_its_engine_let_go() -> None:
    flood = Flood(5000)
    with scripted_engine(flood) as engine, router({"a": engine.url}, table={"write_stall_timeout_s": 0.5}) as one:
        with rawhttp.connect(one.host, one.port, receive_bytes=65536) as sock:
            sock.sendall(rawhttp.post(_CHAT, _body()))
            assert flood.gone.wait(10)
            assert not flood.finished.is_set()
        one.wait(lambda it: it.metric("shoal_router_client_write_stalls_total") == 1)
        one.wait(lambda it: it.service_state()["replicas"][0]["in_flight_requests"] == 0)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[str, RunningRouter]]:
    with engines(1) as fleet, router({"a": fleet[0].url}) as one:
        yield fleet[0].url, one


def _running(url: str) -> int:
    loads = httpx.get(f"{url}/v1/loads").json()["loads"]
    return int(sum(load["num_running_reqs"] + load["num_waiting_reqs"] for load in loads))


@pytest.mark.parametrize("stream", [True, False])
def test_client_that_goes_away_ends_its_request_on_the_engine(pair: tuple[str, RunningRouter], stream: bool) -> None:
    url, one = pair
    before = one.metric("shoal_router_aborts_total")
    with rawhttp.connect(one.host, one.port) as sock:
        sock.sendall(rawhttp.post(_CHAT, _body(stream=stream, max_tokens=20000, ignore_eos=True)))
        one.wait(lambda _: _running(url) == 1)
    one.wait(lambda _: _running(url) == 0, deadline_s=3)
    one.wait(lambda it: it.metric("shoal_router_aborts_total") == before + 1)
    assert one.service_state()["replicas"][0]["in_flight_requests"] == 0
    assert one.metric("shoal_router_requests_total", code="499", reason="client_gone") >= 1


def test_many_clients_that_go_away_leave_nothing_behind(pair: tuple[str, RunningRouter]) -> None:
    url, one = pair
    socks = [rawhttp.connect(one.host, one.port) for _ in range(100)]
    for sock in socks:
        sock.sendall(rawhttp.post(_CHAT, _body(max_tokens=20000, ignore_eos=True)))
    one.wait(lambda _: _running(url) > 50)
    for sock in socks:
        sock.close()
    one.wait(lambda _: _running(url) == 0)
    one.wait(lambda it: it.service_state()["replicas"][0]["in_flight_requests"] == 0)
    replica = one.service_state()["replicas"][0]
    assert (replica["in_flight_tokens"], replica["in_flight_work_s"]) == (0, 0.0)
    assert one.service_state()["queue"]["requests"] == 0


def test_abort_names_the_minted_id_and_never_a_short_one_of_the_client() -> None:
    def script(call: Call) -> None:
        call.start_events()
        call.chunk(chat_event("a"))
        call.wait_gone()

    with scripted_engine(script) as engine, router({"a": engine.url}) as one:
        for body in (_body(), _body(rid="a"), _body(rid="b" * 40)):
            with rawhttp.connect(one.host, one.port) as sock:
                sock.sendall(rawhttp.post(_CHAT, body))
                assert sock.recv(65536)
            one.wait(lambda it: it.service_state()["replicas"][0]["in_flight_requests"] == 0)
        minted = engine.requests[0].json()["rid"]
        one.wait(lambda _: len(engine.aborted) >= 2)
        assert sorted(engine.aborted) == sorted([minted, "b" * 40])


def test_waiting_client_that_goes_away_leaves_the_queue() -> None:
    go_on = threading.Event()

    def script(call: Call) -> None:
        go_on.wait(10)
        call.events(chat_event("a"))

    with scripted_engine(script, {"max_running_requests": 1}) as engine, router({"a": engine.url}) as one:
        with rawhttp.connect(one.host, one.port) as first:
            first.sendall(rawhttp.post(_CHAT, _body()))
            one.wait(lambda _: len(engine.requests) == 1)
            with rawhttp.connect(one.host, one.port) as second:
                second.sendall(rawhttp.post(_CHAT, _body()))
                one.wait(lambda it: it.service_state()["queue"]["requests"] == 1)
            one.wait(lambda it: it.service_state()["queue"]["requests"] == 0)
            go_on.set()
            assert rawhttp.read_answer(first, wait_close=False).status == 200
        assert len(engine.requests) == 1


_LARGE = json.dumps({"object": "chat.completion", "x": "y" * ((256 << 10) + 64)}).encode()


def test_client_that_got_slow_with_the_last_bytes_stops_nobody_else() -> None:
    """Its engine connection, paused as the answer ended, serves the next request as any other."""
    with (
        scripted_engine(lambda call: call.answer(200, _LARGE)) as engine,
        router({"a": engine.url}) as one,
        rawhttp.connect(one.host, one.port, receive_bytes=4096) as slow,
    ):
        slow.sendall(rawhttp.post(_CHAT, _body(stream=False)))
        one.wait(lambda it: it.metric("shoal_router_requests_total", code="200") == 1)
        connections = engine.connections
        for _ in range(connections):
            data = rawhttp.post(_CHAT, _body(stream=False))
            assert rawhttp.exchange(one.host, one.port, data, wait_close=False).body == _LARGE
        assert rawhttp.read_answer(slow, wait_close=False).body == _LARGE


def test_answers_do_not_pile_up_for_a_client_that_takes_none() -> None:
    with scripted_engine(lambda call: call.answer(200, _LARGE)) as engine, router({"a": engine.url}) as one:
        with rawhttp.connect(one.host, one.port, receive_bytes=4096) as sock:
            data = rawhttp.post(_CHAT, _body(stream=False))
            sock.sendall(data)
            one.wait(lambda it: it.metric("shoal_router_requests_total", code="200") == 1)
            sock.sendall(data)
            other = rawhttp.exchange(one.host, one.port, data, wait_close=False)
            assert (other.status, len(engine.requests)) == (200, 2)  # not 3: its second request has not been read
            received = b""
            while received.count(_LARGE) < 2:
                received += sock.recv(1 << 18)
        assert len(engine.requests) == 3
