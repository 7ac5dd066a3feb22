"""The simulated engine against captures of a real one: same statuses, headers, framing, event order, JSON shapes.

Values that depend on the model, the clock or the machine are compared by type only; names, statuses, reasons, error
texts and everything else that is constant are compared as they are.
"""

import fnmatch
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal_testing import enginehttp
from shoal_testing.engines import SimulatedEngine, engines

CAPTURES = Path(__file__).parent / "engine_cpu_0_5_23"
ENGINE_ARGS = (
    *("--load-format", "dummy", "--max-running-requests", "16", "--max-queued-requests", "4"),
    *("--context-length", "16384", "--max-total-tokens", "17000"),
)
SPEEDUP = 10.0

# Cases of captured.txt that nothing here replays, by pattern, and why.
NOT_COVERED = {
    "dp2_*": "data-parallel ranks inside one engine are not simulated",
    "pd/*": "prefill/decode disaggregation is not simulated yet",
    "lora_*": "adapters are not simulated; asking for one is refused as captured (err_chat_lora_unknown)",
    "kv_*": "KV events over ZMQ are not simulated yet",
    "load_feed": "the ZMQ load feed is not simulated yet",
    "messages_*": "the Anthropic routes are not simulated",
    "responses_api": "needs a package that the captured engine did not have: a plain 500",
    "score": "scoring is not simulated",
    "openapi": "the engine's own API description is not served",
    "scheduler_killed": "the simulator has no second process: killing it closes the connections at once",
    "sigterm_while_unhealthy": "an unhealthy engine's 65 s of crash diagnostics are not simulated: it ends at once",
    "disconnect_*": "by its effect on the scheduler: tests/wire/test_simulator_lifecycle.py",
    "sigterm_while_streaming": "by its effects: tests/wire/test_simulator_lifecycle.py",
    "duplicate_rid": "the two captured requests did not overlap; overlapping ones are refused with 400",
    "keepalive_idle_close": "takes five seconds by nature; the setting is uvicorn's",
    "startup_timeline": "times of one machine",
    "health_paused": "20 s of waiting",
    "health_fails_while_paused": "20 s of waiting",
    "request_while_paused": "by its effect: tests/wire/test_simulator_lifecycle.py",
    "*_busy": "same shapes as those of the idle engine",
    "v1_loads_paused": "same shape as v1_loads",
    "v1_loads_after_load": "same shape as v1_loads",
    "pause_before": "the request and the answer of pause_in_place",
    "continue_after": "the request and the answer of continue_generation",
    "health_after_continue": "the answer of health",
    "abort_all_victims": "by its effects: tests/wire/test_simulator_lifecycle.py",
    "abort_by_prefix": "by its effects: tests/wire/test_simulator_lifecycle.py",
    "get_server_info": "the answer of server_info: test_old_name_of_server_info_says_the_same",
}
DIFFERENT = {
    "chat_stop_token": "the captured ids are those of another vocabulary",
    "err_chat_content_number": "the engine lists five schema alternatives, the simulator the one that failed",
}

# The cache cases build on each other, metrics_after_load on all before it.
ORDER = (CAPTURES / "order.txt").read_text().split()
OVERFLOWS = [
    "overflow_chat_24",
    "overflow_chat_stream_24",
    "overflow_completions_stream_24",
    "overflow_generate_24",
    "overflow_generate_stream_24",
]
AUTH = sorted(path.stem for path in CAPTURES.glob("auth_*.json"))
"""With keys on the captured engine's command line; of answers that were let through, the status and headers."""
ABORTS = ["abort_chat", "abort_chat_stream", "abort_completions_stream", "abort_generate", "abort_generate_stream"]

CONSTANT_KEYS = {
    *("object", "role", "finish_reason", "index", "type", "code", "param", "owned_by", "status", "status_code"),
    *("weight_version", "frontend", "version", "retryable", "detail", "error", "mode", "block_size", "parent", "start"),
}
# Numbers on one machine, null or text on another.
FREE_TYPES = {
    *("accelerator", "random_seed", "attention_backend", "sampling_backend", "mem_fraction_static", "kv_events"),
    *("kv_events_config", "load_publish_endpoint", "pp_max_micro_batch_size", "cuda_graph_config", "matched_stop"),
    *("disaggregation_decode_retraction_backup", "c128_page_size", "decode_moments"),
    *("watermark_config", "watermark_key", "watermark_key_b"),
}


@pytest.fixture(scope="module")
def engine() -> Iterator[SimulatedEngine]:
    with engines(1, *ENGINE_ARGS, speedup=SPEEDUP) as fleet:
        yield fleet[0]


@pytest.fixture(scope="module")
def locked_engine() -> Iterator[SimulatedEngine]:
    with engines(1, "--api-key", "user-key", "--admin-api-key", "admin-key", speedup=SPEEDUP) as fleet:
        yield fleet[0]


