"""dispatch.slicer by itself, with the real core: what no engine on loopback can be made to do within a test's time."""

from typing import Any

import orjson
import pytest

from shoal_api import routes
from shoal_router import build, model
from shoal_router.admission import core, ticket
from shoal_router.dispatch import api, checks, outgoing, slicer
from shoal_router.policy import binding
from shoal_router.upstream.call import Answer, NoAnswer
from shoal_router.upstream.connection import Failure

TOKENS = 60_000

pytestmark = pytest.mark.skipif(build.compiled(), reason="compiled code takes no stand-in for a dispatcher")


class _Call:
    """Asked of an engine, and not answered yet."""

    def __init__(self, path: str, body: bytes, timeout_s: float, on_result: Any) -> None:
        self.path = path
        self.doc: dict[str, Any] = orjson.loads(body)
        self.timeout_s = timeout_s
        self.answer = on_result
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class _Stage:
    """A slicer with the parts of dispatch that it uses: calls and aborts are kept."""

    def __init__(self) -> None:
        self.core = core.ServiceCore(routes.Service(name="m", served_name="m", itl_objective_s=0.3))
        self.core.add_replica(model.Replica("a", "http://a", uid="1"), 0.0)
        self.core.set_facts("a", model.EngineFacts(None, None, 64), 0.0)
        self.core.set_state("a", model.ReplicaState.ROUTABLE, 0.0)
        self.load = self.core._pool.loads["a"]
        self.time = 1.0
        self.calls: list[_Call] = []
        self.aborted: list[str] = []
        self.busy: list[bool] = []
        self.over = 0
        self.table = self.core.service
        self.name = "a"
        self.info = None
        other = self._bind(10, 9, False)
        self.core.first_token(other, 1.0)
        self.binding = self._bind(TOKENS, 1, True)
        assert self.binding.sliced is not None
        whole: Any = self
        doc: dict[str, Any] = {
            "model": "m",
            "messages": [{"role": "user", "content": f"{place}"} for place in range(40)],
        }
        checked = checks.check(api.CHAT, doc, None, None)
        assert isinstance(checked, checks.Checked)
        asked = outgoing.Outgoing(api.CHAT, checked, orjson.dumps(doc), [], self.new_rid)
        self.slicer = slicer.Slicer(whole, whole, whole, self.binding, asked, self.busy.append, self._on_over)

    def _bind(self, tokens: int, session: int, sliceable: bool) -> binding.Binding:
        bound: list[binding.Binding] = []
        request = model.Request(
            model.Prompt(b"", tokens=tokens), (), model.Session(session, "test"), sliceable=sliceable
        )
        self.core.submit(ticket.Ticket(request, bound.append, lambda *_: None), self.time)
        return bound[0]

    def _on_over(self) -> None:
        self.over += 1

    # What it is given for a dispatcher

    def now(self) -> float:
        return self.time

    def new_rid(self) -> str:
        return f"{len(self.calls):032d}"

    def ask(
        self, handle: Any, path: str, body: bytes, headers: Any, timeout_s: float, bytes_max: int, on_result: Any
    ) -> _Call:
        self.calls.append(_Call(path, body, timeout_s, on_result))
        return self.calls[-1]

    def cached_tokens(self, reported: int | None) -> int | None:
        return reported

    def abort_request(self, handle: Any, rid: str) -> None:
        self.aborted.append(rid)

    # What engines say

    def ids(self) -> None:
        self.calls[-1].answer(Answer(200, orjson.dumps({"tokens": list(range(TOKENS))})))

    def computed(self, cached: int) -> None:
        self.time += 0.3
        count = len(self.calls[-1].doc["input_ids"])
        meta = {"prompt_tokens": count, "completion_tokens": 1, "cached_tokens": cached}
        event = b"data: " + orjson.dumps({"text": "x", "meta_info": meta}) + b"\n\ndata: [DONE]\n\n"
        self.calls[-1].answer(Answer(200, event))


@pytest.fixture
def stage() -> _Stage:
    made = _Stage()
    made.slicer.start()
    assert [call.path for call in made.calls] == ["/v1/tokenize"]
    assert 0.0 < made.calls[0].timeout_s <= 60.0
    return made


