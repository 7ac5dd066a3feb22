"""The demo's result file, and the verdict on it. Pure: every condition of success is a function of the figures."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from shoal_cli.replay import results
from shoal_cli.replay.outcome import Ending, Outcome
from shoal_fleet import percentiles

LATE_S = 6.0
"""An error event later than this after the kill is not the kill's: a router sees a death within 5 s, and the client and
the demo's own clock share the machine with everything else."""


@dataclass(frozen=True, slots=True)
class Point:
    """The fleet at one moment, on the demo's clock."""

    at_s: float
    ready: int
    desired: int


@dataclass(frozen=True, slots=True)
class Marks:
    """Moments on the demo's clock; None where the demo did not come so far."""

    load_s: float | None = None
    kill_s: float | None = None
    doubled_s: float | None = None
    load_ended_s: float | None = None
    killed_replica: str = ""
    streams_on_killed: int | None = None
    """Requests in flight on the killed replica just before, as the router counted them."""


@dataclass(frozen=True, slots=True)
class Result:
    succeeded: bool
    problems: tuple[str, ...]
    requests: int
    failed: int
    retried: int
    cancelled: int
    """Given up by the demo itself, long after the load's end: a request that hung."""
    ended_with_error_event: int
    hit_rate: float | None
    hit_rate_bound: float | None
    ttft_s: percentiles.Percentiles
    decode_tokens_per_s_per_user: percentiles.Percentiles
    errors: dict[str, int]
    error_examples: dict[str, str]
    marks: Marks
    scaled_out_to: int | None
    scaled_in_to: int | None
    replicas_over_time: tuple[tuple[float, int, int], ...]
    """[seconds, ready, desired] at every change."""
    seconds_per_phase: dict[str, float]

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def make(
    outcomes: Sequence[Outcome],
    points: Sequence[Point],
    marks: Marks,
    seconds_per_phase: dict[str, float],
    load_s: float,
) -> Result:
    """`outcomes` count from the start of the load, `load_s` on the demo's clock."""
    report = results.summarize(outcomes, wall_s=0.0, speedup=1.0, gpus=None)
    problems = judge(outcomes, points, marks, load_s)
    out = scaled_out_to(points, marks)
    return Result(
        succeeded=not problems,
        problems=problems,
        requests=report.requests,
        failed=report.failed,
        retried=report.retried,
        cancelled=report.cancelled,
        ended_with_error_event=report.ended_with_error_event,
        hit_rate=report.hit_rate,
        hit_rate_bound=report.hit_rate_bound,
        ttft_s=report.ttft_s,
        decode_tokens_per_s_per_user=report.decode_tokens_per_s_per_user,
        errors=report.errors,
        error_examples=report.error_examples,
        marks=marks,
        scaled_out_to=out,
        scaled_in_to=scaled_in_to(points, marks),
        replicas_over_time=tuple((round(point.at_s, 2), point.ready, point.desired) for point in points),
        seconds_per_phase=seconds_per_phase,
    )


def stopped(found: Result, problem: str) -> Result:
    """The result of a demo that could not go on: that is the problem, not what it then did not come to."""
    return replace(found, succeeded=False, problems=(problem,))


def judge(outcomes: Sequence[Outcome], points: Sequence[Point], marks: Marks, load_s: float) -> tuple[str, ...]:
    """What keeps this from being a success; empty if nothing does."""
    problems: list[str] = []
    if not any(outcome.ending is Ending.COMPLETED for outcome in outcomes):
        problems.append("no request was answered")
    failed = [outcome for outcome in outcomes if outcome.ending is Ending.FAILED]
    if failed:
        kinds = ", ".join(sorted({outcome.error for outcome in failed}))
        problems.append(f"{len(failed)} requests failed: {kinds}")
    hung = sum(outcome.ending is Ending.CANCELLED for outcome in outcomes)
    if hung:
        problems.append(f"{hung} requests had no end when the load had long ended")
    strays = [
        outcome for outcome in outcomes if outcome.ending is Ending.ERROR_EVENT and not excused(outcome, marks, load_s)
    ]
    if strays:
        problems.append(f"{len(strays)} streams ended with an error event that the killed replica does not explain")
    if marks.kill_s is None:
        problems.append("no replica was killed")
    if scaled_out_to(points, marks) is None:
        problems.append("the fleet did not scale out under the doubled load")
    if scaled_in_to(points, marks) is None:
        problems.append("the fleet did not scale in after the load")
    return tuple(problems)


def excused(outcome: Outcome, marks: Marks, load_s: float) -> bool:
    """Whether a stream was running on the killed replica when it was killed. The answer's head named its replica."""
    if marks.kill_s is None or outcome.replica != marks.killed_replica:
        return False
    began_s = load_s + outcome.started_s
    return began_s <= marks.kill_s <= began_s + outcome.total_s <= marks.kill_s + LATE_S


def scaled_out_to(points: Sequence[Point], marks: Marks) -> int | None:
    """Most replicas ready after the load was doubled, if more than were wanted before; None otherwise."""
    if marks.doubled_s is None:
        return None
    before = [point.desired for point in points if point.at_s <= marks.doubled_s]
    after = [point.ready for point in points if point.at_s > marks.doubled_s]
    most = max(after, default=0)
    return most if before and most > before[-1] else None


def scaled_in_to(points: Sequence[Point], marks: Marks) -> int | None:
    """Replicas at the end, if fewer are both wanted and there than when the load ended; None otherwise."""
    if marks.load_ended_s is None or not points:
        return None
    before = [point for point in points if point.at_s <= marks.load_ended_s]
    last = points[-1]
    if before and last.at_s > marks.load_ended_s and max(last.desired, last.ready) < before[-1].desired:
        return last.desired
    return None
