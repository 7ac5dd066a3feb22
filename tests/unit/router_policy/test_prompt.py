"""Canonical prompts: what a chat template shows, in its order, and nothing else."""

from typing import Any

import pytest

from shoal_router import model
from shoal_router.index import chain, prompt, request, session

SYSTEM = {"role": "system", "content": "You are terse."}
USER = {"role": "user", "content": "List the files."}
TOOLS = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}]


def _chat(*messages: dict[str, Any], **fields: Any) -> bytes:
    return prompt.chat({"messages": list(messages), **fields}).data


def test_next_turn_begins_with_the_turn_before() -> None:
    reply = {"role": "assistant", "content": "a.txt", "tool_calls": []}
    assert _chat(SYSTEM, USER, reply, USER, tools=TOOLS).startswith(_chat(SYSTEM, USER, tools=TOOLS))


def test_tools_come_before_messages() -> None:
    data = _chat(SYSTEM, tools=TOOLS)
    assert data.index(b'"ls"') < data.index(b"terse")


SAME: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "string and one text part": (USER, {"role": "user", "content": [{"type": "text", "text": USER["content"]}]}),
    "cache marker": (
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
        {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]},
    ),
    "id of a call": (
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "assistant", "tool_calls": [{"id": "2", "function": {"name": "f", "arguments": "{}"}}]},
    ),
    "order of keys": ({"role": "user", "content": "x"}, {"content": "x", "role": "user"}),
    "cache marker on an image": (
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:1"}}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:1"}, "cache_control": {}}]},
    ),
}


@pytest.mark.parametrize("case", SAME)
def test_what_no_template_shows_changes_nothing(case: str) -> None:
    one, other = SAME[case]
    assert _chat(one) == _chat(other)


DIFFERENT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "role": ({"role": "user", "content": "x"}, {"role": "system", "content": "x"}),
    "arguments": (
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"a":1}'}}]},
    ),
    "image": (
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:1"}}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:2"}}]},
    ),
    "thoughts": (
        {"role": "assistant", "content": "x", "reasoning_content": "a"},
        {"role": "assistant", "content": "x", "reasoning_content": "b"},
    ),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_a_template_shows_is_told_apart(case: str) -> None:
    one, other = DIFFERENT[case]
    assert _chat(one) != _chat(other)


@pytest.mark.parametrize(
    "body",
    [{}, {"messages": "x"}, {"messages": [1, None, {"role": 3, "content": 4}]}, {"messages": [{"content": [7]}]}],
)
def test_odd_chat_bodies_are_no_error(body: dict[str, Any]) -> None:
    assert isinstance(prompt.chat(body).data, bytes)


def test_ids_weigh_four_bytes_and_are_counted_exactly() -> None:
    got = prompt.generate({"input_ids": [1, 2, 3]})
    assert (len(got.data), got.tokens) == (12, 3)
    assert prompt.completion({"prompt": [1, 2, 3, 4]}).data.startswith(got.data)


def test_an_odd_id_ends_the_prefix() -> None:
    assert prompt.generate({"input_ids": [1, 2, -3, 4]}).data == prompt.generate({"input_ids": [1, 2]}).data


def test_of_a_batch_the_first_is_the_prefix_and_the_rest_is_work() -> None:
    got = prompt.completion({"prompt": ["abc", "defg"]})
    assert (got.data, got.rest_bytes) == (b"abc", 4)
    ids = prompt.completion({"prompt": [[1], [2, 3]]})
    assert (ids.tokens, ids.rest_bytes) == (1, 8)


def test_text_goes_before_ids_in_generate() -> None:
    assert prompt.generate({"text": "abc", "input_ids": [1]}).data == b"abc"


@pytest.mark.parametrize("field", [{"cache_salt": "s"}, {"lora_path": "l"}, {"model": "base:adapter"}])
def test_separate_caches_of_an_engine_share_no_prefix(field: dict[str, str]) -> None:
    body = {"prompt": "x" * 1000}
    plain, salted = prompt.completion(body), prompt.completion({**body, **field})
    assert plain.salt == 0
    assert not set(chain.chain(plain.data, plain.salt)) & set(chain.chain(salted.data, salted.salt))


ORDER = ("x-session-affinity", "x-session-id")


def _session(headers: dict[str, str], body: dict[str, Any]) -> model.Session:
    return session.find(headers, body, ORDER, prompt.chat(body))


SESSIONS: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "first header": ({"x-session-id": "b", "x-session-affinity": "a"}, {"user": "u"}, "x-session-affinity"),
    "header before body": ({"x-session-id": "b"}, {"prompt_cache_key": "k"}, "x-session-id"),
    "empty header": ({"x-session-id": ""}, {"session_id": "s"}, "session_id"),
    "cache key before session id": ({}, {"session_id": "s", "prompt_cache_key": "k"}, "prompt_cache_key"),
    "metadata before user": ({}, {"user": "u", "metadata": {"user_id": "m"}}, "metadata.user_id"),
    "user": ({}, {"user": "u", "metadata": {}}, "user"),
    "nothing": ({}, {"messages": [SYSTEM, USER]}, "start"),
    "odd types": ({}, {"user": ["u"], "metadata": 3, "session_id": True}, "start"),
}


@pytest.mark.parametrize("case", SESSIONS)
def test_first_rule_that_matches_gives_the_session(case: str) -> None:
    headers, body, want = SESSIONS[case]
    assert _session(headers, body).source == want


def test_fallback_is_the_start_of_the_conversation() -> None:
    first = _session({}, {"messages": [SYSTEM, USER]})
    assert _session({}, {"messages": [SYSTEM, USER, {"role": "assistant", "content": "a"}, SYSTEM]}).key == first.key
    assert _session({}, {"messages": [SYSTEM, {"role": "user", "content": "other"}]}).key != first.key


def test_a_parent_is_found_under_the_key_of_its_own_session() -> None:
    own = _session({"x-session-id": "p"}, {})
    assert session.parent({"x-parent-session-id": "p"}) == own.key
    assert session.parent({}) is None


def test_request_facts() -> None:
    body = {"messages": [USER], "max_tokens": 7, "stream": True}
    got = request.read(request.Api.CHAT, body, {"x-stainless-read-timeout": "3"}, ORDER, 99)
    assert (got.output_max, got.stream, got.body_bytes, got.timeout_s) == (7, True, 99, 3.0)
    other = request.read(request.Api.GENERATE, {"text": "x", "sampling_params": {"max_new_tokens": 5}}, {}, ORDER, 1)
    assert (other.output_max, other.stream) == (5, False)
