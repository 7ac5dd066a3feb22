"""GET /health, /health_generate, /ready, /ping.

/health asks the scheduler for an output and takes at least a second, as the engine's; /ready only looks at flags.
"""

import asyncio
import time

from shoal_sim.http.asgi import Exchange
from shoal_sim.http.intake import Terms, make_requests
from shoal_sim.request import Limits, Request
from shoal_sim.runtime import Runtime, Status

HEALTH_MIN_S = 1.0
HEALTH_TIMEOUT_S = 20.0
HEALTH_RID_PREFIX = "HEALTH_CHECK_"


async def ready(runtime: Runtime, exchange: Exchange) -> None:
    await exchange.reply(200 if runtime.ready else 503)


async def health(runtime: Runtime, exchange: Exchange) -> None:
    if runtime.leaving or runtime.status is Status.STARTING or not runtime.engine.faults.ready:
        await exchange.reply(503)
    elif runtime.settings.generating_health:
        await health_generate(runtime, exchange)
    else:
        await exchange.reply(200)


async def health_generate(runtime: Runtime, exchange: Exchange) -> None:
    if runtime.leaving or runtime.status is Status.STARTING:
        await exchange.reply(503)
        return
    engine, speedup = runtime.engine, runtime.settings.speedup
    before = engine.outputs_total
    probe = None if engine.busy else _probe(runtime)
    deadline = time.monotonic() + HEALTH_TIMEOUT_S / speedup
    alive = False
    try:
        while not alive and time.monotonic() < deadline:
            await asyncio.sleep(HEALTH_MIN_S / speedup)
            alive = engine.outputs_total > before
    finally:
        if probe is not None:
            engine.abort_request(probe)
    runtime.status = Status.UP if alive else Status.UNHEALTHY
    await exchange.reply(200 if alive else 503)


def _probe(runtime: Runtime) -> Request:
    """A request for one token, so that an idle engine has something to show."""
    terms = Terms(Limits(max_tokens=1), f"{HEALTH_RID_PREFIX}{time.time_ns()}", "", 0, stream=False)
    (request,) = make_requests(runtime, [b"\0"], terms)
    request.counted = False
    runtime.engine.submit(request, time.monotonic(), text=False)
    return request
