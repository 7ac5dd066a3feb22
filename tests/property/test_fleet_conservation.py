"""Whatever the policy and the load: every request ends once, and what engines computed is what requests asked for."""

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_api import routes
from shoal_fleet import model
from shoal_fleet.fleet import Outcome
from shoal_fleet.policies import registry
from shoal_testing import fleets

ARRIVALS = st.lists(
    st.tuples(st.floats(0.0, 5.0), st.integers(0, 3), st.integers(0, 8), st.integers(1, 60)), min_size=1, max_size=25
)


@pytest.mark.parametrize("policy", registry.NAMES)
@settings(max_examples=15, deadline=None)
@given(
    arrivals=ARRIVALS,
    fluid=st.booleans(),
    queue=st.sampled_from([routes.Queue(requests_max=2, ttl_s=3.0), fleets.UNBOUNDED]),
    lost=st.booleans(),
)
def test_every_request_ends_once(
    policy: str, arrivals: list[tuple[float, int, int, int]], fluid: bool, queue: routes.Queue, lost: bool
) -> None:
    engine = model.study(3000, 16_384, 512) if fluid else model.simulated("study-8k", 16_384)
    fleet = fleets.fleet(engine, 3, policy, queue=queue)
    ended: list[Outcome] = []
    for number, (at_s, shared, own, output) in enumerate(arrivals):
        blocks = [*range(shared), *(100 + 20 * number + place for place in range(own + 1))]
        fleet.clock.at(at_s, functools.partial(fleet.submit, fleets.job(blocks, output, number), ended.append))
    if lost:
        fleet.clock.at(2.0, lambda: fleet.remove_replica("r1"))
    fleet.run()
    assert fleet.in_flight == 0
    assert len(ended) == len(fleet.outcomes) == len(arrivals)
    assert sorted(one.job.session for one in ended) == list(range(len(arrivals)))
    for engine_left in fleet.engines.values():
        assert engine_left.requests == 0
    for one in ended:
        if one.failure:
            assert one.failure in ("queue_full", "expired", "no_replica", "replica_gone")
            continue
        assert one.placed_s is not None
        assert one.first_s is not None
        assert one.cached_tokens is not None
        assert one.arrived_s <= one.placed_s <= one.first_s <= one.ended_s
        assert 0 <= one.cached_tokens < one.job.input_tokens
    if not lost and queue is fleets.UNBOUNDED:
        assert not any(one.failure for one in ended)
    state = fleet.policy.state(fleet.clock.now_s)
    if state is not None:
        assert all((one.in_flight_requests, one.in_flight_work_s) == (0, 0.0) for one in state.replicas)
