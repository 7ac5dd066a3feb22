"""The engine behind the routers: a simulated one with the timing of an H200, or one that runs already.

One engine serves all runs, its cache emptied before each. Counters are read from its own pages; what a version does
not report stays unknown. Called by `runs`.
"""

import http.client
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shoal_bench import processes
from shoal_bench.slicing import load

SIMULATED: Final = "simulated"
MODEL: Final = "llama-8b"
PROFILE: Final = "llama-8b-h200"
START_DEADLINE_S: Final = 60.0
FLUSH_DEADLINE_S: Final = 20.0
TIMEOUT_S: Final = 10.0
STOP_GRACE_S: Final = 0.2
CALIBRATION_CHARS: Final = 60_000
_POLL_S: Final = 0.1
ABOUT: Final = (
    "version",
    "model_path",
    "page_size",
    "chunked_prefill_size",
    "max_running_requests",
    "enable_mixed_chunk",
    "attention_backend",
)
"""Of /server_info: what a reader must know to get the same."""
_COMPUTED: Final = 'mode="prefill_compute"'


class EngineError(Exception):
    """The engine does not do what the benchmark needs of it."""


@dataclass(frozen=True, slots=True)
class Engine:
    name: str
    """In rows: `simulated`, or what the GPU is called."""
    url: str
    model: str
    process: processes.Process | None = None
    """Where it is ours."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Since the engine's start; None for what it does not report."""

    at_s: float
    prefill_busy_s: float | None = None
    idle_s: float | None = None
    prefill_tokens: float | None = None
    """Prompt tokens that were computed, not taken from the cache."""


def argv(port: int, module: Sequence[str] = ("shoal_sim",)) -> list[str]:
    return [
        *(sys.executable, "-m", *module, "engine", "--host", "127.0.0.1", "--port", str(port)),
        *("--model-path", f"/models/{MODEL}", "--served-model-name", MODEL, "--profile", PROFILE),
        *("--page-size", "64", "--chunked-prefill-size", "8192", "--max-running-requests", "64"),
        *("--enable-cache-report", "--enable-metrics", "--load-seconds", "0"),
    ]


@contextmanager
def simulated(folder: Path, module: Sequence[str] = ("shoal_sim",)) -> Iterator[Engine]:
    """Ready; stopped when the context closes. `module`: what is run, with its first words."""
    port = processes.free_port()
    process = processes.start("engine", argv(port, module), folder, url=f"http://127.0.0.1:{port}")
    try:
        processes.wait_http(process, f"{process.url}/ready", START_DEADLINE_S)
        yield Engine(SIMULATED, process.url, MODEL, process)
    finally:
        process.stop(STOP_GRACE_S)


def running(name: str, url: str) -> Engine:
    """One that somebody else has started. Raises EngineError."""
    models = _json(f"{url}/v1/models")
    return Engine(name, url.rstrip("/"), str(models["data"][0]["id"]))


def about(engine: Engine) -> dict[str, str]:
    """Of its version and flags, what it reports."""
    found = _json(f"{engine.url}/server_info")
    return {name.replace("_", " "): str(found[name]) for name in ABOUT if found.get(name) is not None}


def flush(engine: Engine) -> None:
    """Empties its cache, which it refuses while a request runs: those whose client has gone are given time to go."""
    end = time.monotonic() + FLUSH_DEADLINE_S
    last = ""
    while time.monotonic() < end:
        try:
            _fetch(f"{engine.url}/flush_cache", b"")
        except urllib.error.HTTPError as error:
            with error:
                last = f"HTTP {error.code}"
        else:
            return
        time.sleep(_POLL_S)
    raise EngineError(f"the cache of {engine.url} could not be emptied in {FLUSH_DEADLINE_S:g} s: {last}")


def counters(engine: Engine) -> Counters:
    page = _fetch(f"{engine.url}/metrics").decode()
    loads = _json(f"{engine.url}/v1/loads?include=core")["loads"]
    busy_us = loads[0].get("total_prefill_busy_us") if loads else None
    return Counters(
        time.monotonic(),
        busy_us / 1e6 if busy_us is not None else None,
        total(page, "sglang:scheduler_idle_seconds_total"),
        total(page, "sglang:realtime_tokens_total", _COMPUTED),
    )


def total(page: str, name: str, label: str = "") -> float | None:
    """Sum of a metric's samples on a page of Prometheus's text; None where there are none."""
    found = [
        float(line.rpartition(" ")[2])
        for line in page.splitlines()
        if line.startswith((f"{name}{{", f"{name} ")) and label in line
    ]
    return sum(found) if found else None


def chars_per_token(engine: Engine) -> float:
    """Of the engine's tokenizer, in chats of the benchmark's words."""
    messages = load.sample_messages(CALIBRATION_CHARS)
    body = json.dumps({"model": engine.model, "messages": messages}).encode()
    counted = json.loads(_fetch(f"{engine.url}/v1/tokenize", body))["count"]
    if not isinstance(counted, int) or counted <= 0:
        raise EngineError(f"{engine.url}/v1/tokenize counts {counted!r} tokens")
    return CALIBRATION_CHARS / counted


def _json(url: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_fetch(url))
    return found


def _fetch(url: str, body: bytes | None = None) -> bytes:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException) as error:
        raise EngineError(f"{url}: {error}") from error
