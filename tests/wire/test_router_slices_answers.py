"""The answer with slices is the answer without: 200 prompts of every kind through a router, with and without."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import pytest

from shoal_sim import chat_template, tokens
from shoal_testing import longprompts
from shoal_testing.engines import MODEL, engines
from shoal_testing.enginetap import Seen, Tap, tap
from shoal_testing.longprompts import Asked, Said
from shoal_testing.routers import RunningRouter, router, service

pytestmark = pytest.mark.wire

COUNT = 200
MAX_TOKENS = 6
LONG_TOKENS = 4096
"""Of what is not cached: such a prompt is two slices at least."""


@dataclass
class Run:
    """What the clients heard and the engine saw."""

    asked: list[Asked] = field(default_factory=list)
    heard: list[Said] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    seen: list[list[Seen]] = field(default_factory=list)
    slices: list[int] = field(default_factory=list)
    """As `x-shoal-slices` says."""
    metrics: dict[str, float] = field(default_factory=dict)


@contextmanager
def _other_session(one: RunningRouter) -> Iterator[None]:
    """Its answer is long: there is always somebody to whom slices are of use."""
    body = {"model": MODEL, "prompt": "Count.", "stream": True, "max_tokens": 100_000, "ignore_eos": True}
    headers = {"x-session-id": "other"}
    with httpx.stream("POST", f"{one.url}/v1/completions", json=body, headers=headers, timeout=60) as answer:
        events = answer.iter_raw()  # held: an iterator that is dropped closes the answer
        next(events)
        yield


def _run(slicing: str) -> Run:
    run = Run()
    listed = [service(slicing=slicing, itl_objective_s=0.0001)]
    with (
        engines(1, "--context-length", "120000", speedup=5) as fleet,
        tap(fleet[0].host, fleet[0].port, adapters=True) as between,
        router({"a": between.url}, services=listed) as one,
        httpx.Client(timeout=30) as client,
        _other_session(one),
    ):
        for chain in longprompts.conversations(MODEL, COUNT, MAX_TOKENS):
            text = ""
            for turn in chain:
                text = _ask(run, client, one, between, turn(text))
        for name in ("sliced_requests", "slices", "slice_failures"):
            run.metrics[name] = one.metric(f"shoal_router_{name}_total", service="svc")
        one.wait(lambda it: it.service_state()["replicas"][0]["in_flight_requests"] == 1)
    return run


def _ask(run: Run, client: httpx.Client, one: RunningRouter, between: Tap, asked: Asked) -> str:
    before = len(between.requests)
    headers = {"content-type": "application/json", "x-shoal-explain": "1", **asked.headers}
    answer = client.post(f"{one.url}{asked.path}", content=asked.body, headers=headers)
    assert answer.status_code == 200, answer.text[:500]
    run.asked.append(asked)
    run.bodies.append(answer.content)
    run.heard.append(longprompts.said(asked.path, asked.stream, answer.content))
    run.seen.append(between.requests[before:])
    run.slices.append(int(answer.headers.get("x-shoal-slices", "0")))
    return run.heard[-1].text


@pytest.fixture(scope="module")
def runs() -> tuple[Run, Run]:
    """With slices, without."""
    return _run("Auto"), _run("Off")


def _ids(asked: Asked) -> list[int]:
    """Of the prompt, by the engine's own tokenizer."""
    doc = asked.doc
    if asked.path == "/v1/chat/completions":
        return tokens.ids_of(chat_template.render(doc))
    prompt = doc.get("input_ids") or doc.get("text") or doc.get("prompt")
    return prompt if isinstance(prompt, list) else tokens.ids_of(str(prompt).encode())


def test_every_answer_is_the_same(runs: tuple[Run, Run]) -> None:
    sliced, whole = runs
    assert len(sliced.heard) == len(whole.heard) == COUNT
    for one, other, asked in zip(sliced.heard, whole.heard, sliced.asked, strict=True):
        assert one.text
        assert one == other, (asked.path, asked.headers)
    assert [asked.body for asked in sliced.asked] == [asked.body for asked in whole.asked]
    cached = [one.usage[2] for one in sliced.heard if one.usage[2]]
    assert len(cached) > COUNT // 4  # some prompts were known, and their usage says so


def test_nearly_all_of_the_long_prompts_were_really_sliced(runs: tuple[Run, Run]) -> None:
    sliced, whole = runs
    long = [
        len(_ids(asked)) - (said.usage[2] or 0) > LONG_TOKENS
        for asked, said in zip(whole.asked, whole.heard, strict=True)
    ]
    cut = [count for count, is_long in zip(sliced.slices, long, strict=True) if is_long]
    assert len(cut) > COUNT // 2
    assert sum(count > 0 for count in cut) >= 0.95 * len(cut)
    assert sum(cut) >= 2 * len(cut)
    assert sliced.metrics["slices"] == sum(sliced.slices)
    assert sliced.metrics["sliced_requests"] >= sum(count > 0 for count in sliced.slices)
    assert sliced.metrics["slice_failures"] == 0
    assert whole.metrics == {"sliced_requests": 0, "slices": 0, "slice_failures": 0}
    assert set(whole.slices) == {0}


def test_slices_are_growing_prefixes_that_look_into_the_requests_own_cache(runs: tuple[Run, Run]) -> None:
    sliced, _ = runs
    rids = set()
    for asked, seen, count in zip(sliced.asked, sliced.seen, sliced.slices, strict=True):
        parts = [one.json() for one in seen if one.path == "/generate"]
        request = parts.pop() if asked.path == "/generate" else seen[-1].json()
        assert len(parts) == count
        ids = _ids(asked)
        ends = [len(part["input_ids"]) for part in parts]
        assert ends == sorted(set(ends))
        for part, end in zip(parts, ends, strict=True):
            assert 0 < end < len(ids)
            assert part["input_ids"] == ids[:end]
            assert part["sampling_params"]["max_new_tokens"] == 1
            assert part["stream"] is True
            rids.add(part["rid"])
            for name in ("cache_salt", "extra_key", "priority"):
                assert part.get(name) == asked.doc.get(name), name
            named = str(asked.doc.get("model", "")).partition(":")[2] or asked.doc.get("lora_path")
            assert part.get("lora_path") == named
        assert request.get("rid") not in rids
        # The request itself goes unchanged, but for its id.
        for name, value in asked.doc.items():
            assert request[name] == value, name
    assert len(rids) == sum(sliced.slices)
    assert {len(rid) for rid in rids} == {32}


def test_the_engine_is_asked_for_ids_once_and_only_where_there_are_none(runs: tuple[Run, Run]) -> None:
    sliced, whole = runs
    for asked, seen, count in zip(sliced.asked, sliced.seen, sliced.slices, strict=True):
        tokenized = [one for one in seen if one.path == "/v1/tokenize"]
        given = isinstance(asked.doc.get("prompt"), list) or "input_ids" in asked.doc
        if count:
            assert len(tokenized) == (0 if given else 1)
        assert len(tokenized) <= 1
    assert not any(one.path == "/v1/tokenize" for seen in whole.seen for one in seen)


def test_nothing_of_a_slice_reaches_a_client(runs: tuple[Run, Run]) -> None:
    sliced, _ = runs
    for seen, body in zip(sliced.seen, sliced.bodies, strict=True):
        for one in seen[:-1]:
            doc = one.json()
            if "rid" in doc:
                assert doc["rid"].encode() not in body
