"""Simulated engines as processes: start, retry, cache, disconnects, aborts, faults, SIGTERM. Real sockets."""

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal_sim import chat_template
from shoal_sim.tokens import expected_text
from shoal_testing import enginehttp
from shoal_testing.engines import SIMULATOR, SimulatedEngine, engines, free_port

pytestmark = pytest.mark.wire

DEADLINE_S = 10.0
FAST = 20.0


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.01)


def chat(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "tiny-llama", "messages": [{"role": "user", "content": text}], **fields}


def call(engine: SimulatedEngine, body: Any, path: str = "/v1/chat/completions") -> enginehttp.Answer:
    return enginehttp.request(engine.host, engine.port, "POST", path, body)


def get(engine: SimulatedEngine, path: str) -> Any:
    return json.loads(enginehttp.request(engine.host, engine.port, "GET", path).body)


def load(engine: SimulatedEngine) -> dict[str, Any]:
    entry: dict[str, Any] = get(engine, "/v1/loads")["loads"][0]
    return entry


def text_of(events: list[str]) -> str:
    chunks = [json.loads(event.removeprefix("data: ")) for event in events if "[DONE]" not in event]
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c.get("choices"))


@contextlib.contextmanager
def open_stream(engine: SimulatedEngine, body: dict[str, Any]) -> Iterator[Any]:
    """A stream after its first event; leaving the context closes the connection."""
    body = {**body, "stream": True}
    with enginehttp.exchange(engine.host, engine.port, "POST", "/v1/chat/completions", body) as (answer, stream):
        assert answer.status == 200
        assert enginehttp.read_chunk(stream)
        yield stream


def rest_of(stream: Any) -> tuple[str, bool]:
    """Text of the remaining events, and whether the stream ended properly."""
    events: list[str] = []
    while chunk := enginehttp.read_chunk(stream):
        events.append(chunk.decode())
    return text_of(events), bool(events) and events[-1] == "data: [DONE]\n\n"


@pytest.fixture(scope="module")
def pair() -> Iterator[list[SimulatedEngine]]:
    with engines(2, "--max-running-requests", "8", "--max-queued-requests", "4", speedup=FAST) as fleet:
        yield fleet


def test_any_engine_gives_the_expected_text(pair: list[SimulatedEngine]) -> None:
    body = chat("Tell me a story", max_tokens=40)
    want = expected_text(chat_template.render(body), 40)
    for engine in pair:
        answer = json.loads(call(engine, body).body)
        assert answer["choices"][0]["message"]["content"] == want
        assert text_of(call(engine, {**body, "stream": True}).events) == want


def test_second_turn_is_cached_where_the_first_was(pair: list[SimulatedEngine]) -> None:
    body = chat("A long question. " * 200, max_tokens=200)
    first = json.loads(call(pair[0], body).body)
    answer = first["choices"][0]["message"]
    turn = {**body, "messages": [*body["messages"], answer, {"role": "user", "content": "And then?"}]}
    usage = [json.loads(call(engine, turn).body)["usage"] for engine in pair]
    whole = first["usage"]["total_tokens"]
    assert whole - 64 <= usage[0]["prompt_tokens_details"]["cached_tokens"] <= whole
    assert usage[1]["prompt_tokens_details"]["cached_tokens"] == 0


def test_tokenized_slices_warm_the_cache_for_the_chat(pair: list[SimulatedEngine]) -> None:
    body = chat("sliced prompt " * 500, max_tokens=1)
    ids = json.loads(call(pair[0], body, "/v1/tokenize").body)["tokens"]
    part = {"input_ids": ids[:1024], "sampling_params": {"max_new_tokens": 1}}
    assert call(pair[0], part, "/generate").status == 200
    usage = json.loads(call(pair[0], body).body)["usage"]
    assert usage["prompt_tokens"] == len(ids)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 1024


