"""What the replay's client makes of every way in which an answer can end."""

import asyncio
import time

import orjson
import pytest

from shoal_cli.replay import client, run
from shoal_cli.replay.outcome import Ending, Outcome, Usage
from shoal_testing import scripted, waiting

pytestmark = pytest.mark.wire

DONE = b"data: [DONE]\n\n"


def token(text: str = " tok") -> bytes:
    return b"data: " + orjson.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}) + b"\n\n"


def usage(completion: int, cached: int | None = 64) -> bytes:
    details = None if cached is None else {"cached_tokens": cached}
    value = {"prompt_tokens": 100, "completion_tokens": completion, "prompt_tokens_details": details}
    return b"data: " + orjson.dumps({"choices": [], "usage": value}) + b"\n\n"


def error(kind: str) -> bytes:
    return b"data: " + orjson.dumps({"error": {"type": kind, "message": "the replica is gone"}}) + b"\n\n"


GOOD = scripted.Reply(chunks=(token(), token(), usage(2), DONE), headers={"x-shoal-replica": "m-1-0"})


async def send(*replies: scripted.Reply, **settings: object) -> tuple[Outcome, scripted.Server]:
    def script(_: scripted.Request, number: int) -> scripted.Reply:
        return replies[min(number, len(replies) - 1)]

    async with scripted.serve(script) as server, run.connections(4) as session:
        made = client.Settings(url=server.url, **settings)  # type: ignore[arg-type]
        sender = client.Client(session, made, time.monotonic())
        call = client.Call("s1", b'{"model":"m"}', input_tokens=90, bound_tokens=64, output_tokens=2)
        return await sender.send(call), server


async def test_whole_answer_is_completed_with_its_usage() -> None:
    outcome, server = await send(GOOD)
    assert outcome.ending is Ending.COMPLETED
    assert outcome.usage == Usage(100, 2, 64)
    assert outcome.replica == "m-1-0"
    assert outcome.ttft_s is not None
    assert outcome.decode_s is not None
    assert outcome.ttft_s + outcome.decode_s <= outcome.total_s
    assert server.requests[0].path == "/v1/chat/completions"
    assert server.requests[0].headers["x-session-id"] == "s1"


async def test_cached_tokens_that_are_not_reported_are_unknown() -> None:
    outcome, _ = await send(scripted.Reply(chunks=(token(), usage(2, None), DONE)))
    assert outcome.usage == Usage(100, 2, None)


@pytest.mark.parametrize(
    ("reply", "want"),
    [
        pytest.param(scripted.Reply(chunks=(token(), usage(2))), "no_end", id="without DONE"),
        pytest.param(scripted.Reply(chunks=(token(), DONE)), "no_usage", id="without usage"),
        pytest.param(scripted.Reply(chunks=(token(), usage(1), DONE)), "wrong_length", id="a token lost"),
        pytest.param(scripted.Reply(chunks=(token(),), cut=True), "stream_cut", id="cut after a token"),
        pytest.param(scripted.Reply(cut=True), "disconnected", id="cut before a token"),
        pytest.param(scripted.Reply(chunks=(b"data: {oops\n\n", DONE)), "bad_stream", id="not JSON"),
        pytest.param(scripted.Reply(chunks=(error("queue_full"), DONE)), "event_queue_full", id="error comes first"),
        pytest.param(scripted.Reply(status=400, chunks=(b"{}",)), "http_400", id="400"),
        pytest.param(scripted.Reply(status=503, chunks=(b"{}",)), "http_503", id="503 that says nothing of a retry"),
    ],
)
async def test_broken_answer_is_a_failure(reply: scripted.Reply, want: str) -> None:
    outcome, server = await send(reply)
    assert (outcome.ending, outcome.error) == (Ending.FAILED, want)
    assert outcome.retries == 0
    assert len(server.requests) == 1


async def test_error_event_after_the_first_token_is_its_own_ending() -> None:
    outcome, _ = await send(scripted.Reply(chunks=(token(), error("replica_lost"))))
    assert (outcome.ending, outcome.error) == (Ending.ERROR_EVENT, "event_replica_lost")
    assert outcome.detail == "the replica is gone"
    assert outcome.tokens_seen == 1


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_honoured_and_counted(status: int) -> None:
    outcome, server = await send(scripted.Reply(status=status, headers={"retry-after": "0"}), GOOD)
    assert (outcome.ending, outcome.retries) == (Ending.COMPLETED, 1)
    assert len(server.requests) == 2


async def test_retries_are_bounded() -> None:
    outcome, server = await send(scripted.Reply(status=503, headers={"retry-after": "0"}), retries_max=2)
    assert (outcome.ending, outcome.error, outcome.retries) == (Ending.FAILED, "http_503", 2)
    assert len(server.requests) == 3


async def test_retry_that_would_pass_the_deadline_is_not_waited_for() -> None:
    outcome, _ = await send(scripted.Reply(status=503, headers={"retry-after": "30"}), total_s=5.0)
    assert (outcome.ending, outcome.retries) == (Ending.FAILED, 0)


@pytest.mark.parametrize("limit", ["silence_s", "total_s"])
async def test_silence_has_a_deadline(limit: str) -> None:
    outcome, _ = await send(scripted.Reply(chunks=(token(),), hold=True), **{limit: 0.2})
    assert (outcome.ending, outcome.error) == (Ending.FAILED, "timeout")


async def test_server_that_is_not_there_is_a_failure() -> None:
    async with scripted.serve(lambda _, __: GOOD) as server:
        url = server.url
    async with run.connections(1) as session:
        sender = client.Client(session, client.Settings(url=url), time.monotonic())
        outcome = await sender.send(client.Call("s", b"{}", 1, 0, 1))
    assert (outcome.ending, outcome.error) == (Ending.FAILED, "connect")


async def test_text_is_compared_where_it_is_known() -> None:
    right, _ = await send(GOOD, expected=lambda _: " tok tok")
    wrong, _ = await send(GOOD, expected=lambda _: " tok tak")
    assert right.ending is Ending.COMPLETED
    assert (wrong.ending, wrong.error) == (Ending.FAILED, "wrong_text")


async def test_model_is_the_one_that_is_listed() -> None:
    def answer(*names: str) -> scripted.Reply:
        body = orjson.dumps({"data": [{"id": name} for name in names]})
        return scripted.Reply(chunks=(body,), headers={"content-type": "application/json"})

    def script(_: scripted.Request, number: int) -> scripted.Reply:
        return answer(*["a", "b"][: number + 1])

    async with scripted.serve(script) as server, run.connections(1) as session:
        settings = client.Settings(url=server.url)
        assert await run.find_model(session, settings) == "a"
        with pytest.raises(run.ReplayError, match="serves: a, b"):
            await run.find_model(session, settings)


async def test_cancelled_request_leaves_nothing_open() -> None:
    held = scripted.Reply(chunks=(token(),), hold=True)
    async with scripted.serve(lambda _, __: held) as server, run.connections(1) as session:
        sender = client.Client(session, client.Settings(url=server.url), time.monotonic())
        task = asyncio.create_task(sender.send(client.Call("s", b"{}", 1, 0, 1)))
        await waiting.until(lambda: bool(server.requests))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
