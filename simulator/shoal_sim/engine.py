"""Runs the scheduler against the clock: the one task that makes steps, and the door for the HTTP handlers.

A step's duration comes from the profile, divided by the speed-up. Timers have a resolution of a millisecond, so the
loop keeps a target time that every step advances, sleeps only when the target is at least that far ahead, and lets a
late step be made up by the next ones: the rate is right even where a step lasts 50 microseconds. Decode steps of which
no caller is shown anything (--stream-interval) are waited for together, until somebody arrives.
Handlers call `submit`, wait on the request, and read it; they and the loop share one thread.
"""

import asyncio
import time
from collections.abc import Callable
from itertools import accumulate

from shoal_sim import stretch
from shoal_sim.batch import Batch
from shoal_sim.faults import Faults, FaultSettings
from shoal_sim.profiles import Profile
from shoal_sim.request import Request, State
from shoal_sim.scheduler import Scheduler
from shoal_sim.speculation import Speculation
from shoal_sim.steptime import step_s
from shoal_sim.telemetry import Telemetry

TIMER_RESOLUTION_S = 0.001
DEBT_MAX_S = 0.25
"""A loop that was held up longer than this (a stopped process) does not try to catch up."""


class Engine:
    """Owns the scheduler. `steps` is the task to run; everything else may be called at any time."""

    def __init__(
        self,
        scheduler: Scheduler,
        profile: Profile,
        telemetry: Telemetry,
        faults: Faults,
        speculation: Speculation | None,
        speedup: float,
        stream_interval: int = 1,
    ) -> None:
        self.scheduler = scheduler
        self.profile = profile
        self.telemetry = telemetry
        self.faults = faults
        self.speedup = speedup
        self.paused = False
        self.live: dict[str, Request] = {}
        self.outputs_total = 0
        self._speculation = speculation
        self._stream_interval = stream_interval
        self.inbox: list[Request] = []
        self._aborts: list[Callable[[Request], bool]] = []
        self._wake = asyncio.Event()

    # ---- for handlers

    def submit(self, request: Request) -> None:
        """Hands a request over; it is looked at before the next step. Its rid must not be live."""
        request.times.received = time.time()
        self.live[request.rid] = request
        self.inbox.append(request)
        self._wake.set()

    def abort_rid(self, rid: str) -> None:
        """Aborts by prefix, as the engine does; an rid that is no live request is ignored."""
        if rid in self.live:
            self._abort(lambda request: request.rid.startswith(rid))

    def abort_all(self) -> None:
        self._abort(lambda request: True)

    def abort_request(self, request: Request) -> None:
        if request.finish is None:
            self._abort(lambda other: other is request)

    def resume(self) -> None:
        self._wake.set()

    def flush(self) -> bool:
        """Empties the prefix cache; refused while requests run."""
        if not self.scheduler.idle or self.inbox:
            return False
        self.scheduler.cache.flush()
        return True

    @property
    def busy(self) -> bool:
        return bool(self.live)

    # ---- the loop

    async def steps(self) -> None:
        target = time.monotonic()
        while True:
            self._take_input()
            unseen = self._unseen_steps()
            if unseen > 1:
                target = await self._decode_unseen(unseen, target)
                continue
            batch = None if self.paused else self.scheduler.plan()
            self._report(self.scheduler.take_ended())
            if batch is None:
                if self.paused or self.scheduler.idle:
                    self._wake.clear()
                    self.telemetry.idle_begins()
                    began = time.monotonic()
                    await self._wake.wait()
                    target = time.monotonic()
                    self.telemetry.idle_ends(target - began)
                else:
                    await asyncio.sleep(TIMER_RESOLUTION_S)
                continue
            duration = self.duration_s(batch)
            self._mark_started(batch)
            target = await self._elapse(target + duration / self.speedup)
            await self.faults.hold()  # after the wait: of a step that had begun, nothing comes either
            now = time.time()
            changed = self.scheduler.complete(batch, now)
            self.telemetry.step(batch, duration, self.scheduler)
            self._report(changed)
            self.faults.produced(self.scheduler.counters)

    def _unseen_steps(self) -> int:
        """How many decode steps from here on show no caller anything and nothing else can happen in but arrivals."""
        if self._stream_interval == 1 or self.paused or self.faults.settings != FaultSettings():
            return 0
        due = [r.due_tokens - len(r.output) - 1 for r in self.scheduler.running if r.streaming]
        return stretch.steps_max(self.scheduler, min(due)) if due else 0

    async def _decode_unseen(self, steps: int, target: float) -> float:
        """Makes such steps, at most `steps`: up to the end of the one under way when somebody arrives."""
        running = list(self.scheduler.running)
        context = sum(request.sequence_tokens for request in running)
        durations = [self.profile.decode_s(len(running), context + step * len(running)) for step in range(steps)]
        ends = list(accumulate((duration / self.speedup for duration in durations), initial=target))[1:]
        self._wake.clear()
        timer = asyncio.get_running_loop().call_later(max(0.0, ends[-1] - time.monotonic()), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
        now = time.monotonic()
        made = min(steps, 1 + sum(end <= now for end in ends))
        target = await self._elapse(ends[made - 1])
        await self.faults.hold()
        stretch.advance(self.scheduler, made)
        for duration in durations[:made]:
            self.telemetry.step(Batch([], running), duration, self.scheduler)
        self.faults.produced(self.scheduler.counters)
        return target

    def duration_s(self, batch: Batch) -> float:
        """Seconds that the step takes on the modelled hardware."""
        return step_s(self.profile, batch, self._speculation)

    async def _elapse(self, target: float) -> float:
        """Waits until the target time; returns the time from which the next step counts."""
        ahead = target - time.monotonic()
        if ahead >= TIMER_RESOLUTION_S:
            await asyncio.sleep(ahead)
        else:
            await asyncio.sleep(0)
        return max(target, time.monotonic() - DEBT_MAX_S)

    def _take_input(self) -> None:
        for request in self.inbox:
            self.scheduler.submit(request)
        self.inbox.clear()
        for matches in self._aborts:
            self.scheduler.abort(matches)
        self._aborts.clear()

    def _abort(self, matches: Callable[[Request], bool]) -> None:
        self._aborts.append(matches)
        if self.faults.stalled:
            return
        self._take_input()
        self._report(self.scheduler.take_ended())

    def _mark_started(self, batch: Batch) -> None:
        now = time.time()
        for piece in batch.prefill:
            if not piece.request.times.forward_entry:
                piece.request.times.forward_entry = now

    def _report(self, requests: list[Request]) -> None:
        for request in requests:
            if request.output:
                self.outputs_total += 1
            if request.state is State.DONE:
                request.times.finished = time.time()
                self.live.pop(request.rid, None)
                if request.counted:
                    self.telemetry.finished(request)
            if self._due(request):
                request.signal.set()

    def _due(self, request: Request) -> bool:
        """Whether a caller is told now: a stream's first token, then every `stream_interval`-th, and the end."""
        tokens = len(request.output)
        if request.finish is None and request.streaming and tokens < request.due_tokens:
            return False
        request.due_tokens = tokens + self._stream_interval - (tokens - 1) % self._stream_interval
        return True
