"""How long a prompt in slices waits for others, over random arrivals in virtual time."""

import random

import hypothesis
from hypothesis import strategies as st

from shoal_router.policy import slices
from shoal_testing.lanes import Lane, Request

_SETTINGS = hypothesis.settings(max_examples=40, deadline=None)
_GAP_S = st.sampled_from([0.1, 0.3, 1.0, 5.0])
_OBJECTIVE_S = st.sampled_from([None, 0.3, 1.0])
_OVERHEAD_S = st.sampled_from([0.0, 0.05, 0.3])


def _served(lane: Lane) -> None:
    lane.assert_empty()
    for one in lane.requests:
        assert one.rejected is not None or one.first_at is not None


@hypothesis.given(st.integers(0, 2**32), _GAP_S, _OBJECTIVE_S, _OVERHEAD_S)
@_SETTINGS
def test_short_turns_delay_a_long_prompt_by_no_more_than_the_factor_says(
    seed: int, gap_s: float, itl_s: float | None, overhead_s: float
) -> None:
    """However many they are: what it waits before its turns, all together."""
    rng = random.Random(seed)
    lane = Lane(itl_objective_s=itl_s, overhead_s=overhead_s)
    long = [lane.submit(10.0 + 40.0 * place, rng.randrange(5_000, 100_000), 1) for place in range(2)]
    at_s = 0.0
    while at_s < 90.0:
        at_s += rng.expovariate(1.0 / gap_s)
        lane.submit(at_s, rng.randrange(50, 2_000), rng.randrange(2, 8), decode_s=rng.choice([0.1, 3.0]))
    lane.run()
    _served(lane)
    for one in long:
        if one.binding is not None and one.binding.sliced is not None:
            assert one.sliced.delayed_s <= slices.DELAY_FACTOR * one.sliced.total_s + 1e-6
            gaps = zip(one.turns, one.turns[1:], strict=False)
            assert one.turns[-1][1] == 0
            assert [end for _, end in one.turns[:-1]] == sorted({end for _, end in one.turns[:-1]})
            assert all(later >= earlier for (earlier, _), (later, _) in gaps)


class _Watched(Lane):
    """At every turn: has anybody who waited longer a better right to it?"""

    def _turn(self, request: Request, end: int) -> None:
        mine = request.sliced
        others = [one for one in self.load.lane.waiting.values() if one is not mine and one.on_turn is not None]
        bound_s = slices.DELAY_FACTOR
        if any(one.delayed_s + self.now - one.free_since >= bound_s * one.total_s for one in others):
            assert mine.delayed_s >= bound_s * mine.total_s - 1e-9, "it had not waited as long as another"
        super()._turn(request, end)


@hypothesis.given(st.integers(0, 2**32), _GAP_S, _OBJECTIVE_S, _OVERHEAD_S)
@_SETTINGS
def test_one_that_has_waited_its_time_goes_before_those_that_have_not(
    seed: int, gap_s: float, itl_s: float | None, overhead_s: float
) -> None:
    rng = random.Random(seed)
    lane = _Watched(itl_objective_s=itl_s, overhead_s=overhead_s)
    at_s = 0.0
    for _ in range(40):
        at_s += rng.expovariate(0.3 / gap_s)
        tokens = rng.choice([200, 2_000, rng.randrange(5_000, 20_000), rng.randrange(10_000, 120_000), 30_000])
        lane.submit(at_s, tokens, rng.randrange(6), decode_s=rng.choice([0.1, 3.0, 30.0]))
    lane.run()
    _served(lane)


@hypothesis.given(st.integers(0, 2**32), _GAP_S, _OBJECTIVE_S)
@_SETTINGS
def test_a_replica_that_does_nothing_sends_the_next_slice_at_once(seed: int, gap_s: float, itl_s: float | None) -> None:
    """Where a sliced prompt is ready, no slice runs and no first token is owed, somebody gets a turn."""
    rng = random.Random(seed)
    lane = Lane(itl_objective_s=itl_s)
    at_s = 0.0
    for _ in range(40):
        at_s += rng.expovariate(0.3 / gap_s)
        lane.submit(at_s, rng.choice([200, 2_000, rng.randrange(5_000, 120_000)]), rng.randrange(6))
    while lane.load.flight or lane.core.waiting or lane.now < at_s:
        lane.run(lane.now + 0.1)
        here = lane.load.lane
        ready = [one for one in here.waiting.values() if one.on_turn is not None]
        assert not ready or here.running is not None or lane.load.pending
        assert lane.now < at_s + 600.0
    _served(lane)
