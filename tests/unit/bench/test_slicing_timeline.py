"""The timeline of bench-slicing: from a trace of steps and token times to what is drawn."""

from pathlib import Path

import pytest

from shoal_bench.slicing import drawing, timeline
from shoal_bench.slicing.http import Answer
from shoal_bench.slicing.load import Load
from shoal_bench.slicing.play import Played, Sent

COLD, WARM = "aa", "bb"
LINES = [
    "[99.99, 0.01, [], 3]",
    "[100.0, 0.01, [], 3]",
    '[101.0, 1.0, [["aa", 8192, 0]], 0]',
    '[102.0, 1.0, [["aa", 4000, 8192], ["bb", 200, 64]], 0]',
    '[102.1, 0.1, [["bb", 300, 64]], 0]',
    '[103.0, 0.5, [["aa", 100, 12192]], 0]',
    "[103.5, 0.01, [], 4]",
    "[104.0, 0.01, [",
]


def turn(number: int, sent_s: float, tokens: list[float], cold: bool = False) -> Sent:
    return Sent(cold, number, Answer(sent_s, tokens, tokens[-1], 1, 0, len(tokens), {}, None))


PLAYED = Played(
    load=Load(),
    began_s=100.0,
    sent=(turn(0, 100.0, [103.0, 103.1], cold=True), turn(1, 100.5, [102.1, 103.5]), turn(0, 101.0, [103.0, 103.02])),
    lead_in=(turn(0, 99.0, [99.5, 99.55, 100.6]),),
    cpu_s=0.0,
    wall_s=10.0,
)


def picture() -> timeline.Picture:
    return timeline.picture("shoal", PLAYED, timeline.steps(LINES), COLD)


def test_a_line_that_was_cut_short_is_left_out() -> None:
    assert len(timeline.steps(LINES)) == len(LINES) - 1


def test_steps_that_follow_each_other_are_one_block() -> None:
    found = picture()
    assert found.cold == ((0.0, 2.0), (2.5, 3.0))
    assert found.warm == ((2.0, 2.1),)
    assert found.decode[0] == (-0.02, 0.0)
    assert found.slices == 2


def test_waits_are_of_turns_sent_before_the_cold_prompt_has_its_token() -> None:
    found = picture()
    assert found.ttft_s_mean == pytest.approx((1.6 + 2.0) / 2)
    assert found.silence_s_max == pytest.approx(1.4)
    assert found.cold_turn.waited == (0.0, 3.0)


def test_streams_run_while_tokens_are_near_each_other() -> None:
    sessions = picture().sessions
    assert len(sessions) == timeline.SHOWN_SESSIONS
    assert [one.running for one in sessions[0]] == [((-0.5, -0.45), (0.6, 0.6)), ((3.0, 3.02),)]
    assert sessions[1][0].waited == (0.5, 2.1)
    assert sessions[2] == ()


def test_streams_that_the_cold_prompt_catches_are_among_those_drawn() -> None:
    caught = [turn(number, 99.0, [99.5, 103.0]) for number in (20, 15, 18, 22)]
    assert timeline.shown(caught, 100.0) == [0, 1, 2, 3, 4, 5, 6, 15, 18, 20]
    assert timeline.shown([turn(20, 99.0, [99.5, 99.9])], 100.0) == list(range(10))


def test_spans_are_cut_to_what_is_drawn() -> None:
    assert timeline.joined([(-5.0, -2.0), (-1.0, 0.0), (7.0, 9.0)]) == ((-0.8, 0.0), (7.0, 7.2))


def test_a_run_without_a_cold_prompt_has_no_picture() -> None:
    with pytest.raises(ValueError, match="not answered"):
        timeline.picture("shoal", Played(Load(), 0.0, (), (), 0.0, 0.0), [], COLD)


def test_a_picture_survives_its_file_and_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    assert timeline.read(path) == []
    timeline.write(path, [picture(), picture()])
    assert timeline.read(path) == [picture(), picture()]
    drawing.draw(tmp_path / "timeline.svg", timeline.read(path))
    assert "In slices" in (tmp_path / "timeline.svg").read_text()


def test_the_cold_prompt_is_known_by_its_first_ids() -> None:
    assert len(bytes.fromhex(timeline.cold_mark("m"))) == 16
