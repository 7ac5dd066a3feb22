"""Counts outcomes and makes the report: exact percentiles, rates per user and per GPU, errors by kind.

`Recorder` is fed by the drivers and read by the live view; `summarize` is pure. All times are wall-clock seconds of
the replay, also where think times and the engines run at a speed-up.
"""

import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from shoal_cli.replay.outcome import Ending, Outcome
from shoal_fleet.percentiles import Percentiles, percentiles, rank

RECENT_S = 10.0
RECENT_MAX = 4096


@dataclass(frozen=True, slots=True)
class Summary:
    """`requests` is the sum of `completed`, `failed` and `ended_with_error_event`; cancelled ones are apart."""

    requests: int
    completed: int
    failed: int
    ended_with_error_event: int
    cancelled: int
    retried: int
    """Requests that were sent again because the server asked for it; each also counts by its ending."""
    sessions: int
    wall_s: float
    speedup: float
    hit_rate: float | None
    """Cached prompt tokens per prompt token, as the engines report them, over completed requests."""
    hit_rate_bound: float | None
    """What an infinite cache would reach on the same requests, by the trace's hash ids."""
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    ttft_s: Percentiles
    decode_tokens_per_s_per_user: Percentiles
    e2e_s: Percentiles
    gpus: float | None
    tokens_per_gpu_per_minute: float | None
    """Prompt and output tokens; null where the number of GPUs is not known."""
    errors: dict[str, int]
    error_examples: dict[str, str]
    replicas: dict[str, int]
    """Requests by the replica that answered, where the router says so."""

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Live:
    """The picture of the last seconds."""

    elapsed_s: float
    sessions_active: int
    in_flight: int
    requests: int
    failed: int
    ended_with_error_event: int
    retried: int
    hit_rate: float | None
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    output_tokens_per_s: float


class Recorder:
    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.outcomes: list[Outcome] = []
        self.sessions_active = 0
        self.in_flight = 0
        self._recent: deque[tuple[float, Outcome]] = deque(maxlen=RECENT_MAX)

    def add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self._recent.append((time.monotonic(), outcome))

    def live(self) -> Live:
        now_s = time.monotonic()
        while self._recent and self._recent[0][0] < now_s - RECENT_S:
            self._recent.popleft()
        recent = [outcome for _, outcome in self._recent if outcome.ending is Ending.COMPLETED]
        firsts = sorted(outcome.ttft_s for outcome in recent if outcome.ttft_s is not None)
        endings = Counter(outcome.ending for outcome in self.outcomes)
        span_s = min(RECENT_S, max(1.0, now_s - self.began_s))
        return Live(
            elapsed_s=now_s - self.began_s,
            sessions_active=self.sessions_active,
            in_flight=self.in_flight,
            requests=len(self.outcomes) - endings[Ending.CANCELLED],
            failed=endings[Ending.FAILED],
            ended_with_error_event=endings[Ending.ERROR_EVENT],
            retried=sum(1 for outcome in self.outcomes if outcome.retries),
            hit_rate=_hit_rate(recent),
            ttft_p50_s=rank(firsts, 0.5),
            ttft_p90_s=rank(firsts, 0.9),
            output_tokens_per_s=sum(_output_tokens(outcome) for outcome in recent) / span_s,
        )


def summarize(outcomes: Sequence[Outcome], *, wall_s: float, speedup: float, gpus: float | None) -> Summary:
    done = [outcome for outcome in outcomes if outcome.ending is Ending.COMPLETED]
    endings = Counter(outcome.ending for outcome in outcomes)
    broken = [outcome for outcome in outcomes if outcome.error]
    prompt_tokens = sum(outcome.usage.prompt_tokens for outcome in done if outcome.usage)
    output_tokens = sum(_output_tokens(outcome) for outcome in outcomes)
    bound_of = sum(outcome.input_tokens for outcome in done)
    return Summary(
        requests=len(outcomes) - endings[Ending.CANCELLED],
        completed=len(done),
        failed=endings[Ending.FAILED],
        ended_with_error_event=endings[Ending.ERROR_EVENT],
        cancelled=endings[Ending.CANCELLED],
        retried=sum(1 for outcome in outcomes if outcome.retries),
        sessions=len({outcome.session for outcome in outcomes}),
        wall_s=wall_s,
        speedup=speedup,
        hit_rate=_hit_rate(done),
        hit_rate_bound=sum(outcome.bound_tokens for outcome in done) / bound_of if bound_of else None,
        prompt_tokens=prompt_tokens,
        cached_tokens=sum(outcome.usage.cached_tokens or 0 for outcome in done if outcome.usage),
        output_tokens=output_tokens,
        ttft_s=percentiles([outcome.ttft_s for outcome in done if outcome.ttft_s is not None]),
        decode_tokens_per_s_per_user=percentiles([speed for speed in map(_decode_speed, done) if speed is not None]),
        e2e_s=percentiles([outcome.total_s for outcome in done]),
        gpus=gpus,
        tokens_per_gpu_per_minute=(prompt_tokens + output_tokens) / gpus / wall_s * 60 if gpus and wall_s > 0 else None,
        errors=dict(Counter(outcome.error for outcome in broken).most_common()),
        error_examples={outcome.error: outcome.detail for outcome in reversed(broken)},
        replicas=dict(sorted(Counter(outcome.replica for outcome in done if outcome.replica).items())),
    )


def _hit_rate(outcomes: Sequence[Outcome]) -> float | None:
    """Token-weighted; None where no engine reported cached tokens."""
    reported = [outcome.usage for outcome in outcomes if outcome.usage and outcome.usage.cached_tokens is not None]
    prompt_tokens = sum(usage.prompt_tokens for usage in reported)
    return sum(usage.cached_tokens or 0 for usage in reported) / prompt_tokens if prompt_tokens else None


def _output_tokens(outcome: Outcome) -> int:
    return outcome.usage.completion_tokens if outcome.usage else outcome.tokens_seen


def _decode_speed(outcome: Outcome) -> float | None:
    """Tokens per second that one user sees after the first token; None for answers too short to tell."""
    tokens = _output_tokens(outcome)
    if outcome.decode_s is None or outcome.decode_s <= 0 or tokens < 2:
        return None
    return (tokens - 1) / outcome.decode_s
