"""Asks every live router for its `/state`: what the scaler, the drain logic and the status are made of.

One request per router with a deadline of its own; a router that does not answer, or answers nonsense, is named in the
result instead of being left out, because "nobody said" and "nothing there" lead to opposite decisions.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import httpx
import pydantic

from shoal_api import keys
from shoal_api.state import RouterState

DEADLINE_S: Final = 1.0
PARALLEL: Final = 64
ANSWER_BYTES_MAX: Final = 16 << 20


@dataclass(frozen=True, slots=True, order=True)
class RouterPod:
    """One router process to ask."""

    namespace: str
    router: str
    pod: str
    ip: str

    @property
    def url(self) -> str:
        host = f"[{self.ip}]" if ":" in self.ip else self.ip
        return f"http://{host}:{keys.ROUTER_ADMIN_PORT}/state"


@dataclass(frozen=True, slots=True)
class Answer:
    """What one router said, or why it said nothing; exactly one of the two is set."""

    pod: RouterPod
    at_s: float
    """Monotonic time of the answer."""
    state: RouterState | None = None
    failure: str | None = None


class StatePoller:
    def __init__(self, *, deadline_s: float = DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self._limit = asyncio.Semaphore(PARALLEL)
        limits = httpx.Limits(max_connections=PARALLEL, max_keepalive_connections=PARALLEL)
        # Routers are reached by Pod address; a proxy from the environment would only be in the way.
        self._http = httpx.AsyncClient(timeout=deadline_s, limits=limits, trust_env=False)

    async def close(self) -> None:
        await self._http.aclose()

    async def ask(self, pods: Sequence[RouterPod]) -> tuple[Answer, ...]:
        """One answer a Pod, in the order given; never raises for what a router does."""
        return tuple(await asyncio.gather(*(self._ask_one(pod) for pod in pods)))

    async def _ask_one(self, pod: RouterPod) -> Answer:
        async with self._limit:
            try:
                async with asyncio.timeout(self._deadline_s):
                    state = RouterState.model_validate_json(await self._read(pod.url))
            except TimeoutError:
                return Answer(pod, time.monotonic(), failure="no answer in time")
            except (httpx.HTTPError, pydantic.ValidationError, _TooLargeError) as error:
                return Answer(pod, time.monotonic(), failure=f"{type(error).__name__}: {error}"[:300])
        return Answer(pod, time.monotonic(), state=state)

    async def _read(self, url: str) -> bytes:
        body = bytearray()
        async with self._http.stream("GET", url) as response:
            response.raise_for_status()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > ANSWER_BYTES_MAX:
                    raise _TooLargeError(f"more than {ANSWER_BYTES_MAX} bytes")
        return bytes(body)


class _TooLargeError(Exception):
    """A router's answer beyond any plausible size; reading on would cost memory for nothing."""
