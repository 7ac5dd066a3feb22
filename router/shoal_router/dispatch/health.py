"""Is a replica there, does it answer, does it produce? One prober a replica, driven by the wheel.

Three questions, asked apart because they have different answers in a healthy engine:
- ready: `/ready` every 2 s (`/health` on engines that lack it). Not ready: no new requests, running ones go on.
- alive: while requests wait in silence for 1.5 s, a probe that needs no scheduler. No answer in 2.5 s and not one byte
  from the process meanwhile: it hangs or is gone; its requests end now, within 5 s of the last byte.
- producing: SGLang decodes nothing while it prefills, so silence alone means little. Streams that are silent for
  max(5 s, 10 x p99 gap between tokens) beyond what the prefill bound there can take (four times the prediction), while
  `/health_generate` gets no answer either, are on a scheduler that is stuck.
"""

import math
from collections.abc import Callable
from typing import Final

from shoal_router import log, model
from shoal_router.dispatch import engine
from shoal_router.dispatch.breaker import Circuit
from shoal_router.dispatch.handle import Handle
from shoal_router.metrics import histogram
from shoal_router.timers import Wheel
from shoal_router.upstream.call import Answer, Call, NoAnswer, get_request
from shoal_router.upstream.connection import Failure

STEP_S: Final = 0.25
PROBE_EVERY_S: Final = 2.0
PROBE_SOON_S: Final = 0.5
PROBE_TIMEOUT_S: Final = 2.5
SUSPECT_S: Final = 1.5
STALL_S: Final = 5.0
GAPS: Final = 10.0
PREFILL_SLACK: Final = 4.0
GENERATE_LEAD_S: Final = 2.5
"""The generating probe starts so long before silence counts as a stall."""
GENERATE_TIMEOUT_S: Final = 30.0
UNSTREAMED_STALL_S: Final = 60.0
"""For requests that do not stream, where silence is normal."""
INFO_EVERY_S: Final = 60.0
INFO_TIMEOUT_S: Final = 5.0
CONNECT_FAILURES_MAX: Final = 2
_ALIVE: Final = "/v1/models"


