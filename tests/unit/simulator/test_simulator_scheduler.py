"""What the scheduler does step by step, as SGLang's does."""

from dataclasses import replace

from shoal_sim.policy import Policy
from shoal_sim.prompt import Prompt
from shoal_sim.radix import RadixCache
from shoal_sim.request import Limits, Request, Signal, State
from shoal_sim.scheduler import OUTRANKED, QUEUE_FULL, Scheduler
from shoal_sim.speculation import Speculation
from shoal_sim.tokens import expected_text, token_id

PAGE = 64
POLICY = Policy(page_tokens=PAGE, max_running=8, chunk_tokens=1024)


def scheduler(policy: Policy = POLICY, pages: int = 1000, speculation: Speculation | None = None) -> Scheduler:
    return Scheduler(policy, RadixCache(pages), speculation)


def ask(rid: str, tokens: int, limits: Limits | None = None, *, text: str | None = None, priority: int = 0) -> Request:
    data = (text or rid * 4 * tokens).encode()[: tokens * 4]
    request = Request(rid, Prompt(data, PAGE), limits or Limits(10), Signal(), priority=priority)
    request.token_budget = request.limits.max_tokens if request.limits.max_tokens is not None else 10_000
    return request


def step(engine: Scheduler) -> tuple[dict[str, int], list[str]]:
    """One step: tokens computed by request, and who decoded."""
    batch = engine.plan()
    assert batch is not None
    shown = {piece.request.rid: piece.tokens for piece in batch.prefill}, [r.rid for r in batch.decode]
    engine.complete(batch, 1.0)
    return shown


def run_out(engine: Scheduler) -> int:
    steps = 0
    while (batch := engine.plan()) is not None:
        engine.complete(batch, 1.0)
        steps += 1
        assert steps < 10_000
    return steps


def test_a_chunked_prompt_takes_the_whole_budget_and_stops_decode() -> None:
    engine = scheduler()
    engine.submit(ask("a", 100))
    assert step(engine) == ({"a": 100}, [])
    assert step(engine) == ({}, ["a"])
    engine.submit(ask("L", 3000))
    engine.submit(ask("b", 50))
    assert step(engine) == ({"L": 1024}, [])
    assert step(engine) == ({"L": 1024}, [])
    # The last chunk leaves room in the budget, which the next prompt gets.
    assert step(engine) == ({"L": 952, "b": 50}, [])
    assert step(engine) == ({}, ["a", "L", "b"])


