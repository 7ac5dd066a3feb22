"""Lifecycle hooks (postStart, preStop): exec, HTTP GET and sleep."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import aiohttp

from shoal_local.agent import probe_rules, process
from shoal_local.agent.process import Order, Process

if TYPE_CHECKING:
    from shoal_local.agent.container import Prepared


async def run_hook(hook: Mapping[str, Any], running: Process, prepared: "Prepared", timeout_s: float) -> str | None:
    """Runs a hook to its end; a message when it failed or took longer than it may."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _run(hook, running, prepared, timeout_s)
    except TimeoutError:
        return f"hook did not end within {timeout_s:g} s"
    except (OSError, aiohttp.ClientError, ValueError) as error:
        return f"hook failed: {error or type(error).__name__}"


async def _run(hook: Mapping[str, Any], running: Process, prepared: "Prepared", timeout_s: float) -> str | None:
    if "exec" in hook:
        order = Order(hook["exec"].get("command") or [], prepared.order.env, prepared.order.cwd, prepared.order.root)
        code, output = await process.run_inside(running, order, timeout_s)
        return None if code == 0 else f"command exited with {code}: {output.strip()[-300:]}"
    if "sleep" in hook:
        await asyncio.sleep(float(hook["sleep"]["seconds"]))
        return None
    if "httpGet" in hook:
        action, target = hook["httpGet"], prepared.hosts
        port = probe_rules.resolve_port(action["port"], target.ports)
        scheme = str(action.get("scheme", "HTTP")).lower()
        path = "/" + str(action.get("path", "/")).lstrip("/")
        url = f"{scheme}://{action.get('host') or target.address}:{port}{path}"
        async with target.session.get(url, allow_redirects=False, ssl=False) as answer:
            return None if answer.status < 400 else f"HTTP hook failed with status {answer.status}"
    return "hook has no action that can be run here"
