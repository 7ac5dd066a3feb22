"""Many decode steps of a scheduler at once, where nothing but decoding happens.

A stretch is a run of decode steps in which nobody waits, nobody ends and no page is missing, so each step gives every
running request its next token and no more. `advance` leaves the scheduler exactly as that many rounds of `plan` and
`complete` would (tests/property/test_simulator_stretch.py). Called by the fleet simulator, and by the engine process
for steps that show no caller anything (--stream-interval).
"""

from shoal_sim.request import Request
from shoal_sim.scheduler import Scheduler


def steps_max(scheduler: Scheduler, most: int) -> int:
    """How many steps from here on are such ones, at most `most`; 0 where the next step must be planned."""
    running = scheduler.running
    if not running or scheduler.waiting or scheduler.chunked is not None or scheduler.prefilling:
        return 0
    if scheduler.speculation is not None or not all(_length_known(request) for request in running):
        return 0
    # The step that ends a request is planned.
    steps = min(most, min(request.tokens_left for request in running) - 1)
    cache = scheduler.cache
    while steps > 0 and _missing_pages(scheduler, steps) > cache.free_pages + cache.evictable_pages:
        steps //= 2
    return max(0, steps)


def advance(scheduler: Scheduler, steps: int) -> None:
    """Makes so many steps; `steps` is at most what `steps_max` has just said."""
    page, running = scheduler.policy.page_tokens, scheduler.running
    needs = [(request, _missing(request, steps, page)) for request in running]
    taken = scheduler.cache.take(sum(missing for _, missing in needs))
    assert taken, "more steps than steps_max allows"
    for request, missing in needs:
        request.private_pages += missing
        request.output += request.generator.take(steps)
        request.steps += steps
    for _ in range(steps):
        scheduler.headroom.decoded(running, retracted=False)
    tokens = steps * len(running)
    counters = scheduler.counters
    counters.decode_steps += steps
    counters.decode_tokens += tokens
    counters.generated += tokens


def _length_known(request: Request) -> bool:
    limits = request.limits
    natural = limits.max_tokens is None and not limits.ignore_eos
    return bool(request.output) and not (natural or limits.stop or limits.stop_ids)


def _missing(request: Request, steps: int, page: int) -> int:
    """Pages beyond those it has, for the KV of all steps: the last token of each step is written by the next."""
    pages = -(-(request.sequence_tokens + steps - 1) // page)
    return max(0, pages - request.locked_pages - request.private_pages)


def _missing_pages(scheduler: Scheduler, steps: int) -> int:
    page = scheduler.policy.page_tokens
    return sum(_missing(request, steps, page) for request in scheduler.running)
