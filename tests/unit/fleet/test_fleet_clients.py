"""Clients: think times, sub-agents, retries, ends. One engine that answers in known time."""

from shoal_fleet import model
from shoal_fleet.clients import Clients, Pace
from shoal_fleet.fleet import Fleet
from shoal_fleet.workload import Arrival, Conversation, Job, SubAgent, Turn, Workload
from shoal_testing import fleets


def _fleet() -> Fleet:
    return fleets.fleet(model.study(10_000, 1_000_000, 512), 1)


def _job(session: int) -> Job:
    return fleets.job([session], 10, session)


def _run(workload: Workload, pace: Pace) -> dict[int, tuple[float, float]]:
    """Arrival and end by session key."""
    fleet = _fleet()
    Clients(fleet, workload, pace).start()
    fleet.run()
    return {one.job.session: (one.arrived_s, one.ended_s) for one in fleet.outcomes}


def _turns(*sessions: int, think_s: float = 10.0) -> tuple[Turn, ...]:
    return tuple(Turn(_job(session), think_s) for session in sessions)


def test_arrivals_come_at_their_times_divided_by_the_speed() -> None:
    workload = Workload(arrivals=(Arrival(1.0, _job(1)), Arrival(4.0, _job(2))))
    assert [at_s for at_s, _ in _run(workload, Pace(speed=2.0)).values()] == [0.5, 2.0]
    assert list(_run(workload, Pace(duration_s=2.0))) == [1]


def test_a_turn_starts_when_the_one_before_has_ended_and_been_thought_about() -> None:
    seen = _run(Workload(conversations=(Conversation("one", _turns(1, 2)),)), Pace(think_max_s=4.0, speed=2.0))
    assert seen[1][0] == 2.0
    assert seen[2][0] == seen[1][1] + 2.0


def test_so_many_sessions_at_once_each_takes_the_next_conversation() -> None:
    conversations = tuple(Conversation(str(number), _turns(number, think_s=1.0)) for number in range(4))
    seen = _run(Workload(conversations=conversations), Pace(sessions=2, ramp_s=0.5))
    assert [seen[number][0] for number in (0, 1)] == [1.0, 1.25]
    assert seen[2][0] == seen[0][1] + 1.0
    assert seen[3][0] == seen[1][1] + 1.0


def test_the_order_of_conversations_follows_its_seed() -> None:
    conversations = tuple(Conversation(str(number), _turns(number)) for number in range(20))
    orders = {
        seed: list(_run(Workload(conversations=conversations), Pace(sessions=1, shuffle_seed=seed)))
        for seed in (None, 1, 2)
    }
    assert orders[None] == list(range(20))
    assert sorted(orders[1]) == sorted(orders[2]) == list(range(20))
    assert orders[1] != orders[2]
    assert orders[1] == list(_run(Workload(conversations=conversations), Pace(sessions=1, shuffle_seed=1)))


def test_a_turn_waits_for_the_sub_agents_that_it_waited_for() -> None:
    joined = SubAgent(after=0, joined_by=1, delay_s=3.0, turns=_turns(10, 11, think_s=20.0))
    free = SubAgent(after=-1, joined_by=None, delay_s=0.0, turns=_turns(20, think_s=500.0))
    one = Conversation("one", _turns(1, 2, think_s=1.0), (joined, free))
    seen = _run(Workload(conversations=(one, Conversation("two", _turns(3, think_s=1.0)))), Pace(sessions=1))
    assert seen[10][0] == seen[1][1] + 3.0 + 20.0
    assert seen[2][0] == seen[11][1] + 1.0
    assert seen[20][0] == 500.0
    assert seen[3][0] == seen[20][1] + 1.0  # a session is over when its last sub-agent is
