"""Percentiles by exact sort, and a report whose figures can be worked out by hand."""

import pytest

from shoal_cli.replay import results
from shoal_cli.replay.outcome import Ending, Outcome, Usage
from shoal_fleet import percentiles


@pytest.mark.parametrize(
    ("samples", "share", "want"),
    [
        ([], 0.5, None),
        ([3.0], 0.99, 3.0),
        ([1.0, 2.0], 0.5, 1.0),
        ([1.0, 2.0, 3.0], 0.5, 2.0),
        (list(range(1, 101)), 0.99, 99),
    ],
)
def test_rank_is_the_nearest(samples: list[float], share: float, want: float | None) -> None:
    assert percentiles.rank(samples, share) == want


def done(cached: int | None, *, tokens: int = 11, decode_s: float = 0.5, **more: object) -> Outcome:
    fields: dict[str, object] = {
        "ending": Ending.COMPLETED, "session": "s", "input_tokens": 100, "bound_tokens": 80, "output_tokens": tokens,
        "ttft_s": 0.1, "decode_s": decode_s, "usage": Usage(110, tokens, cached),
    }  # fmt: skip
    return Outcome(**{**fields, **more})  # type: ignore[arg-type]


def test_report_counts_endings_apart() -> None:
    outcomes = [
        done(55, retries=2),
        done(99),
        done(None, ending=Ending.FAILED, error="http_500", usage=None, detail="first"),
        done(None, ending=Ending.FAILED, error="http_500", usage=None, detail="second"),
        done(None, ending=Ending.ERROR_EVENT, error="event_x", usage=None, tokens_seen=4),
        done(None, ending=Ending.CANCELLED, usage=None),
    ]
    report = results.summarize(outcomes, wall_s=60.0, speedup=2.0, gpus=2.0)
    assert (report.requests, report.completed, report.failed, report.ended_with_error_event) == (5, 2, 2, 1)
    assert (report.cancelled, report.retried) == (1, 1)
    assert report.errors == {"http_500": 2, "event_x": 1}
    assert report.error_examples["http_500"] == "first"
    assert report.hit_rate == pytest.approx(154 / 220)
    assert report.hit_rate_bound == pytest.approx(0.8)
    assert report.output_tokens == 11 + 11 + 4
    assert report.tokens_per_gpu_per_minute == pytest.approx((220 + 26) / 2)
    assert report.decode_tokens_per_s_per_user.p50 == pytest.approx(20.0)


def test_report_without_anything_is_unknown_not_zero() -> None:
    report = results.summarize([], wall_s=0.0, speedup=1.0, gpus=None)
    assert report.hit_rate is None
    assert report.hit_rate_bound is None
    assert report.ttft_s.p99 is None
    assert report.tokens_per_gpu_per_minute is None


def test_hit_rate_is_unknown_where_the_engine_does_not_report_it() -> None:
    assert results.summarize([done(None)], wall_s=1.0, speedup=1.0, gpus=None).hit_rate is None
