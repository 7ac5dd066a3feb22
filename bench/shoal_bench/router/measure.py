"""One router, all measures, once: started on its core, asked, stopped. Called by `bench` for every round.

Each measure is taken by itself: one that fails is a sentence, and the others go on.
"""

import asyncio
import contextlib
import dataclasses
import gc
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import uvloop

from shoal_bench import processes, results
from shoal_bench.peers import dynamo, launch
from shoal_bench.router import answers, bodies, load, wrk

DIRECT: Final = "engine, direct"
"""The name under which the engines' own limit goes."""
PACES_MS: Final = range(190, 210)
"""Streams have one of these, so that tokens come in groups as from batches, not all at once."""
ENDLESS_TOKENS: Final = 1_000_000
BURST_TOKENS: Final = 8
SLICE_S: Final = 1.0
STREAMS_FEW: Final = 200
BUSY_SHARE: Final = 0.5
FILES_RESERVED: Final = 256
STREAMS_SHARE: Final = 0.88
"""Of the connections that files allow: Shoal closes idle ones above 0.9, and a stream is idle until it has asked."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Entry:
    """A router with the policy that it is measured with."""

    name: str
    policy: str

    @property
    def label(self) -> str:
        """Its name in rows: routing by cache goes without saying, and so do turns where nothing else is to be had."""
        plain = self.policy == "cache_aware" or self.name in ("nginx", dynamo.NAME)
        return self.name if plain else f"{self.name}, {self.policy.replace('_', ' ')}"


def entry(text: str) -> Entry:
    """Of `name` or `name:policy`. Raises ValueError for what cannot be started."""
    name, _, policy = text.partition(":")
    if text == dynamo.NAME:
        return Entry(name, "round_robin")
    if name not in launch.POLICIES:
        raise ValueError(f"no router {name}; there are {', '.join(launch.POLICIES)}")
    policy = policy or next(iter(launch.POLICIES[name]))
    if policy not in launch.POLICIES[name]:
        raise ValueError(f"{name} has no policy {policy}; it has {', '.join(launch.POLICIES[name])}")
    return Entry(name, policy)


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how much."""

    rounds: int
    warm_s: float
    small_s: float
    long_s: float
    latency_s: float
    settle_s: float
    window_s: float
    connections: int = 32
    latency_connections: int = 64
    streams: int = 2_000
    streams_many: int = 10_000
    burst: int = 500


QUICK: Final = Plan(rounds=1, warm_s=1, small_s=2, long_s=2, latency_s=2, settle_s=0.5, window_s=2)
FULL: Final = Plan(rounds=4, warm_s=1, small_s=4, long_s=4, latency_s=4, settle_s=1, window_s=4)


@dataclass(frozen=True, slots=True)
class Place:
    """The cores that things run on."""

    router: int
    engines: tuple[int, ...]
    generator: int


@dataclass(slots=True)
class Taken:
    """Samples of one router and round, and what went wrong, by measure."""

    samples: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)
    """At what rate and over which latency of the engines the added one was taken; how many streams were the many."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What all routers of a run share."""

    plan: Plan
    place: Place
    engine_urls: tuple[str, ...]
    folder: Path
    small: Path
    """wrk's script of small chats."""
    long: Path


def place(cores: Collection[int]) -> Place:
    """Router alone on the first core; engines and generator on their own where there are enough. Raises ValueError
    for a single core, on which nothing can be told apart."""
    ordered = sorted(cores)
    if len(ordered) < 2:
        raise ValueError("the benchmark needs two cores: one for the router, one for engines and load generator")
    if len(ordered) == 2:
        return Place(ordered[0], (ordered[1], ordered[1]), ordered[1])
    if len(ordered) == 3:
        return Place(ordered[0], (ordered[1], ordered[1]), ordered[2])
    return Place(ordered[0], (ordered[1], ordered[2]), ordered[3])


def router(chosen: Entry, stage: Stage, number: int, *, many: bool) -> Taken:
    """All measures of one. `number` is the round; with `many`, also the memory with 10,000 streams.

    It is started twice, so that memory is not that of the prompts that the speed was taken with.
    """
    taken = Taken()
    base = number * 10_000_000
    if chosen.name == dynamo.NAME:
        _dynamo(stage, base, taken)
        return taken
    with _started(chosen, stage, taken) as one:
        if one is not None:
            taken.samples["rss_mb"] = one.rss_mb()
            _guard(taken, "rss_mb_2000_streams", lambda: _streams(one, stage, taken))
            if many:
                _guard(taken, "rss_mb_10000_streams", lambda: _many_streams(one, stage, taken))
    with _started(chosen, stage, taken) as one:
        if one is not None:
            _guard(taken, "small_rps", lambda: _small(one, stage, base, taken))
            _guard(taken, "added_ms_p50", lambda: _latency(one, stage, base, taken))
            _guard(taken, "prompt350k_rps", lambda: _long(one, stage, base, taken))
            _guard(taken, "ttfb_ms_500_long", lambda: _long_burst([one.url], stage, base, taken))
    return taken


