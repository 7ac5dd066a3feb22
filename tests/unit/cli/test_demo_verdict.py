"""What the demo counts as a success, condition by condition."""

from dataclasses import replace

import pytest

from shoal_cli.demo import picture, result, stage
from shoal_cli.replay.outcome import Ending, Outcome, Usage

LOAD_S = 30.0
MARKS = result.Marks(load_s=30.0, kill_s=60.0, doubled_s=90.0, load_ended_s=150.0, killed_replica="m-1-0")
POINTS = [
    result.Point(20.0, 2, 2),
    result.Point(61.0, 1, 2),
    result.Point(70.0, 2, 2),
    result.Point(110.0, 2, 3),
    result.Point(115.0, 3, 3),
    result.Point(180.0, 3, 2),
    result.Point(185.0, 2, 2),
]
OK = Outcome(Ending.COMPLETED, "s", 100, 90, 5, usage=Usage(100, 5, 80), ttft_s=0.1, decode_s=0.1)
CUT = Outcome(
    Ending.ERROR_EVENT, "s", 100, 90, 5, error="event_x", replica="m-1-0", started_s=29.0, total_s=2.0, ttft_s=0.1
)


def judged(outcomes: list[Outcome], points: list[result.Point] = POINTS, marks: result.Marks = MARKS) -> result.Result:
    return result.make(outcomes, points, marks, {"a": 1.0}, LOAD_S)


def test_streams_of_the_killed_replica_are_no_problem() -> None:
    found = judged([OK, OK, CUT])
    assert found.problems == ()
    assert found.succeeded
    assert (found.requests, found.failed, found.ended_with_error_event) == (3, 0, 1)
    assert (found.scaled_out_to, found.scaled_in_to) == (3, 2)
    assert found.to_json()["replicas_over_time"][1] == (61.0, 1, 2)  # type: ignore[index]


@pytest.mark.parametrize(
    ("outcome", "want"),
    [
        pytest.param(replace(OK, ending=Ending.FAILED, error="http_503"), "1 requests failed: http_503", id="failed"),
        pytest.param(replace(CUT, replica="m-1-1"), "does not explain", id="another replica's stream"),
        pytest.param(replace(CUT, replica=""), "does not explain", id="nobody knows whose stream"),
        pytest.param(replace(CUT, started_s=31.0), "does not explain", id="began after the kill"),
        pytest.param(replace(CUT, started_s=1.0), "does not explain", id="ended before the kill"),
        pytest.param(replace(CUT, total_s=40.0), "does not explain", id="ended long after the kill"),
    ],
)
def test_every_other_broken_request_is_one(outcome: Outcome, want: str) -> None:
    found = judged([OK, outcome])
    assert len(found.problems) == 1
    assert want in found.problems[0]


def test_a_request_that_had_to_be_cancelled_hung() -> None:
    found = judged([OK, replace(OK, ending=Ending.CANCELLED)])
    assert "1 requests had no end" in found.problems[0]
    assert found.cancelled == 1


@pytest.mark.parametrize(
    ("points", "marks", "want"),
    [
        pytest.param(POINTS[:4], MARKS, {"scale out", "scale in"}, id="new replica never ready"),
        pytest.param(POINTS[:5], MARKS, {"scale in"}, id="stays large"),
        pytest.param(POINTS[:6], MARKS, {"scale in"}, id="wants fewer and has them still"),
        pytest.param(POINTS, replace(MARKS, kill_s=None), {"no replica was killed"}, id="no kill"),
        pytest.param([], result.Marks(), {"scale out", "scale in", "no replica was killed"}, id="nothing happened"),
    ],
)
def test_what_was_not_observed_is_a_problem(points: list[result.Point], marks: result.Marks, want: set[str]) -> None:
    problems = judged([OK], points, marks).problems
    assert len(problems) == len(want)
    assert all(any(one in problem for problem in problems) for one in want)


def test_silence_is_no_success() -> None:
    assert "no request was answered" in judged([]).problems


def test_phase_that_fails_is_told_and_timed() -> None:
    said: list[str] = []
    scene = stage.Stage(said.append)
    with pytest.raises(ValueError, match="x"), scene.phase("install"):
        raise ValueError("x")
    assert scene.phases[0].failed
    assert set(scene.seconds()) == {"install"}
    assert said[-1].endswith("(failed)")


@pytest.mark.parametrize(
    ("series", "want"), [([], ""), ([None, 0.0], "  "), ([1.0, None, 8.0, 0.0], "▁ █▁"), ([4.0, 8.0], "▄█")]
)
def test_sparkline_scales_to_the_largest(series: list[float | None], want: str) -> None:
    assert picture.sparkline(series) == want
