"""Slices on a real SGLang engine on the CPU: the same answers as without, and each slice is found by the next.

That the request itself finds the last slice in the cache is the proof that ids from `/v1/tokenize` are those that the
engine makes of the request. In 32-bit floats, since prefill in other parts rounds otherwise.
"""

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from shoal_testing import bound, longprompts
from shoal_testing.engines import free_port
from shoal_testing.enginetap import Tap, tap
from shoal_testing.longprompts import Asked, Said
from shoal_testing.routers import RunningRouter, router, service

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

MODEL = "nano"
PAGE = 64
READY_S = 400.0
COUNT = 15
MAX_TOKENS = 8
ARGS = (
    *("--served-model-name", MODEL, "--load-format", "dummy", "--device", "cpu", "--attention-backend", "torch_native"),
    *("--sampling-backend", "pytorch", "--disable-cuda-graph", "--dtype", "float32", "--page-size", str(PAGE)),
    *("--context-length", "65536", "--max-total-tokens", "200000", "--enable-cache-report"),
)
_CACHED = re.compile(rb'"cached_tokens": ?(\d+)')


@pytest.fixture(scope="module")
def engine(engine_env: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of one engine."""
    named = json.loads((engine_env / "environment.json").read_text())
    environment = {**os.environ, **named, "PATH": f"{named['PATH']}:{os.environ['PATH']}"}
    port = free_port()
    command = [f"{named['PATH']}/python3", "-m", "sglang.launch_server", "--model-path", named["SHOAL_TEST_MODEL"]]
    command += ["--host", "127.0.0.1", "--port", str(port), *ARGS]
    log = tmp_path_factory.mktemp("engine") / "engine.log"
    with log.open("wb") as output:
        process = bound.popen(command, environment, output)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_ready(url, process, log)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)
        sys.stderr.write(log.read_text(errors="replace")[-2000:])


def _wait_ready(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + READY_S
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health_generate", timeout=30):
                return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            assert process.poll() is None, log.read_text(errors="replace")[-4000:]
            assert time.monotonic() < end, log.read_text(errors="replace")[-4000:]
            time.sleep(0.5)


@contextmanager
def _other_session(one: RunningRouter) -> Iterator[None]:
    body = {"model": MODEL, "prompt": "Count.", "stream": True, "max_tokens": 20_000, "ignore_eos": True}
    headers = {"x-session-id": "other"}
    with httpx.stream("POST", f"{one.url}/v1/completions", json=body, headers=headers, timeout=200) as answer:
        events = answer.iter_raw()  # held: an iterator that is dropped closes the answer
        next(events)
        yield


class Heard:
    """One request, its answer, and what went between router and engine for it."""

    def __init__(self, asked: Asked, said: Said, slices: list[int], cached: list[int], last: int) -> None:
        self.asked = asked
        self.said = said
        self.slices = slices
        """Tokens of each."""
        self.cached = cached
        """As the engine told it, of each slice."""
        self.last = last
        """Of the request itself."""


def _run(engine: str, slicing: str) -> tuple[list[Heard], dict[str, float]]:
    heard: list[Heard] = []
    host, _, port = engine.removeprefix("http://").partition(":")
    listed = [service(served_name=MODEL, slicing=slicing, itl_objective_s=0.0001)]
    with (
        tap(host, int(port)) as between,
        router({"a": between.url}, services=listed) as one,
        httpx.Client(timeout=200) as client,
    ):
        one.wait(lambda _: client.post(f"{engine}/flush_cache").status_code == 200, 60)
        with _other_session(one):
            for chain in longprompts.conversations(MODEL, COUNT, MAX_TOKENS, sizes=(17, 20), adapters=False):
                text = ""
                for turn in chain:
                    heard.append(_ask(client, one, between, turn(text)))
                    text = heard[-1].said.text
            names = ("sliced_requests", "slices", "slice_failures")
            return heard, {name: one.metric(f"shoal_router_{name}_total") for name in names}


def _ask(client: httpx.Client, one: RunningRouter, between: Tap, asked: Asked) -> Heard:
    requests, answers = len(between.requests), len(between.answers)
    headers = {"content-type": "application/json", **asked.headers}
    answer = client.post(f"{one.url}{asked.path}", content=asked.body, headers=headers)
    assert answer.status_code == 200, answer.text[:500]
    said = longprompts.said(asked.path, asked.stream, answer.content)
    parts = [one.json() for one in between.requests[requests:] if one.path == "/generate"]
    parts = [part for part in parts if part["sampling_params"]["max_new_tokens"] == 1]
    told = {}
    for place, part in enumerate(parts):
        rid = part["rid"].encode()
        blocks = [data for data in between.answers[answers:] if rid in data]
        told[place] = int(_CACHED.findall(b"".join(blocks))[-1])
    counts = _CACHED.findall(b"".join(between.answers[answers:]))
    last = int(counts[-1]) if counts else -1
    return Heard(asked, said, [len(part["input_ids"]) for part in parts], list(told.values()), last)


@pytest.fixture(scope="module")
def runs(engine: str) -> tuple[tuple[list[Heard], dict[str, float]], tuple[list[Heard], dict[str, float]]]:
    """With slices, without: on one engine, whose cache is emptied between."""
    return _run(engine, "Auto"), _run(engine, "Off")


Runs = tuple[tuple[list[Heard], dict[str, float]], tuple[list[Heard], dict[str, float]]]


def test_the_answers_are_the_same(runs: Runs) -> None:
    (sliced, _), (whole, _) = runs
    assert len(sliced) == len(whole) == COUNT
    for one, other in zip(sliced, whole, strict=True):
        assert one.said.text == other.said.text, one.asked.path
        assert one.said.finish == other.said.finish
        assert [count or 0 for count in one.said.usage] == [count or 0 for count in other.said.usage]


def test_the_long_prompts_were_sliced(runs: Runs) -> None:
    (sliced, counts), (_, none) = runs
    cut = [one for one in sliced if one.slices]
    assert len(cut) >= COUNT // 2
    assert counts["slices"] == sum(len(one.slices) for one in sliced)
    assert counts["slice_failures"] == 0
    assert none == {"sliced_requests": 0, "slices": 0, "slice_failures": 0}


def test_each_slice_is_found_by_the_next_and_the_last_by_the_request(runs: Runs) -> None:
    (sliced, _), _ = runs
    for one in sliced:
        for before, cached in zip(one.slices, [*one.cached, one.last][1:], strict=True):
            assert cached >= before - PAGE, (one.asked.path, one.slices, one.cached, one.last)
        if one.slices:
            assert one.said.usage[0] is None or one.last < one.said.usage[0]
