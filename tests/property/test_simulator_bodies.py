"""Any JSON at all as the body of any route: the simulator answers, and fails only where the real engine does."""

import asyncio
import contextlib
import json
import shlex
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_sim import flags, server
from shoal_sim.http import app as app_module
from shoal_sim.runtime import Status
from shoal_sim.settings import resolve
from shoal_sim.tokens import VocabularyError

ROUTES = ["/v1/chat/completions", "/v1/completions", "/generate", "/v1/tokenize", "/v1/detokenize"]
ROUTES += ["/abort_request", "/admin/fault", "/flush_cache", "/continue_generation", "/v1/embeddings"]
FIELDS = shlex.split("""
model messages prompt text input_ids tokens n stream stream_options max_tokens max_completion_tokens
temperature top_p stop stop_token_ids ignore_eos logprobs top_logprobs rid priority cache_salt extra_key tools
routed_dp_rank sampling_params return_logprob top_logprobs_num echo return_token_ids return_meta_info
return_cached_tokens_details continue_final_message abort_all stall reject
""")
INNER = shlex.split("""
role content tool_calls type text include_usage continuous_usage_stats max_new_tokens stop n temperature
""")
ARGV = ["--model-path", "/m", "--profile", "tiny", "--speedup", "1000000", "--context-length", "2048"]
SETTINGS = resolve(flags.parse(ARGV), {})

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 40),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from(["user", "assistant", "", "text", "abc", "true", "12"]),
    st.text(max_size=20),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(INNER), inner, max_size=4)),
    max_leaves=12,
)
messages = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "robot"]), "content": values}), max_size=3
)
bodies = st.one_of(
    values,
    st.dictionaries(st.sampled_from(FIELDS), values, max_size=6),
    st.builds(lambda m, rest: {**rest, "messages": m}, messages, st.dictionaries(st.sampled_from(FIELDS), values)),
    st.builds(lambda p, rest: {**rest, "prompt": p}, values, st.dictionaries(st.sampled_from(FIELDS), values)),
    st.builds(lambda p, rest: {**rest, "text": p}, st.text(), st.dictionaries(st.sampled_from(FIELDS), values)),
)


class DiedError(Exception):
    """The simulator would have ended the process."""


async def answer_to(path: str, body: bytes) -> tuple[int, bytes]:
    runtime = server.build(SETTINGS)
    runtime.status = Status.UP
    steps = asyncio.create_task(runtime.engine.steps())
    sent: list[Any] = []
    pending = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if pending:
            return pending.pop()
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
    try:
        await asyncio.wait_for(app_module.App(runtime)(scope, receive, send), 20)
    finally:
        steps.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await steps
    assert not runtime.engine.live
    assert not sent[-1].get("more_body")
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


@settings(max_examples=200, deadline=None)
@given(path=st.sampled_from(ROUTES), body=bodies)
def test_any_body_is_answered(path: str, body: Any) -> None:
    def died(reason: str) -> None:
        raise DiedError(reason)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app_module, "crash", died)
        try:
            status, answer = asyncio.run(answer_to(path, json.dumps(body).encode()))
        except DiedError as death:
            outside = isinstance(death.__context__, VocabularyError)
            status, answer = (200 if outside else 0), b""
    if status == 500:
        no_object = path == "/v1/chat/completions" and not isinstance(body, dict)
        assert no_object or b"unhashable type" in answer, answer
    if status == 501:
        assert path == "/v1/tokenize", "does not stream"
        assert body["stream"]
    assert status in (200, 400, 500, 501), answer
