"""POST /abort_request, /flush_cache, /pause_generation, /continue_generation, and the simulator's own /admin/fault."""

import asyncio
import dataclasses
import time
from typing import Any

from shoal_sim.faults import FaultSettings
from shoal_sim.http import bodies, errors
from shoal_sim.http.asgi import Exchange
from shoal_sim.runtime import Runtime

_FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)
_FLUSH_POLL_S = 0.01
_FAULT_TYPES: dict[str, type | tuple[type, ...]] = {
    "stall": bool,
    "reject": bool,
    "crash_after_tokens": int,
    "slow_ready_s": (int, float),
}


async def abort(runtime: Runtime, exchange: Exchange) -> None:
    body = bodies.parse_object(await exchange.body())
    if bodies.boolean(body, "abort_all"):
        runtime.engine.abort_all()
    else:
        rid = body.get("rid")
        if isinstance(rid, str):
            runtime.engine.abort_rid(rid)
    await exchange.reply(200)


async def flush(runtime: Runtime, exchange: Exchange) -> None:
    """With requests about it is refused, after waiting for `timeout` seconds where that is given."""
    timeout_s = bodies.decimal(exchange.query, "timeout", 0.0)
    deadline = time.monotonic() + timeout_s / runtime.settings.speedup
    done = runtime.engine.flush()
    while not done and time.monotonic() < deadline:
        await asyncio.sleep(_FLUSH_POLL_S)
        done = runtime.engine.flush()
    await exchange.reply(200 if done else 400, _FLUSHED.encode())


async def pause(runtime: Runtime, exchange: Exchange) -> None:
    body = await exchange.body()
    mode = bodies.parse_object(body).get("mode", "abort") if body else "abort"
    runtime.engine.paused = True
    if mode == "abort":
        runtime.engine.abort_all()
    await exchange.reply_json({"message": "Generation paused successfully.", "status": "ok"})


async def resume(runtime: Runtime, exchange: Exchange) -> None:
    runtime.engine.paused = False
    runtime.engine.resume()
    await exchange.reply_json({"message": "Generation continued successfully.", "status": "ok"})


async def fault(runtime: Runtime, exchange: Exchange) -> None:
    """Replaces all faults by those in the body; an empty object switches everything off."""
    body = bodies.parse_object(await exchange.body())
    runtime.engine.faults.apply(_fault_settings(body))
    await show_faults(runtime, exchange)


async def show_faults(runtime: Runtime, exchange: Exchange) -> None:
    """The faults, and the rids that the engine holds: tests wait for a request to arrive by them."""
    faults = dataclasses.asdict(runtime.engine.faults.settings)
    await exchange.reply_json({**faults, "live": list(runtime.engine.live)})


def _fault_settings(body: dict[str, Any]) -> FaultSettings:
    for name, value in body.items():
        kind = _FAULT_TYPES.get(name)
        if kind is None:
            raise errors.flat(f"Unknown fault {name!r}; known: {', '.join(_FAULT_TYPES)}.")
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise errors.flat(f"Fault {name!r} has a value of the wrong type: {value!r}.")
    return FaultSettings(**body)