def test_every_capture_here_is_replayed() -> None:
    assert sorted(path.stem for path in CAPTURES.glob("*.json")) == sorted([*ORDER, *OVERFLOWS, *ABORTS, *AUTH])


def test_what_was_captured_is_replayed_or_has_a_reason() -> None:
    """captured.txt names every case that the real engine was asked."""
    captured = (CAPTURES / "captured.txt").read_text().split()
    replayed = {path.stem for path in CAPTURES.glob("*.json")}
    assert replayed <= set(captured)
    left = [name for name in captured if name not in replayed]
    for name in left:
        reasons = [pattern for pattern in NOT_COVERED if fnmatch.fnmatchcase(name, pattern)]
        assert len(reasons) == 1, f"{name}: {reasons or 'neither replayed nor in NOT_COVERED'}"
    assert [pattern for pattern in NOT_COVERED if not fnmatch.filter(left, pattern)] == []
    assert set(ORDER) >= set(DIFFERENT)


@pytest.mark.wire
@pytest.mark.parametrize("name", [name for name in ORDER if name not in DIFFERENT])
def test_answer_is_as_captured(engine: SimulatedEngine, name: str) -> None:
    capture = load(name)
    answer = replay(engine, capture["request"])
    check(capture, answer)


@pytest.mark.wire
@pytest.mark.parametrize("name", OVERFLOWS)
def test_queue_full_is_told_as_captured(engine: SimulatedEngine, name: str) -> None:
    capture = load(name)
    engine.fault(reject=True)
    try:
        check(capture, replay(engine, capture["request"]))
    finally:
        engine.fault()


@pytest.mark.wire
@pytest.mark.parametrize("name", ABORTS)
def test_abort_ends_a_request_as_captured(engine: SimulatedEngine, name: str) -> None:
    capture = load(name)
    answers: list[enginehttp.Answer] = []
    # Stalled first, so that the request is still there when the abort comes.
    engine.fault(stall=True)
    caller = threading.Thread(target=lambda: answers.append(replay(engine, capture["request"])))
    caller.start()
    try:
        rid = capture["request"]["body"]["rid"]
        while rid not in _live(engine):
            caller.join(0.01)
        replay(engine, {"method": "POST", "path": "/abort_request", "body": {"rid": rid}})
    finally:
        engine.fault()
        caller.join(20)
    answer = answers[0]
    assert (answer.status, header_shape(answer.headers)) == (capture["status"], header_shape(capture["headers"]))
    if "sse" in capture:
        want, got = parse_events(capture["sse"]), parse_events(answer.events)
        compare(want[-2], got[-2], "last event")
        assert got[-1] == want[-1] == "[DONE]"
    else:
        compare(capture["body"], json.loads(answer.body), "body")


@pytest.mark.wire
@pytest.mark.parametrize("name", AUTH)
def test_keys_open_what_they_opened(locked_engine: SimulatedEngine, name: str) -> None:
    capture = load(name)
    answer = replay(locked_engine, capture["request"])
    assert (answer.status, header_shape(answer.headers)) == (capture["status"], header_shape(capture["headers"]))
    if "body" in capture:
        assert json.loads(answer.body) == capture["body"]


@pytest.mark.wire
def test_old_name_of_server_info_says_the_same(engine: SimulatedEngine) -> None:
    check(load("server_info"), replay(engine, {"method": "GET", "path": "/get_server_info"}))


# ---- replaying and comparing


def load(name: str) -> dict[str, Any]:
    capture: dict[str, Any] = json.loads((CAPTURES / f"{name}.json").read_text())
    return capture


def replay(engine: SimulatedEngine, request: dict[str, Any]) -> enginehttp.Answer:
    body = expanded(request.get("body"))
    return enginehttp.request(
        engine.host, engine.port, request["method"], request["path"], body, request.get("headers") or {}
    )


