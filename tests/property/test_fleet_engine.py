"""An engine in virtual time makes the steps of the engine process: same scheduler, same order, same times.

The reference is the plainest loop there is: one step after the other; what had arrived when a step began is looked at
when it ends, and everything where there is nothing to do.
"""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_fleet import model, prefix
from shoal_fleet.clock import Clock
from shoal_fleet.engine import Engine
from shoal_fleet.workload import Job
from shoal_router.index import chain
from shoal_sim import steptime
from shoal_sim.prompt import Prompt, extend_hashes
from shoal_sim.radix import RadixCache
from shoal_sim.request import Limits, Request, Signal, State
from shoal_sim.scheduler import Scheduler
from shoal_testing import fleets

PAGE = 64
BLOCK = fleets.BLOCK_TOKENS


@dataclass
class Heard:
    """What a caller hears, with the times."""

    clock: Clock
    first_s: float | None = None
    end_s: float | None = None
    tokens: int = 0
    cached: int | None = None
    failure: str = ""
    order: list[str] = field(default_factory=list)

    def first_token(self) -> None:
        self.first_s = self.clock.now_s
        self.order.append("first")

    def tokens_came(self, count: int) -> None:
        self.tokens += count

    def ended(self, cached_tokens: int) -> None:
        self.end_s, self.cached = self.clock.now_s, cached_tokens
        self.order.append("end")

    def failed(self, reason: str) -> None:
        self.failure = reason


class Caller:
    """The engine's view of `Heard`."""

    def __init__(self, heard: Heard) -> None:
        self._heard = heard
        self.first_token = heard.first_token
        self.ended = heard.ended
        self.failed = heard.failed

    def tokens(self, count: int) -> None:
        self._heard.tokens_came(count)


def text(job: Job) -> bytes:
    """Four bytes a token, equal for equal blocks."""
    return b"".join(block.to_bytes(8, "little") * (BLOCK // 2) for block in job.blocks)[: 4 * job.input_tokens]


def virtual(engine: model.EngineModel, arrivals: list[tuple[float, Job]]) -> list[Heard]:
    clock = Clock()
    made = Engine("e", engine, clock)
    heard = [Heard(clock) for _ in arrivals]
    for (at_s, job), one in zip(arrivals, heard, strict=True):
        clock.at(at_s, lambda job=job, one=one: made.submit(job, Caller(one)))  # type: ignore[misc]
    while clock.step():
        pass
    return heard


def seen(engine: model.EngineModel, arrivals: list[tuple[float, Job]], order: list[int]) -> list[float]:
    """When each could be seen: read one after the other, in that order."""
    timing = engine.profile.reception
    times_s = [0.0] * len(arrivals)
    free_s = 0.0
    for number in order:
        at_s, job = arrivals[number]
        free_s = max(free_s, at_s) + timing.request_s + timing.id_s * job.input_tokens
        times_s[number] = free_s + timing.latency_s
    return times_s


def reference(engine: model.EngineModel, arrivals: list[tuple[float, Job]]) -> list[tuple[float, float, int]]:
    """(first token, end, cached tokens) of each."""
    scheduler = Scheduler(engine.scheduling(), RadixCache(engine.kv_tokens // engine.page_tokens))
    requests = []
    for number, (_, job) in enumerate(arrivals):
        request = Request(str(number), Prompt(text(job), PAGE), Limits(job.output_tokens, ignore_eos=True), Signal())
        request.token_budget = job.output_tokens
        requests.append(request)
    pending = sorted(range(len(arrivals)), key=lambda number: arrivals[number][0])
    first, end = [0.0] * len(arrivals), [0.0] * len(arrivals)
    seen_s = seen(engine, arrivals, pending)
    now_s = began_s = 0.0
    prepared = False

    def take(until_s: float) -> None:
        while pending and seen_s[pending[0]] <= until_s:
            scheduler.submit(requests[pending.pop(0)])

    while pending or not scheduler.idle:
        take(began_s if engine.overlap else now_s)
        batch = scheduler.plan()
        if batch is None:
            prepared = False
            take(now_s)
            batch = scheduler.plan()
        if batch is None:
            now_s = max(now_s, seen_s[pending[0]])
            continue
        began_s = now_s
        now_s += steptime.step_s(engine.profile, batch, prepared=prepared)
        prepared = engine.overlap
        for request in scheduler.complete(batch, now_s):
            number = int(request.rid)
            if len(request.output) == 1:
                first[number] = now_s
            if request.state is State.DONE:
                end[number] = now_s
    return [(first[n], end[n], requests[n].cached_tokens) for n in range(len(arrivals))]


jobs = st.builds(
    lambda shared, own, tokens, output, number: fleets.job(
        [*range(shared), *(1000 + number * 50 + place for place in range(own))],
        output,
        tokens=min((shared + own) * BLOCK, max(1, (shared + own) * BLOCK - tokens)),
    ),
    st.integers(0, 6),
    st.integers(1, 6),
    st.integers(0, BLOCK - 1),
    st.integers(1, 400),
    st.integers(0, 30),
)
arrivals = st.lists(st.tuples(st.floats(0.0, 8.0), jobs), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(
    arrivals=arrivals,
    profile=st.sampled_from(["kimi-k2.5-h200", "llama-8b-h200"]),
    kv_tokens=st.sampled_from([16_384, 65_536]),
    running_max=st.integers(2, 6),
    overlap=st.booleans(),
    mixed=st.booleans(),
)
def test_virtual_time_is_the_scheduler_step_by_step(
    arrivals: list[tuple[float, Job]], profile: str, kv_tokens: int, running_max: int, overlap: bool, mixed: bool
) -> None:
    known = model.simulated(profile, kv_tokens, PAGE)
    engine = replace(known, running_max=running_max, chunk_tokens=2048, overlap=overlap, mixed_chunk=mixed)
    heard = virtual(engine, arrivals)
    want = reference(engine, arrivals)
    for (_, job), one, (first_s, end_s, cached) in zip(arrivals, heard, want, strict=True):
        assert one.failure == ""
        assert one.order == ["first", "end"]
        assert one.tokens == job.output_tokens
        assert one.first_s == pytest.approx(first_s, abs=1e-9)
        assert one.end_s == pytest.approx(end_s, abs=1e-9)
        assert one.cached == cached


@given(
    one=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    other=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    short=st.integers(0, BLOCK - 1),
)
def test_hashes_of_ids_are_equal_exactly_where_those_of_the_text_are(
    one: list[int], other: list[int], short: int
) -> None:
    first = fleets.job(one, 1)
    second = fleets.job(other, 1, tokens=len(other) * BLOCK - short)

    def equal(left: list[int], right: list[int]) -> list[bool]:
        return [a == b for a, b in zip(left, right, strict=False)]

    for page in (64, 512, 1024):
        from_ids = [prefix.page_hashes(job, page) for job in (first, second)]
        from_text = [extend_hashes([], text(job), 4 * page, "") for job in (first, second)]
        assert [len(hashes) for hashes in from_ids] == [len(hashes) for hashes in from_text]
        assert equal(*from_ids) == equal(*from_text)
    chains = [list(prefix.router_chain(job)) for job in (first, second)]
    texts = [list(chain.chain(text(job))) for job in (first, second)]
    assert [len(hashes) for hashes in chains] == [len(hashes) for hashes in texts]
    assert equal(*chains) == equal(*texts)