def test_a_burst_over_the_queue_is_refused(pair: list[SimulatedEngine]) -> None:
    engine = pair[0]
    statuses: list[int] = []

    def one(index: int) -> None:
        statuses.append(call(engine, chat(f"burst {index}", max_tokens=400)).status)

    callers = [threading.Thread(target=one, args=(i,)) for i in range(24)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(DEADLINE_S)
    assert set(statuses) == {200, 503}
    assert len(statuses) == 24
    assert load(engine)["num_used_tokens"] == 0


def test_a_caller_that_goes_away_frees_its_request(pair: list[SimulatedEngine]) -> None:
    engine = pair[0]
    with open_stream(engine, chat("endless", max_tokens=100_000)):
        assert load(engine)["num_running_reqs"] == 1
    until(lambda: load(engine)["num_running_reqs"] == 0, "the stream's request is gone")
    assert load(engine)["num_used_tokens"] == 0


def test_a_caller_that_did_not_stream_is_missed_at_the_next_look(pair: list[SimulatedEngine]) -> None:
    engine = pair[0]
    with contextlib.suppress(TimeoutError):
        enginehttp.request(
            *(engine.host, engine.port, "POST", "/v1/chat/completions", chat("endless", max_tokens=100_000)),
            timeout_s=0.05,
        )
    until(lambda: load(engine)["num_running_reqs"] == 0, "the request is gone")


def test_abort_takes_everything_that_begins_with_the_rid(pair: list[SimulatedEngine]) -> None:
    engine = pair[0]
    endless = {"max_tokens": 100_000, "stream": True}
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(open_stream(engine, chat("x", rid=rid, **endless))) for rid in ("p-1", "p-12")]
        other = stack.enter_context(open_stream(engine, chat("x", rid="q", **endless)))
        call(engine, {"rid": "p-"}, "/abort_request")
        assert sorted(get(engine, "/admin/fault")["live"]) == ["p-1", "p-12", "q"], "no request has that rid"
        call(engine, {"rid": "p-1"}, "/abort_request")
        assert [rest_of(stream)[1] for stream in streams] == [True, True]
        assert get(engine, "/admin/fault")["live"] == ["q"]
        call(engine, {"abort_all": True}, "/abort_request")
        assert rest_of(other)[1]


def test_an_rid_in_use_is_refused(pair: list[SimulatedEngine]) -> None:
    with open_stream(pair[0], chat("x", rid="twice", max_tokens=100_000)):
        answer = call(pair[0], chat("x", rid="twice", max_tokens=1))
    assert answer.status == 400
    assert json.loads(answer.body)["message"] == "Duplicate request ID detected: twice"


def test_flush_is_refused_while_requests_run(pair: list[SimulatedEngine]) -> None:
    with open_stream(pair[0], chat("x", max_tokens=100_000)):
        assert call(pair[0], None, "/flush_cache").status == 400
    assert call(pair[0], None, "/flush_cache?timeout=60").status == 200


def test_pause_holds_requests_back(pair: list[SimulatedEngine]) -> None:
    engine = pair[0]
    call(engine, {"mode": "in_place"}, "/pause_generation")
    answers: list[enginehttp.Answer] = []
    caller = threading.Thread(target=lambda: answers.append(call(engine, chat("x", rid="held", max_tokens=2))))
    caller.start()
    try:
        until(lambda: get(engine, "/admin/fault")["live"] == ["held"], "the request has arrived")
        assert engine.status_of("/ready") == 503
    finally:
        call(engine, {}, "/continue_generation")
        caller.join(DEADLINE_S)
    assert answers[0].status == 200
    assert engine.status_of("/ready") == 200


def test_a_stalled_engine_says_nothing_and_goes_on_later() -> None:
    with engines(1, speedup=FAST) as (engine,):
        body = chat("x", max_tokens=5_000)
        with open_stream(engine, body) as stream:
            engine.fault(stall=True)
            assert engine.status_of("/health") == 503, "after the engine's 20 s without an output, sped up"
            assert engine.status_of("/ready") == 503, "now it knows that it is unhealthy"
            engine.fault()
            assert engine.status_of("/health") == 200
            assert engine.status_of("/ready") == 200
            text, ended = rest_of(stream)
    assert ended
    assert expected_text(chat_template.render(body), 5_000).endswith(text)


