"""What the engine counts, for /v1/loads and /metrics: written by the engine's loop and the HTTP layer, read by both
routes. Times are those that a client sees, so with a speed-up they are shorter than the modelled hardware's.
"""

import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from shoal_sim.batch import Batch
from shoal_sim.request import Request
from shoal_sim.scheduler import Scheduler

THROUGHPUT_STEPS = 40
"""Decode steps between two readings of the generation throughput (the engine's decode_log_interval)."""


class Histogram:
    """Counts by upper bound; `observe` can count a value many times at once."""

    __slots__ = ("bounds", "count", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.count = 0
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.count += times
        self.total += value * times


@dataclass(slots=True)
class ByStreaming:
    """One value for streaming requests, one for the others."""

    streaming: float = 0.0
    other: float = 0.0

    def add(self, streaming: bool, amount: float) -> None:
        if streaming:
            self.streaming += amount
        else:
            self.other += amount


@dataclass(slots=True)
class HttpCounts:
    """By (endpoint, method); responses also by status."""

    requests: dict[tuple[str, str], int] = field(default_factory=dict)
    responses: dict[tuple[str, str, int], int] = field(default_factory=dict)
    active: dict[tuple[str, str], int] = field(default_factory=dict)


class Telemetry:
    """Bounded: HTTP endpoints are counted by route, unknown paths together."""

    def __init__(self, buckets: dict[str, Sequence[float]], speedup: float) -> None:
        self._speedup = speedup
        self.http = HttpCounts()
        self.gen_throughput = 0.0
        self.cache_hit_rate = 0.0
        self.prefill_busy_s = 0.0
        self.idle_s = 0.0
        self.decode_moments = [0.0] * 6
        """Sums over decode steps: 1, B, t, B², B·t, tokens; t in microseconds of the modelled hardware."""
        self.requests = ByStreaming()
        self.prompt_tokens = ByStreaming()
        self.generation_tokens = ByStreaming()
        self.cached_tokens = 0
        self.aborted = 0
        self.queue_time = Histogram(buckets["queue_time_seconds"])
        self.prefill_stage = Histogram(buckets["per_stage_req_latency_seconds"])
        self.inter_token = Histogram(buckets["inter_token_latency_seconds"])
        self.loads_duration = Histogram(buckets["get_loads_duration_seconds"])
        self.prompt_sizes = Histogram(buckets["prompt_tokens_histogram"])
        self.uncached_sizes = Histogram(buckets["uncached_prompt_tokens_histogram"])
        self.generation_sizes = Histogram(buckets["generation_tokens_histogram"])
        self.first_token = _pair(buckets["time_to_first_token_seconds"])
        self.whole_request = _pair(buckets["e2e_request_latency_seconds"])
        self.per_output_token = _pair(buckets["request_time_per_output_token_seconds"])
        self._since_decode_s = 0.0
        self._reading_at = time.monotonic()
        self._reading_steps = 0
        self._reading_tokens = 0

    # ---- from the engine's loop

    def step(self, batch: Batch, duration_s: float, scheduler: Scheduler) -> None:
        self._since_decode_s += duration_s
        if batch.prefill:
            self.prefill_busy_s += duration_s
            self._note_hits(batch)
        if batch.decode:
            self._note_decode(len(batch.decode), scheduler)

    def idle_begins(self) -> None:
        self.gen_throughput = 0.0
        self._since_decode_s = 0.0
        self._reading_steps = 0

    def idle_ends(self, seconds: float) -> None:
        self.idle_s += seconds

    def finished(self, request: Request) -> None:
        if request.finish is not None and request.finish.kind == "abort":
            self.aborted += 1
        if not request.times.first_token:
            return
        times, streaming, output = request.times, request.streaming, len(request.output)
        self.requests.add(streaming, 1)
        self.prompt_tokens.add(streaming, request.prompt.tokens)
        self.generation_tokens.add(streaming, output)
        self.cached_tokens += request.cached_tokens
        self.queue_time.observe(times.forward_entry - times.received)
        self.prefill_stage.observe(times.prefill_finished - times.forward_entry)
        self.prompt_sizes.observe(request.prompt.tokens)
        self.uncached_sizes.observe(request.prompt.tokens - request.cached_tokens)
        self.generation_sizes.observe(output)
        self.first_token[streaming].observe(times.first_token - times.received)
        self.whole_request[streaming].observe(times.finished - times.received)
        if output > 1:
            self.per_output_token[streaming].observe((times.finished - times.first_token) / (output - 1))

    # ---- from the HTTP layer

    def http_began(self, endpoint: str, method: str) -> None:
        key = (endpoint, method)
        self.http.requests[key] = self.http.requests.get(key, 0) + 1
        self.http.active[key] = self.http.active.get(key, 0) + 1

    def http_ended(self, endpoint: str, method: str, status: int) -> None:
        self.http.active[endpoint, method] -= 1
        if status:
            key = (endpoint, method, status)
            self.http.responses[key] = self.http.responses.get(key, 0) + 1

    def _note_hits(self, batch: Batch) -> None:
        computed = sum(piece.tokens for piece in batch.prefill)
        cached = sum(piece.prefix for piece in batch.prefill if piece.prefix == piece.request.cached_tokens)
        self.cache_hit_rate = cached / (cached + computed) if computed else 0.0

    def _note_decode(self, size: int, scheduler: Scheduler) -> None:
        gap_s, self._since_decode_s = self._since_decode_s, 0.0
        # All running streams waited equally long: since the last decode step, prefill in between included.
        self.inter_token.observe(gap_s / self._speedup, size)
        micros, moments = gap_s * 1e6, self.decode_moments
        tokens = scheduler.counters.decode_tokens
        for index, amount in enumerate((1, size, micros, size * size, size * micros)):
            moments[index] += amount
        moments[5] = float(tokens)
        if self._reading_steps == 0:
            self._reading_at, self._reading_tokens = time.monotonic(), tokens
        self._reading_steps += 1
        if self._reading_steps > THROUGHPUT_STEPS:
            elapsed = max(time.monotonic() - self._reading_at, 1e-6)
            self.gen_throughput = (tokens - self._reading_tokens) / elapsed
            self._reading_steps = 0


def _pair(bounds: Sequence[float]) -> dict[bool, Histogram]:
    """By whether the request streams."""
    return {True: Histogram(bounds), False: Histogram(bounds)}
