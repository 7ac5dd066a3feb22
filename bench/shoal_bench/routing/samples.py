"""How evenly the engines are loaded, over time: each engine's /v1/loads, read at a fixed pace beside the replay.

All routers are measured by the same page of the engines, so that nothing depends on what a router says of itself.
"""

import asyncio
import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import orjson

EVERY_S: Final = 2.5
"""Of the model."""
WINDOW_S: Final = 30.0
"""Over which an engine's share of prefill is taken."""
_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Load:
    """One engine at one time."""

    requests: int
    """Running and waiting in the engine."""
    waiting_tokens: int
    """Prompt tokens that wait in the engine and are not cached."""
    prefill_s: float
    """Seconds of prefill since its start, on the modelled hardware."""


@dataclass(frozen=True, slots=True)
class Sample:
    at_s: float
    """Of the model, since the replay began."""
    loads: tuple[Load, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """Of one run. Means over time."""

    requests: float
    """Between the most and the least loaded engine, in requests."""
    waiting_tokens: float
    """Between the longest and the shortest queue in an engine, in tokens not cached."""
    prefill_cv: float
    """Coefficient of variation between engines of the prefill done in 30 s."""
    prefill_share: float
    """Share of their time that the engines spent on prefill."""


async def watch(urls: Sequence[str], compression: float, taken: list[Sample]) -> None:
    """Samples until it is cancelled. A sample that an engine does not answer in time is left out."""
    began = time.monotonic()
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for number in itertools.count():
            await asyncio.sleep(began + number * EVERY_S / compression - time.monotonic())
            try:
                loads = await asyncio.gather(*(_load(session, url) for url in urls))
            except (aiohttp.ClientError, TimeoutError):
                continue
            taken.append(Sample((time.monotonic() - began) * compression, tuple(loads)))


async def _load(session: aiohttp.ClientSession, url: str) -> Load:
    async with session.get(f"{url}/v1/loads?include=core") as answer:
        return parse(orjson.loads(await answer.read()))


def parse(page: dict[str, Any]) -> Load:
    entry = page["loads"][0]
    return Load(
        entry["num_running_reqs"] + entry["num_waiting_reqs"],
        entry["num_waiting_uncached_tokens"],
        entry["total_prefill_busy_us"] / 1e6,
    )


def spread(taken: Sequence[Sample], until_s: float) -> Spread | None:
    """Over the samples up to `until_s` (when arrivals end, engines empty unevenly); None with fewer than two."""
    used = [one for one in taken if one.at_s <= until_s]
    windows = [cv for _, cv in prefill_cvs(used)]
    if len(used) < 2 or not windows:
        return None
    elapsed_s = used[-1].at_s - used[0].at_s
    busy_s = sum(last.prefill_s - first.prefill_s for first, last in zip(used[0].loads, used[-1].loads, strict=True))
    return Spread(
        requests=_mean([_range([load.requests for load in one.loads]) for one in used]),
        waiting_tokens=_mean([_range([load.waiting_tokens for load in one.loads]) for one in used]),
        prefill_cv=_mean(windows),
        prefill_share=busy_s / elapsed_s / len(used[0].loads),
    )


def prefill_cvs(taken: Sequence[Sample]) -> list[tuple[float, float]]:
    """(end of the window, coefficient of variation) for windows one after the other; idle windows are left out."""
    found: list[tuple[float, float]] = []
    first = taken[0] if taken else None
    for one in taken:
        assert first is not None
        if one.at_s - first.at_s < WINDOW_S:
            continue
        done = [after.prefill_s - before.prefill_s for before, after in zip(first.loads, one.loads, strict=True)]
        mean = sum(done) / len(done)
        if mean > 0:
            found.append((one.at_s, math.sqrt(_mean([(value - mean) ** 2 for value in done])) / mean))
        first = one
    return found


def _range(values: Sequence[int]) -> float:
    return float(max(values) - min(values))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
