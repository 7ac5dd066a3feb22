"""One engine process: load, listen, warm up, serve, and leave on SIGTERM as SGLang does.

Nothing listens while the weights "load". Then the port opens with probes at 503 until warm-up is over. After SIGTERM
probes say 503 at once and everything else goes on, new requests included; a look every five seconds ends the process
with status 0 when no request is left.
"""

import asyncio
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from shoal_sim import metrics_text
from shoal_sim.engine import Engine
from shoal_sim.faults import Faults
from shoal_sim.http.app import App
from shoal_sim.radix import RadixCache
from shoal_sim.runtime import Runtime, Status
from shoal_sim.scheduler import Scheduler
from shoal_sim.settings import Settings
from shoal_sim.telemetry import Telemetry

LEAVE_POLL_S = 5.0
BACKLOG = 4096

log = logging.getLogger("shoal_sim")


class _Listener(uvicorn.Server):
    """Signals are ours, not uvicorn's: it would stop taking connections on SIGTERM."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(settings: Settings) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit status."""
    config = uvicorn.Config(
        app=_not_yet,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        proxy_headers=False,
        log_level="warning",
        timeout_keep_alive=settings.keep_alive_s,
        backlog=BACKLOG,
    )
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        return runner.run(_serve(settings, config))


def build(settings: Settings) -> Runtime:
    telemetry = Telemetry(metrics_text.buckets(metrics_text.load_families()), settings.speedup)
    scheduler = Scheduler(settings.policy, RadixCache(settings.capacity_pages), settings.speculation)
    engine = Engine(
        scheduler,
        settings.profile,
        telemetry,
        Faults(),
        settings.speculation,
        settings.speedup,
        settings.stream_interval,
        settings.overlap,
    )
    return Runtime(settings, engine, telemetry)


async def _serve(settings: Settings, config: uvicorn.Config) -> int:
    loop = asyncio.get_running_loop()
    runtime = build(settings)
    stop_now = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, lambda: _leave(runtime, stop_now))
    loop.add_signal_handler(signal.SIGINT, stop_now.set)
    stopping = asyncio.create_task(stop_now.wait())
    log.info(
        "Loading %s (timing profile %s, speed-up %g)", settings.model_path, settings.profile.name, settings.speedup
    )
    if settings.without_effect:
        log.warning("Accepted but not simulated: %s", ", ".join(settings.without_effect))
    if await _stopped_within(settings.load_s / settings.speedup, stopping):
        return 0
    config.app = App(runtime)
    config.load()
    listener = _Listener(config)
    steps = asyncio.create_task(runtime.engine.steps())
    serving = asyncio.create_task(listener.serve())
    warm = asyncio.create_task(_warm_up(runtime))
    leave = asyncio.create_task(_leave_when_idle(runtime))
    try:
        await asyncio.wait({stopping, steps, serving, leave}, return_when=asyncio.FIRST_COMPLETED)
        if steps.done():
            steps.result()
    finally:
        listener.should_exit = True
        listener.force_exit = True
        for task in (warm, leave, steps, stopping):
            task.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    return 0 if listener.started else 1


async def _warm_up(runtime: Runtime) -> None:
    await asyncio.sleep(runtime.settings.warmup_s / runtime.settings.speedup)
    runtime.status = Status.UP
    log.info("The server is fired up and ready to roll!")


def _leave(runtime: Runtime, stop_now: asyncio.Event) -> None:
    if runtime.status is not Status.UP:
        # Nothing to drain while starting; an unhealthy engine does not wait for its requests.
        stop_now.set()
    runtime.leaving = True


async def _leave_when_idle(runtime: Runtime) -> None:
    while True:
        await asyncio.sleep(LEAVE_POLL_S / runtime.settings.speedup)
        if runtime.leaving and not runtime.engine.busy:
            return


async def _stopped_within(duration_s: float, stopping: asyncio.Task[bool]) -> bool:
    """Waits that long; True as soon as the process is to stop."""
    await asyncio.wait({stopping}, timeout=duration_s)
    return stopping.done()


async def _not_yet(*_: object) -> None:
    raise RuntimeError("replaced before the port opens")
