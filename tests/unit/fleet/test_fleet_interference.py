"""The load of slices against one engine: what is sent, and what the engine's steps show of it."""

from itertools import pairwise

import pytest

from shoal_fleet import interference, model
from shoal_fleet.engine import Step
from shoal_fleet.interference import COLD, Load, Seen, Sending

LOAD = Load(sessions=6, duration_s=8.0)


def play(sending: Sending, seed: int = 1) -> tuple[Seen, list[Step]]:
    steps: list[Step] = []
    seen = interference.run(model.simulated("llama-8b-h200"), LOAD, sending, seed, steps.append)
    return seen, steps


def test_the_same_seed_gives_the_same_run() -> None:
    assert play(interference.WHOLE) == play(interference.WHOLE)
    assert play(interference.WHOLE)[0] != play(interference.WHOLE, seed=2)[0]


def test_a_whole_prompt_goes_chunk_after_chunk_and_nothing_else_runs() -> None:
    _, steps = play(interference.WHOLE)
    cold = [number for number, step in enumerate(steps) if any(piece.job.session == COLD for piece in step.prefill)]
    first = steps[cold[0] : cold[0] + 8]
    assert [sum(piece.tokens for piece in step.prefill if piece.job.session == COLD) for step in first] == [8192] * 8
    assert not any(step.decode for step in first)
    for at, after in pairwise(first):
        assert after.start_s == pytest.approx(at.start_s + at.duration_s)


def test_slices_are_growing_prefixes_of_which_the_one_before_is_cached() -> None:
    seen, steps = play(Sending(16_384, wait_s=0.5))
    pieces = [piece for step in steps for piece in step.prefill if piece.job.session == COLD]
    whole = {piece.job.input_tokens: piece.prefix for piece in pieces if piece.prefix % 16_384 == 0}
    assert whole == {16_384: 0, 32_768: 16_384, 49_152: 32_768, 65_536: 49_152}
    assert len(seen.slice_s) == 3 * len(seen.cold_ttft_s)


def test_slices_help_turns_and_cost_the_cold_prompt_a_little() -> None:
    whole, _ = play(interference.WHOLE)
    sliced, _ = play(Sending(8192, wait_s=0.5))
    assert max(sliced.warm_ttft_s) < 0.3 * max(whole.warm_ttft_s)
    assert max(sliced.warm_gap_s) < 0.3 * max(whole.warm_gap_s)
    assert sum(whole.cold_ttft_s) < sum(sliced.cold_ttft_s) < 1.3 * sum(whole.cold_ttft_s)


def test_every_turn_is_answered_whole() -> None:
    seen, _ = play(interference.WHOLE)
    assert len(seen.warm_gap_s) == len(seen.warm_ttft_s) * (LOAD.answer_tokens - 1)
