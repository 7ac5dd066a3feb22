"""Runs the scheduler against the clock: the one task that makes steps, and the door for the HTTP handlers.

A step's duration comes from the profile, divided by the speed-up, and so does the time from a request's arrival until
the scheduler could see it (`shoal_sim.arrivals`), the handler's own work included. Timers have a resolution of a
millisecond, so the loop keeps a target time that every step advances, sleeps only when the target is at least that far
ahead, and lets a late step be made up by the next ones: the rate is right even where a step lasts 50 microseconds.
Decode steps of which no caller is shown anything (--stream-interval) are waited for together, until somebody arrives.
Handlers call `submit`, wait on the request, and read it; they and the loop share one thread.
"""

import asyncio
import time
from collections.abc import Callable
from itertools import accumulate

from shoal_sim import stretch
from shoal_sim.arrivals import Arrivals
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
        overlap: bool = True,
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
        self.arrivals = Arrivals(profile.reception.faster(speedup), overlap)
        self._overlap = overlap
        self._aborts: list[Callable[[Request], bool]] = []
        self._wake = asyncio.Event()

    # ---- for handlers

    def submit(self, request: Request, received_s: float, text: bool) -> None:
        """Hands a request over that came at that time of the loop's clock. Its rid must not be live."""
        request.times.received = time.time()
        self.live[request.rid] = request
        self._wake_at(self.arrivals.add(request, text, received_s))

    async def read(self, tokens: int, text: bool, received_s: float) -> None:
        """Returns when a prompt that came at that time has been read, and tokenized, though nothing is generated."""
        ahead_s = self.arrivals.read(tokens, text, received_s) - time.monotonic()
        if ahead_s > 0:
            await asyncio.sleep(ahead_s)

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
        if not self.scheduler.idle or self.arrivals:
            return False
        self.scheduler.cache.flush()
        return True

    @property
    def busy(self) -> bool:
        return bool(self.live)

    # ---- the loop

    async def steps(self) -> None:
        began = target = time.monotonic()
        prepared = False
        while True:
            now = time.monotonic()
            self._take(self.arrivals.here(now) if self.paused else self.arrivals.due(began, now))
            unseen = self._unseen_steps()
            if unseen > 1:
                began, target = await self._decode_unseen(unseen, target)
                prepared = self._overlap
                continue
            batch = None if self.paused else self.scheduler.plan()
            if batch is None:
                prepared = False
            if batch is None and not self.paused:
                self._take(self.arrivals.here(now))
                batch = self.scheduler.plan()
            self._report(self.scheduler.take_ended())
            if batch is None:
                if self.paused or self.scheduler.idle:
                    await self._idle()
                    target = time.monotonic()
                else:
                    await asyncio.sleep(TIMER_RESOLUTION_S)
                continue
            duration = self.duration_s(batch, prepared)
            began, prepared = target, self._overlap
            self._mark_started(batch)
            target = await self._elapse(target + duration / self.speedup)
            await self.faults.hold()  # after the wait: of a step that had begun, nothing comes either
            changed = self.scheduler.complete(batch, time.time())
            self.telemetry.step(batch, duration, self.scheduler)
            self._report(changed)
            self.faults.produced(self.scheduler.counters)

    async def _idle(self) -> None:
        """Waits until there may be something to do."""
        self._wake.clear()
        next_s = self.arrivals.next_s
        if next_s is not None and not self.paused:
            self._wake_at(next_s)
        self.telemetry.idle_begins()
        since = time.monotonic()
        await self._wake.wait()
        self.telemetry.idle_ends(time.monotonic() - since)

    def _wake_at(self, when_s: float) -> None:
        ahead_s = when_s - time.monotonic()
        if ahead_s > 0:
            asyncio.get_running_loop().call_later(ahead_s, self._wake.set)
        else:
            self._wake.set()

    def _unseen_steps(self) -> int:
        """How many decode steps from here on show no caller anything and nothing else can happen in but arrivals."""
        if self._stream_interval == 1 or self.paused or self.faults.settings != FaultSettings():
            return 0
        next_s = self.arrivals.next_s
        if next_s is not None and next_s <= time.monotonic():
            return 0
        due = [r.due_tokens - len(r.output) - 1 for r in self.scheduler.running if r.streaming]
        return stretch.steps_max(self.scheduler, min(due)) if due else 0

    async def _decode_unseen(self, steps: int, target: float) -> tuple[float, float]:
        """Makes such steps, at most `steps`: when somebody arrives, up to the last that does not look at arrivals.
        Returns when the last one began, and the time from which the next step counts."""
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
        made = min(steps, 1 + self._overlap + sum(end <= now for end in ends))
        began = ends[made - 1] - durations[made - 1] / self.speedup
        target = await self._elapse(ends[made - 1])
        await self.faults.hold()
        stretch.advance(self.scheduler, made)
        for duration in durations[:made]:
            self.telemetry.step(Batch([], running), duration, self.scheduler)
        self.faults.produced(self.scheduler.counters)
        return began, target

    def duration_s(self, batch: Batch, prepared: bool = True) -> float:
        """Seconds that the step takes on the modelled hardware."""
        return step_s(self.profile, batch, self._speculation, prepared=prepared)

    async def _elapse(self, target: float) -> float:
        """Waits until the target time; returns the time from which the next step counts."""
        ahead = target - time.monotonic()
        if ahead >= TIMER_RESOLUTION_S:
            await asyncio.sleep(ahead)
        else:
            await asyncio.sleep(0)
        return max(target, time.monotonic() - DEBT_MAX_S)

    def _take(self, requests: list[Request]) -> None:
        for request in requests:
            self.scheduler.submit(request)
        for matches in self._aborts:
            self._drop(matches)
        self._aborts.clear()

    def _drop(self, matches: Callable[[Request], bool]) -> None:
        self.scheduler.abort_unseen(self.arrivals.withdraw(matches))
        self.scheduler.abort(matches)

    def _abort(self, matches: Callable[[Request], bool]) -> None:
        if self.faults.stalled:
            self._aborts.append(matches)
            return
        self._drop(matches)
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
