"""One replay from start to report: opens the connections, drives the trace, ends on time or on Ctrl-C.

Called by `command` and by bench/replay_hit_rate.py. The demo puts the same parts together by itself.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import aiohttp
from rich.console import Console

from shoal_cli.replay import client, drive, gpus, results, show, trace

FIND_MODEL_S = 10.0


class ReplayError(Exception):
    """The replay cannot start; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Plan:
    trace: trace.Trace
    settings: client.Settings
    pace: drive.Pace
    model: str | None
    """None: the only model that the endpoint lists."""
    sessions: int | None
    """Conversations at once; None: all of the trace."""
    loop: bool = False
    ramp_s: float = 0.0
    duration_s: float | None = None
    gpu_source: gpus.Source | None = None


async def run(plan: Plan, console: Console) -> results.Summary:
    async with connections(plan.pace.concurrency_max) as session:
        model = plan.model or await find_model(session, plan.settings)
        recorder = results.Recorder()
        sender = client.Client(session, plan.settings, recorder.began_s)
        driver = drive.Driver(sender, recorder, model=model, pace=plan.pace)
        counter = gpus.Counter(plan.gpu_source)
        beside = [asyncio.create_task(show.watch(console, recorder)), asyncio.create_task(counter.watch())]
        if plan.duration_s is not None:
            asyncio.get_running_loop().call_later(plan.duration_s, driver.stop)
        try:
            with _stopped_by_signals(driver, console):
                await driver.finish(_work(plan, driver))
        finally:
            for task in beside:
                task.cancel()
            # Their endings are of no interest; a picture that failed to draw must not lose the result.
            await asyncio.gather(*beside, return_exceptions=True)
        wall_s = time.monotonic() - recorder.began_s
        return results.summarize(recorder.outcomes, wall_s=wall_s, speedup=plan.pace.speedup, gpus=counter.mean())


async def _work(plan: Plan, driver: drive.Driver) -> None:
    if plan.trace.kind == "mooncake":
        await driver.arrivals(plan.trace.arrivals)
        return
    conversations = plan.trace.conversations
    count = plan.sessions or len(conversations)
    await driver.sessions(conversations, count=count, loop=plan.loop, ramp_s=plan.ramp_s)


@contextlib.asynccontextmanager
async def connections(concurrency_max: int) -> AsyncIterator[aiohttp.ClientSession]:
    """Pooled connections for that many requests at once; nothing from the environment (no proxy) is used."""
    connector = aiohttp.TCPConnector(limit=concurrency_max, keepalive_timeout=60)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=True, read_bufsize=1 << 18) as session:
        yield session


async def find_model(session: aiohttp.ClientSession, settings: client.Settings) -> str:
    """The one model that the endpoint serves. Raises ReplayError where there is none or a choice."""
    url = settings.url.rstrip("/") + "/v1/models"
    timeout = aiohttp.ClientTimeout(total=FIND_MODEL_S)
    try:
        async with session.get(url, headers=settings.headers, timeout=timeout) as response:
            if response.status != 200:
                raise ReplayError(f"{url} answered {response.status}")
            listed = await response.json()
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise ReplayError(f"{url}: {error or repr(error)}") from error
    names = [str(entry["id"]) for entry in listed.get("data", ())] if isinstance(listed, dict) else []
    if len(names) != 1:
        raise ReplayError(f"name a model with --model; the endpoint serves: {', '.join(names) or 'none'}")
    return names[0]


@contextlib.contextmanager
def _stopped_by_signals(driver: drive.Driver, console: Console) -> Iterator[None]:
    """Ctrl-C or SIGTERM once: no new turn, then the report. Twice: what is in flight is cancelled as well."""
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if driver.stopping:
            driver.give_up()
            return
        console.print("Ending: no new turns; again to cancel those in flight.")
        driver.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