def _whole(stage: _Stage) -> None:
    """The request itself was sent, once, and nothing of it runs beside."""
    assert stage.over == 1
    assert stage.load.lane.count == 0
    assert stage.binding.prefilling
    calls = len(stage.calls)
    stage.core.pump(stage.time + 10.0)
    stage.slicer.cancel()
    assert len(stage.calls) == calls
    assert stage.aborted == []


def test_a_tokenizer_that_says_nothing_in_time_costs_its_deadline_and_no_more(stage: _Stage) -> None:
    stage.calls[0].answer(NoAnswer(None))
    _whole(stage)
    assert stage.core.slicing.slices == 0


@pytest.mark.parametrize("failure", [None, Failure.CONNECT, Failure.MALFORMED])
def test_a_slice_that_is_not_answered_in_time_or_not_whole_is_the_last(stage: _Stage, failure: Failure | None) -> None:
    stage.ids()
    stage.computed(0)
    assert len(stage.calls) == 3
    assert stage.calls[-1].timeout_s > 10.0 * stage.load.pending_s
    stage.calls[-1].answer(NoAnswer(failure))
    _whole(stage)
    assert (stage.core.slicing.slices, stage.core.slicing.failures) == (2, 1)
    assert stage.busy == [True, False, True, False]


def test_each_slice_has_its_own_id_and_waits_for_the_one_before(stage: _Stage) -> None:
    stage.ids()
    ends: list[int] = []
    while not stage.over:
        call = stage.calls[-1]
        assert call.path == "/generate"
        count = len(stage.calls)
        stage.core.pump(stage.time + 0.1)  # no second one while it runs
        assert len(stage.calls) == count
        stage.computed(ends[-1] if ends else 0)
        ends.append(len(call.doc["input_ids"]))
        assert len(ends) < 100
    rids = [call.doc["rid"] for call in stage.calls[1:]]
    assert len(set(rids)) == len(rids) == len(ends) > 3
    assert ends == sorted(set(ends))
    assert all(end % 64 == 0 for end in ends)
    _whole(stage)


@pytest.mark.parametrize("slices", [0, 1, 2])
def test_cancelled_at_any_time_it_ends_what_runs_and_hears_no_late_answer(stage: _Stage, slices: int) -> None:
    if slices:
        stage.ids()
    for _ in range(slices - 1):
        stage.computed(0)
    late = stage.calls[-1]
    stage.slicer.cancel()
    stage.core.release(stage.binding, stage.time)
    assert late.cancelled
    assert stage.aborted == ([late.doc["rid"]] if slices else [])
    calls = len(stage.calls)
    stage.slicer.cancel()
    late.answer(Answer(200, b""))
    stage.core.pump(stage.time + 10.0)
    assert (len(stage.calls), stage.over) == (calls, 0)
    assert stage.aborted == ([late.doc["rid"]] if slices else [])
    assert (stage.load.lane.count, stage.load.pending_s, stage.load.rest_s) == (0, 0.0, 0.0)


def test_a_cache_that_held_more_than_was_known_is_told_of_as_it_was(stage: _Stage) -> None:
    """The router started after the engine: each slice is found whole, and so is the request."""
    stage.ids()
    while not stage.over:
        stage.computed(len(stage.calls[-1].doc["input_ids"]) - 64)
    sliced = stage.binding.sliced
    assert sliced is not None
    assert sliced.count > 1
    assert sliced.first_cached == sliced.done - 64
    stage.core.finish(stage.binding, model.Usage(TOKENS, 5, TOKENS - 64), stage.time)
    assert stage.load.cached_actual == TOKENS - 64
    assert stage.core._pool.slicing.totals.failures == 0


def test_a_cache_that_held_a_part_is_told_of_as_it_was(stage: _Stage) -> None:
    stage.ids()
    held, before = 9_984, 0
    while not stage.over:
        count = len(stage.calls[-1].doc["input_ids"])
        stage.computed(max(before, min(held, count - 64)))
        before = count
    sliced = stage.binding.sliced
    assert sliced is not None
    assert sliced.first_cached == held
    stage.core.finish(stage.binding, model.Usage(TOKENS, 5, before), stage.time)
    assert stage.load.cached_actual == held
