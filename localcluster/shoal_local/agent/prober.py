"""Asks a container how it is: exec, HTTP and TCP probes, each on its own schedule, startup before the others."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from shoal_local.agent import probe_rules
from shoal_local.agent.probe_rules import ProbeSpec, Verdict

_BODY_BYTES_MAX: Final = 10 * 1024
_MESSAGE_CHARS_MAX: Final = 300
_LAUNCH_ALLOWANCE_S: Final = 1.0
"""Entering the container's namespaces is our cost, not the command's."""

RunInside = Callable[[list[str], float], Awaitable[tuple[int, str]]]


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of one probe; the message is empty on success."""

    succeeded: bool
    message: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """What probes ask."""

    address: str
    ports: list[Mapping[str, Any]]
    session: aiohttp.ClientSession
    run_inside: RunInside


async def ask(spec: ProbeSpec, target: Target) -> Answer:
    """One probe, answered within its timeout."""
    try:
        allowance_s = _LAUNCH_ALLOWANCE_S if spec.handler == "exec" else 0.0
        async with asyncio.timeout(spec.timeout_s + allowance_s):
            if spec.handler == "exec":
                return await _ask_exec(spec, target)
            if spec.handler == "httpGet":
                return await _ask_http(spec, target)
            return await _ask_tcp(spec, target)
    except TimeoutError:
        return Answer(False, f"{spec.handler} probe timed out after {spec.timeout_s:g} s")
    except (OSError, aiohttp.ClientError, ValueError) as error:
        return Answer(False, f"{error or type(error).__name__}"[:_MESSAGE_CHARS_MAX])


async def _ask_exec(spec: ProbeSpec, target: Target) -> Answer:
    command = list(spec.action.get("command") or [])
    code, output = await target.run_inside(command, spec.timeout_s + _LAUNCH_ALLOWANCE_S)
    return Answer(True) if code == 0 else Answer(False, output.strip()[-_MESSAGE_CHARS_MAX:] or f"exit code {code}")


async def _ask_http(spec: ProbeSpec, target: Target) -> Answer:
    port = probe_rules.resolve_port(spec.action["port"], target.ports)
    scheme = str(spec.action.get("scheme", "HTTP")).lower()
    host = spec.action.get("host") or target.address
    path = "/" + str(spec.action.get("path", "/")).lstrip("/")
    headers = {"User-Agent": "kube-probe/1.37", "Accept": "*/*", "Connection": "close"}
    headers |= {each["name"]: each["value"] for each in spec.action.get("httpHeaders") or []}
    url = f"{scheme}://{host}:{port}{path}"
    # A kubelet does not check the certificate of what it probes.
    async with target.session.get(url, headers=headers, allow_redirects=False, ssl=False) as answer:
        if 200 <= answer.status < 400:
            return Answer(True)
        body = (await answer.content.read(_BODY_BYTES_MAX)).decode(errors="replace")
        return Answer(False, f"HTTP probe failed with statuscode: {answer.status} {body}"[:_MESSAGE_CHARS_MAX].strip())


async def _ask_tcp(spec: ProbeSpec, target: Target) -> Answer:
    port = probe_rules.resolve_port(spec.action["port"], target.ports)
    _, writer = await asyncio.open_connection(spec.action.get("host") or target.address, port)
    writer.close()
    return Answer(True)


async def probe_until(
    spec: ProbeSpec, target: Target, on_verdict: Callable[[ProbeSpec, Verdict, Answer], bool]
) -> None:
    """Probes on schedule, reporting each verdict, until `on_verdict` returns False."""
    await asyncio.sleep(spec.initial_delay_s)
    verdict = Verdict()
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        answer = await ask(spec, target)
        verdict = verdict.after(spec, answer.succeeded)
        if not on_verdict(spec, verdict, answer):
            return
        due = max(due + spec.period_s, loop.time())
        await asyncio.sleep(due - loop.time())


def probe_session() -> aiohttp.ClientSession:
    """A client without keep-alive: a probe must see a listener that has gone."""
    connector = aiohttp.TCPConnector(limit=0, force_close=True, ssl=ssl.create_default_context())
    return aiohttp.ClientSession(connector=connector, auto_decompress=False)
