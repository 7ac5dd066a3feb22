"""Many decode steps at once leave the scheduler exactly where single steps leave it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_sim import stretch
from shoal_sim.policy import Policy
from shoal_sim.prompt import Prompt
from shoal_sim.radix import RadixCache
from shoal_sim.request import Limits, Request, Signal
from shoal_sim.scheduler import Scheduler

PAGE = 4


def _scheduler(sizes: list[tuple[int, int]], pages: int, old: int) -> Scheduler:
    cache = RadixCache(pages)
    cache.take(old)  # what others left, to be evicted
    cache.insert(list(range(-old, 0)), old)
    made = Scheduler(Policy(page_tokens=PAGE, max_running=8), cache)
    for number, (tokens, budget) in enumerate(sizes):
        request = Request(str(number), Prompt(f"{number:04d}".encode() * tokens, PAGE), Limits(budget), Signal())
        request.token_budget = budget
        made.submit(request)
    return made


def _step(scheduler: Scheduler) -> bool:
    batch = scheduler.plan()
    scheduler.take_ended()
    if batch is not None:
        scheduler.complete(batch, 0.0)
    return batch is not None


def _picture(scheduler: Scheduler) -> object:
    cache, headroom = scheduler.cache, scheduler.headroom
    requests = [(r.rid, r.output, r.state, r.locked_pages, r.private_pages, r.steps) for r in scheduler.requests()]
    return requests, scheduler.counters, cache.free_pages, cache.tree_pages, cache.evicted_pages_total, headroom.ratio


sizes = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 60)), min_size=1, max_size=6)


@settings(max_examples=100, deadline=None)
@given(sizes=sizes, pages=st.integers(30, 120), most=st.integers(1, 80), old=st.integers(0, 15))
def test_a_stretch_equals_its_steps(sizes: list[tuple[int, int]], pages: int, most: int, old: int) -> None:
    fast, single = (_scheduler(sizes, pages, old) for _ in range(2))
    going = True
    while going:
        steps = stretch.steps_max(fast, most)
        assert steps <= most
        if steps:
            stretch.advance(fast, steps)
            assert all([_step(single) for _ in range(steps)])
        else:
            going = _step(fast)
            assert _step(single) is going
        assert _picture(fast) == _picture(single)
    assert fast.idle


def test_most_of_a_long_answer_is_one_stretch() -> None:
    scheduler = _scheduler([(8, 500), (8, 400)], 400, 0)
    while not stretch.steps_max(scheduler, 10_000):
        assert _step(scheduler)
    assert stretch.steps_max(scheduler, 10_000) == 398  # the first token was the prefill's, the last one is planned
