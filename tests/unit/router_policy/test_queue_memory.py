"""What the waiting queue and the session table keep is bounded by what is in them, whatever came and went."""

import random

from shoal_router import model
from shoal_router.admission import queue, ticket
from shoal_router.index import sessions


def _ticket(number: int) -> ticket.Ticket:
    request = model.Request(model.Prompt(b""), (), model.Session(number, "x"), body_bytes=1)
    made = ticket.Ticket(request, lambda _: None, lambda *_: None)
    made.expires_at = 1e6 + number
    return made


def test_requests_that_come_and_go_while_nothing_is_bound_leave_nothing_behind() -> None:
    waiting = queue.Queue()
    for number in range(200):
        waiting.add(_ticket(number), 0.0)
    for number in range(5000):
        visitor = _ticket(number)
        waiting.add(visitor, 1.0)
        waiting.set_expiry(visitor, 2e6)
        waiting.remove(visitor, served=False)
    assert len(waiting._order) <= 2 * len(waiting) + 2
    assert len(waiting._expiry) <= 2 * len(waiting) + 66
    assert len(waiting.ordered(10.0)) == 200
    assert len(waiting.expired(1e6 + 99)) == 100


def test_active_sessions_are_counted_as_a_walk_over_the_table_would() -> None:
    rng = random.Random(5)
    table = sessions.Sessions(50)
    model_: dict[int, tuple[str, float]] = {}
    now_s = 0.0
    for _ in range(3000):
        now_s += rng.random()
        key, replica = rng.randrange(80), rng.choice("abc")
        table.put("", key, sessions.Last(replica, "u", 1, 1, 1, 1, now_s))
        model_.pop(key, None)
        model_[key] = (replica, now_s)
        if len(model_) > 50:
            del model_[next(iter(model_))]
        if rng.random() < 0.2:
            want: dict[str, int] = {}
            for name, at in model_.values():
                if at >= now_s - 20.0:
                    want[name] = want.get(name, 0) + 1
            assert table.active(now_s - 20.0) == want
