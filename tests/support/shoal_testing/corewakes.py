"""When a router's core asks to be woken, for tests in which time is a number."""

from collections.abc import Iterator

from shoal_router.admission import core

WAKES_MAX = 10_000


def wakes(one: core.ServiceCore, now: float, until: float) -> Iterator[float]:
    """Times from `now` to `until`; whoever asks pumps the core at each. Fails where that does not get it further."""
    for _ in range(WAKES_MAX):
        wake = one.next_wake()
        if wake is None or wake > until:
            return
        now = max(now, wake)
        yield now
    raise AssertionError("pump does not move next_wake on")