def test_a_stream_interval_puts_several_tokens_in_one_event() -> None:
    body = chat("x", max_tokens=13, stream=True)
    with engines(1, "--stream-interval", "4") as (engine,):
        events = [json.loads(one.removeprefix("data: ")) for one in call(engine, body).events[:-1]]
    texts = [one["choices"][0]["delta"].get("content") for one in events if one["choices"]]
    shown = [text for text in texts if text]
    assert "".join(shown) == expected_text(chat_template.render(body), 13)
    # The first token at once, then three times four: fewer where the handler was late.
    assert 1 < len(shown) <= 4


def test_who_arrives_does_not_wait_for_tokens_that_nobody_is_shown() -> None:
    endless = chat("endless", max_tokens=100_000, stream=True)
    with engines(1, "--stream-interval", "100000") as (engine,), open_stream(engine, endless):
        until(lambda: load(engine)["num_running_reqs"] == 1, "it runs")
        assert call(engine, chat("short", max_tokens=2)).status == 200
        assert load(engine)["num_running_reqs"] == 1
        assert load(engine)["decode_moments"][0] >= 1


def test_a_crash_cuts_streams_off() -> None:
    with engines(1) as (engine,):
        body = chat("x", max_tokens=1000)
        engine.fault(crash_after_tokens=30)
        with open_stream(engine, body) as stream:
            text, ended = rest_of(stream)
        assert not ended
        assert expected_text(chat_template.render(body), 1000).startswith(text)
        assert engine.process.wait(DEADLINE_S) == 137


def test_an_id_outside_the_vocabulary_kills_the_engine() -> None:
    with engines(1) as (engine,):
        with pytest.raises(ConnectionError):
            call(engine, {"input_ids": [5, 1 << 40], "sampling_params": {"max_new_tokens": 1}}, "/generate")
        assert engine.process.wait(DEADLINE_S) == 137


def test_slow_ready_answers_no_until_then() -> None:
    with engines(1) as (engine,):
        engine.fault(slow_ready_s=60)
        assert (engine.status_of("/ready"), engine.status_of("/health")) == (503, 503)
        engine.fault()
        assert engine.status_of("/ready") == 200


@pytest.mark.parametrize("fault", [{"stall": "yes"}, {"unheard_of": 1}, {"crash_after_tokens": True}])
def test_a_wrong_fault_is_refused(pair: list[SimulatedEngine], fault: dict[str, Any]) -> None:
    assert call(pair[1], fault, "/admin/fault").status == 400


def test_nothing_listens_while_loading_and_sigterm_ends_it() -> None:
    with engines(1, "--load-seconds", "3600", wait_ready=False) as (engine,):
        until(lambda: "Loading" in engine.log.read_text(), "loading")
        assert engine.status_of("/ready") is None
        engine.terminate()
        assert engine.process.wait(DEADLINE_S) == 0


def test_probes_say_no_while_warming_up() -> None:
    with engines(1, "--load-seconds", "0", profile="kimi-k2.5-b200", wait_ready=False, speedup=2) as (engine,):
        until(lambda: engine.status_of("/ready") == 503, "warm-up")
        assert engine.status_of("/health") == 503
        assert engine.status_of("/v1/models") == 200
        until(lambda: engine.status_of("/ready") == 200, "ready")


def test_sigterm_lets_requests_finish() -> None:
    with engines(1, speedup=5) as (engine,):
        body = chat("x", max_tokens=2000)
        with open_stream(engine, body) as stream:
            engine.terminate()
            until(lambda: engine.status_of("/health") == 503, "probes say no at once")
            assert engine.status_of("/ready") == 503
            assert call(engine, chat("new", max_tokens=2)).status == 200, "new requests are still served"
            text, ended = rest_of(stream)
        assert ended
        assert expected_text(chat_template.render(body), 2000).endswith(text)
        assert engine.process.wait(DEADLINE_S) == 0


def test_the_shim_starts_the_simulator_under_sglangs_name(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "sglang.launch_server", "--model-path", "/m/tiny", "--port", str(port)]
    env = {"PYTHONPATH": f"{SIMULATOR / 'sglang_shim'}:{SIMULATOR}", "SHOAL_SIM_PROFILE": "tiny"}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        engine = SimulatedEngine("127.0.0.1", port, process, tmp_path / "log")
        until(lambda: engine.status_of("/ready") == 200, "ready")
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait(DEADLINE_S)
