"""Where chat messages begin: by token position, whatever the turn."""

from array import array

import pytest

from shoal_cli.replay import prompt, trace


def turn(tokens: int, answer: int) -> trace.Turn:
    return trace.Turn(tokens, answer, array("Q", range(tokens // 64)), think_s=0.0)


@pytest.mark.parametrize(
    ("system", "turns", "want"),
    [
        pytest.param(
            30,
            [turn(100, 20), turn(200, 5)],
            [(0, "system"), (30, "user"), (100, "assistant"), (120, "user")],
            id="answer fits",
        ),
        pytest.param(
            30,
            [turn(100, 90), turn(140, 5)],
            [(0, "system"), (30, "user"), (100, "assistant"), (120, "user")],
            id="answer longer than the growth takes half",
        ),
        pytest.param(
            0, [turn(100, 9), turn(101, 9)], [(0, "user"), (100, "user")], id="no room for an answer, no system prompt"
        ),
        pytest.param(500, [turn(100, 9)], [(0, "system"), (50, "user")], id="system prompt longer than the prompt"),
        pytest.param(
            10,
            [turn(200, 9), turn(100, 9), turn(200, 30)],
            [(0, "system"), (10, "user"), (100, "assistant"), (109, "user")],
            id="shrinks and grows again",
        ),
    ],
)
def test_segments(system: int, turns: list[trace.Turn], want: list[tuple[int, str]]) -> None:
    assert [(one.start, one.role) for one in prompt.plan_segments(system, turns)] == want
