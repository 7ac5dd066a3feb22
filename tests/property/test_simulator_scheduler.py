"""The simulator's scheduler under random arrivals, aborts and a KV pool that is far too small.

Nothing is lost: every request that came in goes out exactly once, with the tokens that the model gives it, and when
the last one has left no KV page is locked or private.
"""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_sim.batch import Batch
from shoal_sim.policy import Policy
from shoal_sim.prompt import Prompt
from shoal_sim.radix import RadixCache
from shoal_sim.request import Limits, Request, Signal, State
from shoal_sim.scheduler import Scheduler
from shoal_sim.speculation import Speculation
from shoal_sim.tokens import expected_tokens

PAGE = 4
STEPS_MAX = 20_000


@dataclass(frozen=True)
class Arrival:
    at_step: int
    prefix: int
    length: int
    max_tokens: int | None
    priority: int
    abort_after: int | None


arrivals = st.lists(
    st.builds(
        Arrival,
        at_step=st.integers(0, 40),
        prefix=st.integers(0, 2),
        length=st.integers(1, 60),
        max_tokens=st.one_of(st.none(), st.integers(0, 30), st.integers(20, 60)),
        priority=st.integers(0, 30),
        abort_after=st.one_of(st.none(), st.none(), st.integers(0, 30)),
    ),
    min_size=1,
    max_size=25,
)
policies = st.builds(
    Policy,
    page_tokens=st.just(PAGE),
    max_running=st.integers(1, 8),
    max_queued=st.one_of(st.none(), st.integers(1, 6)),
    chunk_tokens=st.sampled_from([None, PAGE, 4 * PAGE, 16 * PAGE]),
    max_prefill_tokens=st.sampled_from([8, 64]),
    mixed_chunk=st.booleans(),
    # Low: the scheduler hopes that requests end early, admits too many, and has to retract.
    conservativeness=st.sampled_from([0.01, 1.0]),
    order=st.sampled_from(["fcfs", "lpm", "lof", "shortest-prefill-first"]),
    radix=st.booleans(),
    priority=st.booleans(),
    preemption=st.booleans(),
)
speculations = st.one_of(st.none(), st.just(Speculation("EAGLE3", 3, 4, 0.75)))


def make_request(index: int, arrival: Arrival, capacity_tokens: int) -> Request:
    text = (f"prefix {arrival.prefix} " * 30)[: 2 * arrival.length] + f"{index:04d}" * (arrival.length // 2)
    prompt = Prompt(text.encode(), PAGE)
    request = Request(str(index), prompt, Limits(arrival.max_tokens), Signal(), priority=arrival.priority)
    room = capacity_tokens - 1 - prompt.tokens - 1
    request.token_budget = room if arrival.max_tokens is None else min(room, arrival.max_tokens)
    return request


def check_pages(scheduler: Scheduler, batch: Batch | None) -> None:
    cache = scheduler.cache
    held = scheduler.requests()
    assert cache.free_pages >= 0
    assert cache.private_pages == sum(request.private_pages for request in held)
    locked = {key for request in held for key in request.hashes[: request.locked_pages]}
    assert cache.locked_pages == len(locked)
    if batch is not None:
        for piece in batch.prefill:
            pages = piece.request.locked_pages + piece.request.private_pages
            assert pages * PAGE >= piece.prefix + piece.tokens, "computes only what it has pages for"
        for request in batch.decode:
            assert (request.locked_pages + request.private_pages) * PAGE >= request.sequence_tokens


@settings(max_examples=80, deadline=None)
@given(arrivals=arrivals, policy=policies, pages=st.integers(25, 60), speculation=speculations)
def test_requests_and_pages_are_conserved(
    arrivals: list[Arrival], policy: Policy, pages: int, speculation: Speculation | None
) -> None:
    scheduler = Scheduler(policy, RadixCache(pages), speculation)
    requests = [make_request(i, arrival, pages * PAGE) for i, arrival in enumerate(arrivals)]
    assert all(request.token_budget >= 0 for request in requests)
    pending = sorted(zip(arrivals, requests, strict=True), key=lambda pair: pair[0].at_step)
    ended: list[Request] = []
    step = 0
    while pending or not scheduler.idle:
        assert step < STEPS_MAX, "the scheduler does not come to an end"
        while pending and pending[0][0].at_step <= step:
            scheduler.submit(pending.pop(0)[1])
        for arrival, request in zip(arrivals, requests, strict=True):
            if arrival.abort_after is not None and step == arrival.at_step + arrival.abort_after:
                scheduler.abort(lambda other, mine=request: other is mine)
        batch = scheduler.plan()
        ended += scheduler.take_ended()
        check_pages(scheduler, batch)
        assert scheduler.active <= policy.max_running
        if batch is not None:
            if not policy.mixed_chunk:
                assert not (batch.prefill and batch.decode), "no decode while there is prefill"
            changed = scheduler.complete(batch, now=float(step + 1))
            ended += [request for request in changed if request.state is State.DONE]
        check_pages(scheduler, None)
        step += 1
    cache, counters = scheduler.cache, scheduler.counters
    assert sorted(int(r.rid) for r in ended) == list(range(len(arrivals))), "each leaves exactly once"
    assert cache.locked_pages == cache.private_pages == 0
    assert cache.free_pages + cache.tree_pages == pages
    failed = sum(1 for r in requests if r.finish is not None and r.finish.status == 500)
    assert counters.submitted == counters.finished + counters.aborted + counters.rejected + failed
    for request in requests:
        assert request.finish is not None
        want = expected_tokens(request.prompt.data, max(request.token_budget, 1))
        assert request.output == want[: len(request.output)]
        if request.finish.kind == "length":
            assert len(request.output) == request.token_budget
        if request.finish.kind == "stop":
            assert request.output == expected_tokens(request.prompt.data)
    cache.flush()
    assert cache.free_pages == pages
