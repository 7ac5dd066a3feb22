"""Takes a checked request of a known model and sees it through; small calls to engines on the side.

Called by the server for requests, by exchanges for aborts and suspicions.
"""

import math
import random
import secrets
from collections.abc import Callable
from typing import Any, Final

import orjson

from shoal_router import model
from shoal_router.dispatch.api import Api
from shoal_router.dispatch.checks import RID_LENGTH, Checked
from shoal_router.dispatch.exchange import Client, Exchange
from shoal_router.dispatch.fleet import Fleet
from shoal_router.dispatch.handle import Handle
from shoal_router.dispatch.service import Service
from shoal_router.index import request as requests
from shoal_router.timers import TICK_S, Wheel
from shoal_router.upstream.call import Answer, Call, NoAnswer, post_request
from shoal_router.upstream.connection import Headers

ABORT_TIMEOUT_S: Final = 5.0


class Dispatcher:
    """One a process."""

    def __init__(self, wheel: Wheel, fleet: Fleet, access_log: bool = False) -> None:
        self.access_log = access_log
        self.now: Callable[[], float] = wheel.now
        self._wheel = wheel
        self._rids = random.Random(secrets.randbits(256))
        self.fleet = fleet
        self.deadline_s = math.inf
        self.timer_slot = -1

    def new_rid(self) -> str:
        """A request id of fixed length, since engines abort by prefix. It must be unique, not secret: only
        who reaches an engine can abort by it. So it costs no system call."""
        return self._rids.getrandbits(4 * RID_LENGTH).to_bytes(RID_LENGTH // 2, "big").hex()

    def start(self) -> None:
        self._wheel.arm(self, self.now() + TICK_S)

    def on_deadline(self, now_s: float) -> None:
        """The waiting queues' clock: expiry, and prefill presumed done."""
        self._wheel.arm(self, now_s + TICK_S)
        for service in self.fleet.services.values():
            at_s = service.core.next_wake()
            if at_s is not None and at_s <= now_s:
                service.core.pump(now_s)

    def reject_waiting(self) -> None:
        """This router ends: tell those who still wait, so that they ask another."""
        for service in self.fleet.services.values():
            service.core.reject_all(model.Outcome.DRAINING, self.now())

    def read(
        self, prompt: requests.Api, checked: Checked, size: int, headers: dict[str, str], order: tuple[str, ...]
    ) -> model.Request:
        """What the policy needs to know of a request that generates; `headers` tell session and caller."""
        return requests.read(prompt, checked.doc, headers, order, size)

    def open(
        self,
        service: Service,
        client: Client,
        api: Api,
        checked: Checked,
        body: bytes,
        headers: Headers,
        request: model.Request | None,
        explain: bool,
    ) -> Exchange:
        return Exchange(self, service, client, api, checked, body, headers, request, explain)

    def abort_request(self, handle: Handle, rid: str) -> None:
        """Tell the engine that nobody wants this request any more. Its closed connection says so too, later."""
        body = orjson.dumps({"rid": rid})
        request = post_request("/abort_request", handle.pool.authority.decode(), body)
        Call(handle.pool, self._wheel, request, _ignore).start(self.now() + ABORT_TIMEOUT_S)

    def ask(
        self,
        handle: Handle,
        path: str,
        body: bytes,
        headers: Headers,
        timeout_s: float,
        bytes_max: int,
        on_result: Callable[[Answer | NoAnswer], None],
    ) -> Call:
        """A call to an engine for a request, beside it, with the request's own headers."""
        request = post_request(path, handle.pool.authority.decode(), body, headers)
        call = Call(handle.pool, self._wheel, request, on_result, bytes_max)
        call.start(self.now() + timeout_s)
        return call

    def suspect(self, handle: Handle) -> None:
        """A connection was refused: look at once whether the replica is gone."""
        self.fleet.probe_now(handle)


def _ignore(_: Answer | NoAnswer) -> Any:
    return None
