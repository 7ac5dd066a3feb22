"""bench-router's own parts on loopback: light engines, a Shoal router, both load generators. Counts, never times."""

import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal_bench import processes
from shoal_bench.peers import launch
from shoal_bench.router import bench, bodies, load, measure
from shoal_testing import routerbuild

pytestmark = pytest.mark.wire


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    core = min(os.sched_getaffinity(0))
    with bench.engines(measure.Place(core, (core, core), core), tmp_path_factory.mktemp("engines")) as urls:
        yield urls


@pytest.fixture(scope="module")
def router(engines: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[processes.Process]:
    folder: Path = tmp_path_factory.mktemp("router")
    port, sources = processes.free_port(), routerbuild.folder()
    one = launch.start("shoal", "cache_aware", engines, port, folder, router_folder=sources)
    try:
        yield one
    finally:
        one.stop()


def address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").partition(":")
    return host, int(port)


def chats(urls: tuple[str, ...]) -> int:
    found = 0
    for url in urls:
        with urllib.request.urlopen(f"{url}/counts", timeout=5) as answer:
            found += json.load(answer).get("chat", 0)
    return found


async def test_every_request_of_the_open_loop_reaches_an_engine_once(
    engines: tuple[str, ...], router: processes.Process
) -> None:
    before = chats(engines)
    loop = load.OpenLoop(*address(router.url), bodies.small(), 1)

    await loop.run(400, 0.8, 8)

    assert len(loop.latencies_s) > 100
    assert chats(engines) - before == len(loop.latencies_s)
    assert router.cpu_s() > 0
    assert router.rss_mb() > 1


async def test_every_token_of_paced_streams_arrives(engines: tuple[str, ...], router: processes.Process) -> None:
    tally = load.Tally()
    tokens, count = 5, 40

    def request(number: int) -> bytes:
        return bodies.paced(tokens, 10 + number % 3).request("bench", number)

    streams = await load.connect(*address(router.url), count, tally, request)
    try:
        await load.until(lambda: tally.done == count, tally, "streams done", 20)
    finally:
        for one in streams:
            one.abort()

    # The role before the tokens, the reason to finish after them.
    assert tally.events == count * (tokens + 2)
    assert len(tally.first_s) == count


async def test_long_prompts_go_through_whole(engines: tuple[str, ...], router: processes.Process) -> None:
    tally = load.Tally()
    templates = bodies.long(stream_tokens=2)

    streams = await load.connect(
        *address(router.url), 8, tally, lambda number: templates[number].request("bench", number)
    )
    try:
        await load.until(lambda: tally.done == 8, tally, "long prompts answered", 20)
    finally:
        for one in streams:
            one.abort()

    assert tally.events == 8 * 4


async def test_stream_that_is_refused_is_told(engines: tuple[str, ...], router: processes.Process) -> None:
    tally = load.Tally()
    unknown = bodies.Template(b'{"stream":true,"model":"other","messages":[{"role":"user","content":"', b'"}]}')

    streams = await load.connect(*address(router.url), 1, tally, lambda number: unknown.request("bench", number))
    try:
        with pytest.raises(load.LoadError, match="404"):
            await load.until(lambda: tally.done == 1, tally, "stream done", 20)
    finally:
        streams[0].abort()


async def test_router_that_does_not_listen_is_told() -> None:
    with pytest.raises(load.LoadError, match="could not be opened"):
        await load.connect("127.0.0.1", processes.free_port(), 2, load.Tally())


async def test_refused_requests_make_the_open_loop_fail(engines: tuple[str, ...], router: processes.Process) -> None:
    unknown = bodies.Template(b'{"model":"other","messages":[{"role":"user","content":"', b'"}]}')

    with pytest.raises(load.LoadError, match="another than 200"):
        await load.OpenLoop(*address(router.url), [unknown], 1).run(100, 0.2, 2)
