"""Figures of a run, from its outcomes and samples: what users saw, what GPUs did, what the router expected. Pure.

Spreads are those of the benchmark with real processes (`shoal_bench.routing.samples`), so that both can be compared.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from shoal_fleet.fleet import Outcome
from shoal_fleet.percentiles import Percentiles, percentiles

WINDOW_S = 30.0


@dataclass(frozen=True, slots=True)
class ReplicaSample:
    """One replica at one moment."""

    requests: int
    """Running and waiting in the engine."""
    waiting_tokens: int
    """Prompt tokens that wait in the engine and are not cached."""
    prefill_busy_s: float
    """Since its start."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The fleet at one moment."""

    at_s: float
    waiting: int
    """Requests in the router without a replica."""
    replicas: dict[str, ReplicaSample]


@dataclass(frozen=True, slots=True)
class Summary:
    """`requests` ended, of which `failed` did not complete; `refused` came back after a refusal."""

    requests: int
    failed: int
    refused: int
    failures: dict[str, int]
    simulated_s: float
    """From the start to the last end of a request."""
    replica_s: float
    """Replicas times seconds, those that load or drain included."""
    hit_rate: float | None
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    ttft_s: Percentiles
    e2e_s: Percentiles
    decode_tokens_per_s_per_user: Percentiles
    tokens_per_replica_minute: float | None
    """Prompt and output tokens."""
    spread_requests: float | None
    """Mean over time of the most minus the fewest requests on a replica."""
    spread_waiting_tokens: float | None
    """The same for `waiting_tokens`."""
    spread_prefill_cv: float | None
    """Coefficient of variation between replicas of the prefill done in 30 s, mean over time."""
    prefill_share: float | None
    """Share of the replicas' time in which they computed prompts."""
    cached_error: float | None
    """Sum of |expected - real| cached tokens over prompt tokens."""
    cached_bias: float | None
    """The same with its sign: above 0 more was expected than was there."""
    ttft_ratio: Percentiles
    """Real over expected time from placing to the first token."""
    by_replica: dict[str, int]

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def summarize(outcomes: Sequence[Outcome], samples: Sequence[Sample], replica_s: float) -> Summary:
    done = [one for one in outcomes if not one.failure]
    failures: dict[str, int] = {}
    for one in outcomes:
        if one.failure:
            failures[one.failure] = failures.get(one.failure, 0) + 1
    prompt = sum(one.job.input_tokens for one in done)
    cached = sum(one.cached_tokens or 0 for one in done)
    output = sum(one.job.output_tokens for one in done)
    end_s = max((one.ended_s for one in outcomes), default=0.0)
    error = [
        (one.cached_predicted - one.cached_tokens, one.job.input_tokens)
        for one in done
        if one.cached_predicted is not None and one.cached_tokens is not None
    ]
    weight = sum(tokens for _, tokens in error)
    last_s = max((one.arrived_s for one in outcomes), default=0.0)  # later, engines empty unevenly
    used = [each for each in samples if each.replicas and each.at_s <= last_s]
    busy = busy_shares(used)
    by_replica: dict[str, int] = {}
    for one in done:
        by_replica[one.replica] = by_replica.get(one.replica, 0) + 1
    return Summary(
        requests=len(outcomes),
        failed=len(outcomes) - len(done),
        refused=sum(1 for one in outcomes if one.refusals),
        failures=failures,
        simulated_s=end_s,
        replica_s=replica_s,
        hit_rate=cached / prompt if prompt else None,
        prompt_tokens=prompt,
        cached_tokens=cached,
        output_tokens=output,
        ttft_s=percentiles(_known(one.ttft_s for one in done)),
        e2e_s=percentiles(one.ended_s - one.arrived_s for one in done),
        decode_tokens_per_s_per_user=percentiles(_known(_decode_speed(one) for one in done)),
        tokens_per_replica_minute=(prompt + output) / replica_s * 60 if replica_s else None,
        spread_requests=_mean([_range([one.requests for one in each.replicas.values()]) for each in used]),
        spread_waiting_tokens=_mean([_range([one.waiting_tokens for one in each.replicas.values()]) for each in used]),
        spread_prefill_cv=_mean([_cv(shares) for shares in busy if sum(shares) > 0]),
        prefill_share=_mean([share for shares in busy for share in shares]),
        cached_error=sum(abs(off) for off, _ in error) / weight if weight else None,
        cached_bias=sum(off for off, _ in error) / weight if weight else None,
        ttft_ratio=percentiles(_known(_ttft_ratio(one) for one in done)),
        by_replica=dict(sorted(by_replica.items())),
    )


def busy_shares(samples: Sequence[Sample]) -> list[list[float]]:
    """For windows of 30 s one after the other, the share that each replica spent in prefill; only of those that were
    there at both ends."""
    found: list[list[float]] = []
    before = samples[0] if samples else None
    for after in samples:
        assert before is not None
        seconds = after.at_s - before.at_s
        if seconds < WINDOW_S:
            continue
        both = [name for name in after.replicas if name in before.replicas]
        busy = [after.replicas[name].prefill_busy_s - before.replicas[name].prefill_busy_s for name in both]
        if both:
            found.append([one / seconds for one in busy])
        before = after
    return found


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _range(values: Sequence[float]) -> float:
    return max(values) - min(values)


def _cv(values: Sequence[float]) -> float:
    return statistics.pstdev(values) / statistics.fmean(values)


def _decode_speed(one: Outcome) -> float | None:
    """Tokens a second that one user sees after the first token; None for answers too short to tell."""
    if one.first_s is None or one.ended_s <= one.first_s or one.job.output_tokens < 2:
        return None
    return (one.job.output_tokens - 1) / (one.ended_s - one.first_s)


def _ttft_ratio(one: Outcome) -> float | None:
    if one.first_s is None or one.placed_s is None or not one.ttft_predicted_s:
        return None
    return (one.first_s - one.placed_s) / one.ttft_predicted_s