def _dynamo(stage: Stage, base: int, taken: Taken) -> None:
    """Its workers are no light engines: they bear few streams, and their own latency is unknown. What is told apart
    from them is taken: the CPU of the frontend, its memory at rest, and rates that bring it to its limit."""
    few = dataclasses.replace(stage, plan=dataclasses.replace(stage.plan, streams=STREAMS_FEW))
    folder, port = stage.folder / dynamo.NAME, processes.free_port()
    try:
        with dynamo.running(answers.MODEL, port, folder, stage.place.router, stage.place.engines) as one:
            time.sleep(stage.plan.settle_s)
            taken.samples["rss_mb"] = one.rss_mb()
            _guard(taken, "cpu_us_per_chunk", lambda: _streams(one, few, taken))
            taken.samples.pop("rss_mb_2000_streams", None)
            _guard(taken, "small_rps", lambda: _small(one, stage, base, taken))
            _guard(taken, "prompt350k_rps", lambda: _long(one, stage, base, taken))
    except processes.NotReadyError as error:
        taken.failures["start"] = str(error)


@contextlib.contextmanager
def _started(chosen: Entry, stage: Stage, taken: Taken) -> Iterator[processes.Process | None]:
    """A fresh one at rest; None where it does not start."""
    folder = stage.folder / chosen.label.replace(", ", "-").replace(" ", "-")
    port = processes.free_port()
    try:
        one = launch.start(chosen.name, chosen.policy, stage.engine_urls, port, folder, stage.place.router)
    except processes.NotReadyError as error:
        taken.failures["start"] = str(error)
        yield None
        return
    try:
        time.sleep(stage.plan.settle_s)
        yield one
    finally:
        one.stop()


def direct(stage: Stage, number: int) -> Taken:
    """The engines' own limit, from the same generator: one of them, except for the burst, which goes to all."""
    taken = Taken()
    base = number * 10_000_000 + 9_000_000
    url = stage.engine_urls[0]

    def small() -> None:
        taken.samples["small_rps"] = _wrk(stage, stage.small, url, stage.plan.small_s, base).rps

    def long() -> None:
        taken.samples["prompt350k_rps"] = _wrk(stage, stage.long, url, stage.plan.long_s, base).rps

    _guard(taken, "small_rps", small)
    _guard(taken, "prompt350k_rps", long)
    _guard(taken, "ttfb_ms_500_long", lambda: _long_burst(stage.engine_urls, stage, base, taken))
    return taken


def _guard(taken: Taken, measure: str, take: Callable[[], None]) -> None:
    """A measure that a router fails is no figure, and no reason to stop."""
    try:
        take()
    except (load.LoadError, wrk.WrkError, processes.NotReadyError) as error:
        taken.failures[measure] = str(error)


def _wrk(stage: Stage, script: Path, url: str, seconds: float, first_number: int) -> wrk.Result:
    result = wrk.run(script, url, seconds, stage.plan.connections, first_number, stage.place.generator)
    if result.errors:
        raise wrk.WrkError(f"{result.errors}, of {result.requests} requests")
    return result


def _small(one: processes.Process, stage: Stage, base: int, taken: Taken) -> None:
    _wrk(stage, stage.small, one.url, stage.plan.warm_s, base)
    _saturated(
        one, stage, stage.small, stage.plan.small_s, base + 1_000_000, taken, ("small_rps", "cpu_us_per_request")
    )


def _long(one: processes.Process, stage: Stage, base: int, taken: Taken) -> None:
    _wrk(stage, stage.long, one.url, stage.plan.warm_s, base + 2_000_000)
    measures = ("prompt350k_rps", "cpu_us_per_prompt350k")
    _saturated(one, stage, stage.long, stage.plan.long_s, base + 3_000_000, taken, measures)


def _saturated(
    one: processes.Process,
    stage: Stage,
    script: Path,
    seconds: float,
    first_number: int,
    taken: Taken,
    measures: tuple[str, str],
) -> None:
    """Rate and CPU a request under as much as wrk can send. A rate at which the router had much time left is not its
    own: something else was the limit."""
    before_s = one.cpu_s()
    result = _wrk(stage, script, one.url, seconds, first_number)
    spent_s = one.cpu_s() - before_s
    taken.samples[measures[1]] = spent_s / result.requests * 1e6
    share = spent_s / result.seconds
    if share < BUSY_SHARE:
        raise load.LoadError(
            f"it used {share:.0%} of its core at {result.rps:.0f}/s: engines or generator were the limit"
        )
    taken.samples[measures[0]] = result.rps
    taken.facts[f"{measures[0]}_core"] = share