def test_mixed_chunks_let_decode_go_on() -> None:
    engine = scheduler(replace(POLICY, mixed_chunk=True))
    engine.submit(ask("a", 100))
    step(engine)
    engine.submit(ask("L", 3000))
    assert step(engine) == ({"L": 1023 // PAGE * PAGE}, ["a"])


def test_a_batch_is_filled_up_to_its_budget() -> None:
    engine = scheduler()
    for rid in "abc":
        engine.submit(ask(rid, 400))
    # Each of the first two is charged seven pages; the third is cut to what is left.
    assert step(engine) == ({"a": 400, "b": 400, "c": 128}, [])
    assert step(engine) == ({"c": 272}, [])


def test_a_long_prompt_uses_what_a_short_one_leaves() -> None:
    """Chunks have their own budget: the limit for whole prompts, --max-prefill-tokens, does not hold them back."""
    engine = scheduler(replace(POLICY, max_prefill_tokens=2048))
    engine.submit(ask("short", 64))
    engine.submit(ask("L", 5000))
    assert step(engine) == ({"short": 64, "L": 960}, [])


def test_only_so_many_run() -> None:
    engine = scheduler(replace(POLICY, max_running=2))
    for rid in "abc":
        engine.submit(ask(rid, 10, Limits(2)))
    assert step(engine)[0] == {"a": 10, "b": 10}
    assert step(engine) == ({}, ["a", "b"])
    assert step(engine)[0] == {"c": 10}


def test_a_repeated_prompt_is_cached_but_for_its_last_token() -> None:
    engine = scheduler()
    first = ask("a", 256, text="same" * 300)
    engine.submit(first)
    run_out(engine)
    again = ask("b", 256, text="same" * 300)
    engine.submit(again)
    assert step(engine)[0] == {"b": 64}, "256 tokens are whole pages, the last of them is computed again"
    assert (first.cached_tokens, again.cached_tokens) == (0, 192)


def test_the_next_turn_finds_prompt_and_answer() -> None:
    engine = scheduler()
    first = ask("a", 100, Limits(100))
    engine.submit(first)
    run_out(engine)
    text = first.prompt.data.decode() + "".join(first.output) + "next turn" * 40
    second = ask("b", 290, text=text)
    engine.submit(second)
    run_out(engine)
    assert second.cached_tokens == 192, "199 tokens had been computed: the last one never was"


def test_without_the_radix_cache_nothing_is_found() -> None:
    engine = scheduler(replace(POLICY, radix=False))
    for rid in "ab":
        engine.submit(request := ask(rid, 256, text="same" * 300))
        run_out(engine)
        assert request.cached_tokens == 0
    assert engine.cache.tree_pages == engine.cache.private_pages == 0


def test_full_queue_refuses() -> None:
    engine = scheduler(replace(POLICY, max_queued=2))
    requests = [ask(rid, 10) for rid in "abc"]
    for request in requests:
        engine.submit(request)
    (refused,) = engine.take_ended()
    assert refused is requests[2]
    assert refused.finish is not None
    assert (refused.finish.message, refused.finish.status) == (QUEUE_FULL, 503)


def test_full_queue_gives_way_to_priority() -> None:
    engine = scheduler(replace(POLICY, max_queued=2, priority=True))
    low, high, higher = (ask(rid, 10, priority=rank) for rid, rank in (("l", 0), ("h", 5), ("x", 9)))
    for request in (low, high, higher):
        engine.submit(request)
    assert engine.take_ended() == [low]
    assert low.finish is not None
    assert low.finish.message == OUTRANKED
    assert list(step(engine)[0]) == ["x", "h"]


def test_priority_takes_the_slot_of_a_running_request() -> None:
    engine = scheduler(replace(POLICY, max_running=1, priority=True, preemption_threshold=5))
    low = ask("l", 10, Limits(50), priority=0)
    engine.submit(low)
    step(engine)
    engine.submit(ask("near", 10, priority=4))
    assert step(engine) == ({}, ["l"]), "not enough higher"
    engine.submit(ask("far", 10, priority=5))
    assert step(engine)[0] == {"far": 10}
    run_out(engine)
    assert "".join(low.output) == expected_text(low.prompt.data, 50)
    assert low.retractions == 1


def test_longest_prefix_first() -> None:
    engine = scheduler(replace(POLICY, order="lpm", max_running=1))
    engine.submit(ask("a", 256, Limits(1), text="same" * 300))
    step(engine)
    engine.submit(ask("cold", 256))
    engine.submit(ask("warm", 256, text="same" * 300))
    assert list(step(engine)[0]) == ["warm"]


def test_retraction_when_the_pool_is_full_loses_nothing() -> None:
    # 12 pages: both prompts fit, both answers do not.
    engine = scheduler(replace(POLICY, conservativeness=0.01), pages=12)
    requests = [ask(rid, 128, Limits(384)) for rid in "ab"]
    engine.submit(requests[0])
    step(engine)
    engine.submit(requests[1])
    run_out(engine)
    assert engine.counters.retracted >= 1
    for request in requests:
        assert "".join(request.output) == expected_text(request.prompt.data, 384)
    assert engine.cache.private_pages == engine.cache.locked_pages == 0


def test_a_request_alone_that_outgrows_the_pool_is_ended() -> None:
    engine = scheduler(pages=4)
    request = ask("a", 128, Limits(1000))
    engine.submit(request)
    run_out(engine)
    assert request.finish is not None
    assert request.finish.status == 500
    assert engine.cache.free_pages + engine.cache.tree_pages == 4


def test_abort_frees_wherever_the_request_is() -> None:
    engine = scheduler(replace(POLICY, max_running=2))
    running, chunked, waiting = ask("r", 100), ask("c", 3000), ask("w", 100)
    engine.submit(running)
    step(engine)
    engine.submit(chunked)
    engine.submit(waiting)
    batch = engine.plan()
    assert batch is not None
    engine.abort(lambda request: True)
    assert engine.complete(batch, 1.0) == [], "the step that was under way has no results"
    assert engine.idle
    assert {request.state for request in engine.take_ended()} == {State.DONE}
    assert engine.cache.private_pages == engine.cache.locked_pages == 0


def test_ends_of_generation() -> None:
    text = expected_text(b"r" * 40, 20)
    cases = {
        "limit": (Limits(7), text[:28], "length", None),
        "nothing": (Limits(0), "", "length", None),
        "stop string": (Limits(20, stop=(text[10:17],)), text[:10], "stop", text[10:17]),
        "stop token": (
            Limits(20, stop_ids=frozenset([token_id(text[20:24])])),
            text[:20],
            "stop",
            token_id(text[20:24]),
        ),
        "natural": (Limits(None), expected_text(b"r" * 40), "stop", None),
    }
    for name, (limits, want, kind, matched) in cases.items():
        engine = scheduler()
        engine.submit(request := ask("r", 10, limits))
        run_out(engine)
        assert request.finish is not None
        assert ("".join(request.output), request.finish.kind, request.finish.matched) == (want, kind, matched), name


def test_speculation_takes_fewer_steps_for_the_same_text() -> None:
    plain, fast = scheduler(), scheduler(speculation=Speculation("EAGLE3", 3, 4, 0.75))
    answers = []
    steps = []
    for engine in (plain, fast):
        engine.submit(request := ask("r", 10, Limits(100)))
        steps.append(run_out(engine))
        answers.append("".join(request.output))
    assert answers[0] == answers[1]
    assert steps[1] < steps[0] / 2
    assert fast.counters.spec_accepted == 99