def expanded(value: Any) -> Any:
    """Undoes the shortening of captures: `text...(N chars)`, and `...(N items)` as the last element of a list."""
    if isinstance(value, dict):
        return {key: expanded(item) for key, item in value.items()}
    if isinstance(value, list):
        if value and isinstance(value[-1], str) and re.fullmatch(r"\.\.\.\(\d+ items\)", value[-1]):
            return value[:-1]
        return [expanded(item) for item in value]
    if isinstance(value, str) and (match := re.fullmatch(r"(.+)\.\.\.\((\d+) chars\)", value, re.DOTALL)):
        text, size = match[1], int(match[2])
        return (text * (size // len(text) + 1))[:size]
    return value


def check(capture: dict[str, Any], answer: enginehttp.Answer) -> None:
    assert answer.complete
    assert answer.status == capture["status"], answer.body
    assert header_shape(answer.headers) == header_shape(capture["headers"])
    if "sse" in capture:
        check_stream(capture["sse"], answer)
    elif "body" in capture:
        compare(capture["body"], json.loads(answer.body), "body")
    elif capture["case"].startswith("metrics"):
        check_metrics(capture["body_text"], answer.body.decode())
    elif capture["case"] == "v1_loads_prometheus":
        assert sample_names(answer.body.decode()) == sample_names(capture["body_text"])
    else:
        assert answer.body.decode() == capture["body_text"]


def header_shape(headers: Any) -> list[tuple[str, str]]:
    """Names with their values, but for those that are another number or date each time.

    Not in order: the HTTP library of the captured engine writes connection and transfer-encoding in another order.
    """
    return sorted(
        (name.lower(), "" if name.lower() in ("content-length", "date") else value)
        for name, value in headers
        if name.lower() != "date"
    )


def check_stream(want_raw: list[str], answer: enginehttp.Answer) -> None:
    assert [chunk.decode() for chunk in answer.chunks] == answer.events, "every event in a chunk of its own"
    want, got = parse_events(want_raw), parse_events(answer.events)
    assert order(got) == order(want)
    seen: set[tuple[int | None, str]] = set()
    for event in got[:-1]:
        # The first event of a kind may carry more than the later ones.
        alike = [other for other in want if kind(other) == kind(event)]
        compare(alike[-1 if kind(event) in seen else 0], event, kind(event)[1])
        seen.add(kind(event))


def parse_events(raw: list[str]) -> list[Any]:
    events = [event.removeprefix("data: ").strip() for event in raw]
    return [event if event == "[DONE]" else json.loads(event) for event in events]


def kind(event: Any) -> tuple[int | None, str]:
    """Choice index and what the event is."""
    if event == "[DONE]":
        return None, "done"
    if "meta_info" in event:
        return None, "generate end" if event["meta_info"]["finish_reason"] else "generate"
    if "error" in event:
        return None, "error"
    if not event["choices"]:
        return None, "sglext" if "sglext" in event else "usage"
    choice = event["choices"][0]
    delta = choice.get("delta", {})
    if "role" in delta:
        return choice["index"], "role"
    if choice["finish_reason"] is not None:
        return choice["index"], "finish"
    return choice["index"], "content"


def order(events: list[Any]) -> dict[int | None, list[str]]:
    """For every choice, and for the events of none, the kinds in order, runs of one kind counted once."""
    kinds: dict[int | None, list[str]] = {}
    for event in events:
        index, name = kind(event)
        mine = kinds.setdefault(index, [])
        if not mine or mine[-1] != name:
            mine.append(name)
    return kinds


def compare(want: Any, got: Any, path: str) -> None:
    key = path.rsplit(".", 1)[-1]
    if key in FREE_TYPES:
        return
    assert type(got) is type(want), f"{path}: want {want!r}, got {got!r}"
    if re.search(r"logprobs\.top_logprobs\[\d+\]$", path):
        # Tokens are the keys here.
        assert [type(number) for number in got.values()] == [type(number) for number in want.values()]
    elif isinstance(want, dict):
        if path.endswith("internal_states[0]"):
            # Captures leave out what the arguments above it already say.
            got = {name: got[name] for name in want if name in got}
        assert list(got) == list(want), f"{path}: {set(want) ^ set(got) or 'another order'}"
        for name in want:
            compare(want[name], got[name], f"{path}.{name}")
    elif isinstance(want, list):
        for index, item in enumerate(got):
            compare(want[min(index, len(want) - 1)], item, f"{path}[{index}]") if want else None
    elif key == "message" and isinstance(want, str):
        assert message_shape(got) == message_shape(want), path
    elif key == "cached_tokens" or path.endswith("cached_tokens_details.device"):
        assert (got > 0) == (want > 0), f"{path}: want {want}, got {got}"
    elif key in CONSTANT_KEYS:
        assert got == want, f"{path}: want {want!r}, got {got!r}"


def message_shape(text: str) -> str:
    """Schema violations are told in the engine's own words, with a place in its sources; the rest is compared."""
    if "validation error" in text:
        return "validation error"
    return re.sub(r"\d+", "N", text)


def check_metrics(want: str, got: str) -> None:
    wanted_types, got_types = metric_types(want), metric_types(got)
    assert {name: got_types.get(name) for name in wanted_types} == wanted_types
    missing = sample_names(want) - sample_names(got)
    assert not missing


def metric_types(page: str) -> dict[str, str]:
    lines = (line.split(" ") for line in page.splitlines() if line.startswith("# TYPE"))
    return {line[2]: line[3] for line in lines}


def sample_names(page: str) -> set[str]:
    """Names with labels, without values; the process id and the counters of single routes are another each time."""
    names = set()
    for line in page.splitlines():
        if line and not line.startswith("#") and "sglang:http_re" not in line:
            name = re.sub(r'pid="\d+"', 'pid="0"', line)
            names.add(re.match(r"[^ {]+(\{.*\})?", name)[0])  # type: ignore[index]
    return names


def _live(engine: SimulatedEngine) -> list[str]:
    """rids that the engine holds; the simulator shows them with its faults."""
    answer = replay(engine, {"method": "GET", "path": "/admin/fault"})
    rids: list[str] = json.loads(answer.body)["live"]
    return rids