def _latency(one: processes.Process, stage: Stage, base: int, taken: Taken) -> None:
    """Through the router less straight to an engine, at the same rate: half of what the router reached. A second of
    one, a second of the other, so that a machine that is slow for a while is slow for both."""
    rate = taken.samples.get("small_rps", 0.0) / 2
    if rate <= 0:
        raise load.LoadError("no half load without a small_rps")
    straight: list[float] = []
    through: list[float] = []
    for number in range(round(stage.plan.latency_s)):
        first_number = base + 4_000_000 + number * 100_000
        straight += _open_loop(stage.engine_urls[0], stage, rate, first_number)
        through += _open_loop(one.url, stage, rate, first_number)
    taken.facts["at_rps"] = rate
    for share in (50, 99):
        straight_ms = results.percentile(straight, share / 100) * 1e3
        taken.facts[f"direct_ms_p{share}"] = straight_ms
        taken.samples[f"added_ms_p{share}"] = results.percentile(through, share / 100) * 1e3 - straight_ms


def _open_loop(url: str, stage: Stage, rate: float, first_number: int) -> list[float]:
    host, port = _address(url)
    loop = load.OpenLoop(host, port, bodies.small(), first_number)
    _run(loop.run(rate, SLICE_S, stage.plan.latency_connections))
    return loop.latencies_s


def _long_burst(urls: Sequence[str], stage: Stage, base: int, taken: Taken) -> None:
    taken.samples["ttfb_ms_500_long"] = _run(_burst(urls, stage.plan.burst, base + 6_000_000))


async def _burst(urls: Sequence[str], count: int, first_number: int) -> float:
    """Milliseconds from the start of all to the first event of the median one."""
    templates = bodies.long(stream_tokens=BURST_TOKENS)
    tally = load.Tally()
    streams: list[tuple[load.Stream, str]] = []
    try:
        for number, url in enumerate(urls):
            share = len(range(number, count, len(urls)))
            host, port = _address(url)
            streams += [(one, f"{host}:{port}") for one in await load.connect(host, port, share, tally)]
        requests = [
            templates[number % len(templates)].request(authority, first_number + number)
            for number, (_, authority) in enumerate(streams)
        ]
        began_s = time.monotonic()
        for (one, _), request in zip(streams, requests, strict=True):
            one.send(request)
        await load.until(lambda: tally.done >= count, tally, f"{count} long prompts answered")
    finally:
        for one, _ in streams:
            one.abort()
    return (results.percentile(tally.first_s, 0.5) - began_s) * 1e3


@contextlib.asynccontextmanager
async def _open_streams(url: str, count: int) -> AsyncIterator[load.Tally]:
    """So many running streams, each of which has had its first event; yields their tally."""
    host, port = _address(url)
    tally = load.Tally()
    templates = [bodies.paced(ENDLESS_TOKENS, gap_ms) for gap_ms in PACES_MS]

    def request(number: int) -> bytes:
        return templates[number % len(templates)].request(f"{host}:{port}", number)

    streams = await load.connect(host, port, count, tally, request)
    try:
        await load.until(lambda: len(tally.first_s) >= count, tally, f"{count} streams begun")
        yield tally
        if tally.broken:
            raise load.LoadError(f"{len(tally.broken)} streams broke, the first: {tally.broken[0]}")
    finally:
        for one in streams:
            one.abort()


def _streams(one: processes.Process, stage: Stage, taken: Taken) -> None:
    async def measure() -> tuple[float, float]:
        async with _open_streams(one.url, stage.plan.streams) as tally:
            await asyncio.sleep(stage.plan.settle_s)
            events, cpu_s = tally.events, one.cpu_s()
            await asyncio.sleep(stage.plan.window_s)
            events, cpu_s = tally.events - events, one.cpu_s() - cpu_s
            due = stage.plan.window_s * sum(1000 / gap for gap in PACES_MS) * stage.plan.streams / len(PACES_MS)
            if events < 0.9 * due:
                raise load.LoadError(f"{events} tokens came of {due:.0f} that were due: the router falls behind")
            return one.rss_mb(), cpu_s / events * 1e6

    taken.samples["rss_mb_2000_streams"], taken.samples["cpu_us_per_chunk"] = _run(measure())


def _many_streams(one: processes.Process, stage: Stage, taken: Taken) -> None:
    """As many as the limit of open files allows: the router needs two a stream."""
    allowed = (processes.raise_file_limit() - FILES_RESERVED) / 2 * STREAMS_SHARE
    count = min(stage.plan.streams_many, int(allowed) // 100 * 100)

    async def measure() -> float:
        async with _open_streams(one.url, count):
            await asyncio.sleep(stage.plan.settle_s)
            return one.rss_mb()

    taken.samples["rss_mb_10000_streams"] = _run(measure())
    taken.facts["streams"] = count


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def _run(work: Coroutine[Any, Any, Answer]) -> Answer:
    """On an event loop of its own, without the pauses of a collection."""
    gc.collect()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    finally:
        gc.enable()