class Prober:
    """See the module. Stops by itself once a retired replica has no request left."""

    __slots__ = (
        "_failures",
        "_generate",
        "_generate_since_s",
        "_handle",
        "_info",
        "_next_info_s",
        "_next_probe_s",
        "_on_stop",
        "_probe",
        "_probe_since_s",
        "_wheel",
        "deadline_s",
        "timer_slot",
    )

    def __init__(self, handle: Handle, wheel: Wheel, on_stop: Callable[[Handle, None], object]) -> None:
        self._handle = handle
        self._wheel = wheel
        self._on_stop = on_stop
        self.deadline_s = math.inf
        self.timer_slot = -1
        self._probe: Call | None = None
        self._probe_since_s = 0.0
        self._generate: Call | None = None
        self._generate_since_s = 0.0
        self._info: Call | None = None
        self._next_probe_s = 0.0
        self._next_info_s = 0.0
        self._failures = 0
        """Probes in a row that could not connect."""

    def start(self, now_s: float) -> None:
        self.on_deadline(now_s)

    def stop(self) -> None:
        self._wheel.disarm(self)
        for call in (self._probe, self._generate, self._info):
            if call is not None:
                call.cancel()
        self._probe = self._generate = self._info = None
        self._handle.pool.close()
        self._handle.service.retiring.discard(self._handle)
        self._on_stop(self._handle, None)

    def probe_soon(self) -> None:
        self._next_probe_s = 0.0

    def on_deadline(self, now_s: float) -> None:
        handle = self._handle
        if handle.retired and not handle.guests:
            self.stop()
            return
        self._wheel.arm(self, now_s + STEP_S)
        breaker = handle.breaker
        if breaker.circuit is Circuit.OPEN and now_s >= breaker.open_until_s:
            breaker.half_open()
        handle.refresh(now_s)
        if self._info is None and now_s >= self._next_info_s and not handle.retired and handle.target.ready:
            self._ask_info(now_s)
        silence_s = now_s - handle.last_output_s if handle.guests else 0.0
        if self._probe is None and (
            now_s >= self._next_probe_s or (silence_s >= SUSPECT_S and now_s >= self._probe_since_s + 1.0)
        ):
            self._ask(now_s, silence_s >= SUSPECT_S)
        if silence_s > GENERATE_LEAD_S:
            self._watch_production(silence_s, now_s)

    # /server_info

    def _ask_info(self, now_s: float) -> None:
        self._next_info_s = now_s + (INFO_EVERY_S if self._handle.info is not None else 1.0)
        self._info = self._call("/server_info", INFO_TIMEOUT_S, now_s, self._on_info)

    def _on_info(self, result: Answer | NoAnswer) -> None:
        self._info = None
        if isinstance(result, Answer) and result.status == 200:
            info = engine.parse(result.body)
            if info is not None:
                now_s = self._wheel.now()
                self._next_info_s = now_s + INFO_EVERY_S
                self._handle.on_info(info, now_s)

    # Ready and alive

    def _ask(self, now_s: float, suspicious: bool) -> None:
        handle = self._handle
        self._next_probe_s = now_s + PROBE_EVERY_S
        self._probe_since_s = now_s
        # /health of engines without /ready waits for the scheduler: it cannot tell a hung process from a busy one.
        path = _ALIVE if suspicious and handle.probed_path != "/ready" else handle.probed_path
        self._probe = self._call(path, PROBE_TIMEOUT_S, now_s, self._on_probe)

    def _on_probe(self, result: Answer | NoAnswer) -> None:
        self._probe = None
        handle = self._handle
        now_s = self._wheel.now()
        if isinstance(result, NoAnswer):
            self._unanswered(result, now_s)
            return
        self._failures = 0
        if result.status == 404 and handle.probed_path == "/ready":
            handle.probed_path = "/health"
            self._next_probe_s = now_s
        elif result.status >= 500:
            handle.eject("unready", now_s)
        elif handle.ejected:
            self._next_info_s = min(self._next_info_s, now_s)
            handle.readmit(now_s)

    def _unanswered(self, result: NoAnswer, now_s: float) -> None:
        handle = self._handle
        heard = handle.pool.last_byte_s >= self._probe_since_s
        self._next_probe_s = now_s + PROBE_SOON_S
        if result.failure is Failure.CONNECT:
            self._failures += 1
            handle.eject("unreachable", now_s)
            if self._failures >= CONNECT_FAILURES_MAX and not heard:
                self._lost(model.Outcome.REPLICA_FAILED, "unreachable")
        elif result.failure is None and not heard:
            if handle.probed_path == "/ready" or handle.last_output_s < self._probe_since_s - SUSPECT_S:
                handle.eject("stalled", now_s)
                self._lost(model.Outcome.REPLICA_STALLED, "no answer to a probe")
        elif result.failure is not None:
            self._failures += 1
            if self._failures >= CONNECT_FAILURES_MAX:
                handle.eject("unreachable", now_s)

    def _lost(self, outcome: model.Outcome, why: str) -> None:
        handle = self._handle
        if handle.guests:
            log.warning(
                "requests on a lost replica end or move",
                service=handle.service.name,
                replica=handle.name,
                requests=len(handle.guests),
                why=why,
            )
            handle.fail_guests(outcome)

    # Producing

    def _watch_production(self, silence_s: float, now_s: float) -> None:
        handle = self._handle
        expecting = any(guest.streaming and not guest.paused for guest in handle.guests)
        limit_s = self.silence_max_s(expecting, now_s)
        if silence_s < limit_s - GENERATE_LEAD_S:
            return
        if self._generate is None:
            self._generate_since_s = now_s
            self._generate = self._call("/health_generate", GENERATE_TIMEOUT_S, now_s, self._on_generate)
        elif silence_s >= limit_s and now_s - self._generate_since_s >= GENERATE_LEAD_S - 2 * STEP_S:
            self._stalled(now_s)

    def silence_max_s(self, expecting: bool, now_s: float) -> float:
        """Longest silence that is no stall."""
        core = self._handle.service.core
        prefill_s = PREFILL_SLACK * core.prefill_bound_s(self._handle.name)
        if not expecting:
            return UNSTREAMED_STALL_S + prefill_s
        gap_s = histogram.percentile(core.counters.itl.counts(now_s), 0.99) or 0.0
        return max(STALL_S, GAPS * gap_s) + prefill_s

    def _on_generate(self, result: Answer | NoAnswer) -> None:
        self._generate = None
        now_s = self._wheel.now()
        if isinstance(result, Answer) and result.status < 500:
            # Something was produced: the scheduler runs, whatever our streams wait for.
            self._handle.last_output_s = max(self._handle.last_output_s, now_s)
        elif isinstance(result, Answer):
            self._stalled(now_s)

    def _stalled(self, now_s: float) -> None:
        call, self._generate = self._generate, None
        if call is not None:
            call.cancel()
        self._handle.eject("stalled", now_s)
        # Ready it may say it is: it comes back when it generates.
        self._next_probe_s = now_s + PROBE_EVERY_S
        self._lost(model.Outcome.REPLICA_STALLED, "nothing is produced")

    def _call(self, path: str, timeout_s: float, now_s: float, on_result: Callable[[Answer | NoAnswer], None]) -> Call:
        pool = self._handle.pool
        call = Call(pool, self._wheel, get_request(path, pool.authority.decode()), on_result)
        call.start(now_s + timeout_s)
        return call
