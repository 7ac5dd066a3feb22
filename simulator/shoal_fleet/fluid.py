"""The routing study's engine: prompts one after the other, decoding beside them, undisturbed and without limits.

What an engine would be whose decode steps are never held up by prefill (decode on other GPUs, say). A stream's speed is
set when it starts, by how many run then; answers take no room in the cache. Much simpler than `engine`, and kept
because the study's figures, and the issue's targets, are for it.
"""

from collections import deque

from shoal_fleet import prefix
from shoal_fleet.clock import Clock
from shoal_fleet.engine import Caller
from shoal_fleet.model import EngineModel
from shoal_fleet.workload import Job
from shoal_sim.radix import RadixCache


class FluidEngine:
    """See the module; the same surface as `engine.Engine`."""

    def __init__(self, name: str, model: EngineModel, clock: Clock) -> None:
        self.name = name
        self.model = model
        self._clock = clock
        self._cache = RadixCache(model.kv_tokens // model.page_tokens)
        self._line: deque[tuple[Job, list[int], Caller]] = deque()
        self._callers: dict[int, Caller] = {}
        """Of everything taken and not ended, by number."""
        self._count = 0
        self._running = 0
        self._busy = False
        self._prefill_s = 0.0
        self._prefill_since_s: float | None = None

    @property
    def requests(self) -> int:
        return len(self._line) + len(self._callers)

    @property
    def waiting_tokens(self) -> int:
        """Prompt tokens that wait here and are not cached."""
        page, cache = self.model.page_tokens, self._cache
        return sum(job.input_tokens - cache.peek(hashes) * page for job, hashes, _ in self._line)

    @property
    def prefill_busy_s(self) -> float:
        """Seconds in which it has computed prompts so far."""
        since_s = self._prefill_since_s
        return self._prefill_s + (0.0 if since_s is None else self._clock.now_s - since_s)

    def submit(self, job: Job, caller: Caller) -> None:
        if job.input_tokens > self.model.kv_tokens:
            self._clock.after(0.0, lambda: caller.failed("too_long"))
            return
        self._line.append((job, prefix.page_hashes(job, self.model.page_tokens), caller))
        if not self._busy:
            self._busy = True
            self._clock.after(0.0, self._next)

    def stop(self) -> None:
        """The process is killed: what it holds fails."""
        lost = [*self._callers.values(), *(caller for _, _, caller in self._line)]
        self._callers.clear()
        self._line.clear()
        for caller in lost:
            caller.failed("replica_gone")

    def _next(self) -> None:
        if not self._line:
            self._busy = False
            return
        job, hashes, caller = self._line.popleft()
        self._count += 1
        number = self._count
        self._callers[number] = caller
        page, cache = self.model.page_tokens, self._cache
        matched = cache.match(hashes[: (job.input_tokens - 1) // page])
        cache.lock(hashes[:matched])
        taken = cache.take(len(hashes) - matched)
        assert taken, "only the prompt under way is locked"
        cached = matched * page
        self._prefill_since_s = self._clock.now_s
        duration_s = self.model.profile.prefill_s([(job.input_tokens - cached, cached)])
        self._clock.after(duration_s, lambda: self._prefilled(number, job, hashes, matched))

    def _prefilled(self, number: int, job: Job, hashes: list[int], matched: int) -> None:
        cache = self._cache
        self._prefill_s, self._prefill_since_s = self.prefill_busy_s, None
        cache.insert(hashes, len(hashes) - matched)
        cache.lock(hashes[matched:])
        cache.unlock(hashes)
        caller = self._callers.get(number)
        if caller is not None:
            self._running += 1
            caller.first_token()
            caller.tokens(1)
            step_s = self.model.profile.decode_s(self._running, 0)
            cached = matched * self.model.page_tokens
            self._clock.after(job.output_tokens * step_s, lambda: self._ended(number, job, cached))
        self._next()

    def _ended(self, number: int, job: Job, cached_tokens: int) -> None:
        self._running -= 1
        caller = self._callers.pop(number, None)
        if caller is not None:
            if job.output_tokens > 1:
                caller.tokens(job.output_tokens - 1)
            caller.ended(cached_tokens)
