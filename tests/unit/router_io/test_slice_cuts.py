"""How prefixes of prompts are put to engines, which prompts can be, and what the client's usage says of them."""

from typing import Any

import orjson
import pytest

from shoal_router.dispatch import api, cuts, slicer, splice
from shoal_router.index import request, sliceable
from shoal_router.upstream.call import Answer

RID = "0" * 32


def _body(part: cuts.Slice | None) -> dict[str, Any]:
    assert part is not None
    found: dict[str, Any] = orjson.loads(part.body)
    return found


# Ids


def test_ids_keep_what_decides_which_cache_is_looked_into_and_nothing_else() -> None:
    doc = {
        "model": "base:fine",
        "messages": [{"role": "user", "content": "x"}],
        "tools": [{"type": "function"}],
        "cache_salt": "s",
        "extra_key": "k",
        "priority": 7,
        "temperature": 1.5,
        "stop": ["x"],
        "max_tokens": 1000,
        "response_format": {"type": "json_object"},
        "rid": "the client's",
        "n": 1,
    }
    part = cuts.Ids(list(range(1000)), doc, api.CHAT, "base", "0.5.23").cut(640, RID)
    assert part is not None
    assert (part.path, part.tokens) == ("/generate", 640)
    assert _body(part) == {
        "lora_path": "fine",
        "cache_salt": "s",
        "extra_key": "k",
        "priority": 7,
        "rid": RID,
        "stream": True,
        "sampling_params": {"max_new_tokens": 1, "temperature": 0},
        "input_ids": list(range(640)),
    }


@pytest.mark.parametrize(
    ("version", "kept"),
    [
        ("0.5.23", {"cache_salt": "s", "extra_key": "k"}),
        ("0.6.0rc1", {"cache_salt": "s", "extra_key": "k"}),
        ("1.0", {"cache_salt": "s", "extra_key": "k"}),
        ("", {"cache_salt": "s", "extra_key": "k"}),
        ("0.5.22", {"extra_key": "sk"}),
        ("0.5.9.post1", {"extra_key": "sk"}),
        ("0.4", {"extra_key": "sk"}),
    ],
)
def test_where_generate_knows_no_salt_it_goes_in_front_of_the_extra_key(version: str, kept: dict[str, str]) -> None:
    doc = {"model": "base", "prompt": "x", "cache_salt": "s", "extra_key": "k"}
    for where in (api.COMPLETIONS, api.CHAT):
        found = _body(cuts.Ids([1, 2, 3], doc, where, "base", version).cut(2, RID))
        assert {name: found[name] for name in ("cache_salt", "extra_key") if name in found} == kept
    native = _body(cuts.Ids([1, 2, 3], doc, api.GENERATE, "base", version).cut(2, RID))
    assert (native["cache_salt"], native["extra_key"]) == ("s", "k")  # as the request itself says it there


@pytest.mark.parametrize(
    ("where", "doc", "lora"),
    [
        (api.CHAT, {"model": "base"}, None),
        (api.CHAT, {"model": "an alias"}, None),
        (api.CHAT, {"model": "org/base:v2"}, None),
        (api.CHAT, {"model": "base:a:b"}, "a:b"),
        (api.COMPLETIONS, {"model": "base:a"}, "a"),
        (api.GENERATE, {"model": "base:a"}, None),
        (api.GENERATE, {"lora_path": "a"}, "a"),
    ],
)
def test_an_adapter_goes_with_the_slices(where: api.Api, doc: dict[str, Any], lora: str | None) -> None:
    assert _body(cuts.Ids([1, 2], doc, where, "base", "0.5.23").cut(1, RID)).get("lora_path") == lora


def test_ids_that_the_client_gave_are_taken_from_its_body() -> None:
    assert cuts.of_ids({"prompt": "text"}, api.COMPLETIONS, "m", "") is None
    assert cuts.of_ids({"text": "t"}, api.GENERATE, "m", "") is None
    assert cuts.of_ids({"messages": []}, api.CHAT, "m", "") is None
    for doc, where in (({"prompt": [5, 6, 7]}, api.COMPLETIONS), ({"input_ids": [5, 6, 7]}, api.GENERATE)):
        found = cuts.of_ids(doc, where, "m", "")
        assert found is not None
        assert _body(found.cut(2, RID))["input_ids"] == [5, 6]


@pytest.mark.parametrize(
    "answer",
    [
        *(b"", b"{", b"[]", b"null", b"{}", b'{"tokens": null}', b'{"tokens": []}', b'{"tokens": [[1, 2]]}'),
        *(b'{"tokens": ["1"]}', b'{"tokens": [1, true]}', b'{"tokens": [1.5]}', b'{"tokens": "123"}', b"\xff\xfe"),
    ],
)
def test_an_answer_without_ids_is_none(answer: bytes) -> None:
    assert cuts.ids_of(answer) is None


def test_the_tokenizer_is_asked_about_what_the_request_renders_and_never_to_stream() -> None:
    chat = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [{}], "stream": True}
    more = {"stream_options": {"include_usage": True}, "chat_template_kwargs": {"a": 1}}
    found = orjson.loads(cuts.tokenize_body(chat | more, api.CHAT))
    assert found == {name: value for name, value in (chat | more).items() if not name.startswith("stream")}
    assert orjson.loads(cuts.tokenize_body({"prompt": "p", "stream": True}, api.COMPLETIONS)) == {"prompt": "p"}
    assert orjson.loads(cuts.tokenize_body({"text": "t"}, api.GENERATE)) == {"prompt": "t"}


# Text


def _chat(count: int, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"{place} " + "word " * 100} for place in range(count)]
    return {"model": "m", "messages": messages, **fields}


def test_messages_are_cut_where_one_ends_further_each_time() -> None:
    doc = _chat(10, cache_salt="s", priority=1, temperature=1, max_tokens=50, stream=True, tool_choice="auto")
    found = cuts.of_text(doc, api.CHAT, 1000)
    counts = []
    for tokens in (10, 250, 500, 500, 500, 990, 999):
        part = found.cut(tokens, RID)
        if part is None:
            break
        body = _body(part)
        assert part.path == "/v1/chat/completions"
        assert body["messages"] == doc["messages"][: len(body["messages"])]
        assert (body["cache_salt"], body["priority"], body["model"]) == ("s", 1, "m")
        assert (body["max_tokens"], body["temperature"], body["stream"]) == (1, 0, True)
        assert body["stream_options"] == {"include_usage": True}
        assert "tool_choice" not in body
        counts.append(len(body["messages"]))
    assert counts == [1, 2, 5, 6, 7, 9]


def test_one_message_has_no_place_to_cut() -> None:
    assert cuts.of_text(_chat(1), api.CHAT, 1000).cut(500, RID) is None
    two = cuts.of_text(_chat(2), api.CHAT, 1000)
    assert len(_body(two.cut(100, RID))["messages"]) == 1
    assert two.cut(900, RID) is None


@pytest.mark.parametrize(("where", "field"), [(api.GENERATE, "text"), (api.COMPLETIONS, "prompt")])
def test_text_is_cut_behind_a_line_else_a_word_and_stays_text(where: api.Api, field: str) -> None:
    texts = {
        "lines": "line of text\n" * 300,
        "words": "word " * 800,
        "dense": "\u6f22\u5b57\U0001f469\u200d\U0001f467e\u0301" * 400,
    }
    for kind, text in texts.items():
        found = cuts.of_text({field: text, "cache_salt": "s", "model": "m", "n": 1}, where, 1000)
        before = ""
        for tokens in (250, 500, 750):
            body = _body(found.cut(tokens, RID))
            part = body[field]
            assert text.startswith(part)
            assert len(before) < len(part) < len(text)
            assert kind == "dense" or part[-1] in "\n "
            assert kind != "lines" or part[-1] == "\n"
            assert body["cache_salt"] == "s"
            before = part
        assert found.cut(700, RID) is None  # nothing more than before


# Which prompts can be


_TEXT_PART = {"type": "text", "text": "x"}
_IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}


@pytest.mark.parametrize(
    ("api_", "fields", "able"),
    [
        ("chat", {}, True),
        ("chat", {"n": 1, "best_of": 1}, True),
        ("chat", {"n": 2}, False),
        ("chat", {"messages": [{"role": "user", "content": [_TEXT_PART]}]}, True),
        ("chat", {"messages": [{"role": "user", "content": [_TEXT_PART, _IMAGE]}]}, False),
        ("chat", {"messages": [{"role": "assistant", "content": None, "tool_calls": []}]}, True),
        ("chat", {"bootstrap_room": 3}, False),
        ("chat", {"bootstrap_host": "h"}, False),
        ("completion", {"prompt": "x"}, True),
        ("completion", {"prompt": [1, 2]}, True),
        ("completion", {"prompt": ["x"]}, False),
        ("completion", {"prompt": [[1]]}, False),
        ("completion", {"prompt": "x", "echo": True}, False),
        ("completion", {"prompt": "x", "best_of": 3}, False),
        ("generate", {"text": "x"}, True),
        ("generate", {"input_ids": [1]}, True),
        ("generate", {"text": ["x"]}, False),
        ("generate", {"input_ids": [[1]]}, False),
        ("generate", {"text": "x", "sampling_params": {"n": 2}}, False),
        ("generate", {"text": "x", "sampling_params": [{}]}, False),
        ("generate", {"text": "x", "return_logprob": True}, False),
        ("generate", {"text": "x", "return_hidden_states": True}, False),
        ("generate", {"text": "x", "image_data": "u"}, False),
        ("generate", {"input_embeds": [[0.1]]}, False),
        ("generate", {"text": "x", "session_params": {"id": "s"}}, False),
    ],
)
def test_only_one_text_that_one_engine_computes_once_can_be_cut(api_: str, fields: dict[str, Any], able: bool) -> None:
    base = {"messages": [{"role": "user", "content": "x"}]} if api_ == "chat" else {}
    assert getattr(sliceable, api_)({**base, **fields}) is able


def test_short_prompts_are_not_even_asked_about() -> None:
    for size, able in ((sliceable.BYTES_MIN - 1, False), (sliceable.BYTES_MIN, True)):
        found = request.read(request.Api.GENERATE, {"text": "x" * size}, {}, (), size)
        assert found.sliceable is able


# Answers


def _events(*payloads: bytes, done: bool = True) -> Answer:
    blocks = b"".join(b"data: " + payload + b"\n\n" for payload in payloads)
    return Answer(200, blocks + (b"data: [DONE]\n\n" if done else b""))


_META = b'{"text":"x","meta_info":{"prompt_tokens":640,"completion_tokens":1,"cached_tokens":128}}'


def test_usage_of_a_slice_that_was_computed() -> None:
    found = slicer.usage_of(_events(_META))
    assert found is not None
    assert (found.prompt_tokens, found.cached_tokens) == (640, 128)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(500, _events(_META).body),
        _events(_META, done=False),
        _events(b'{"text":"x"}'),
        _events(b'{"error":{"code":503,"message":"full"}}'),
        _events(_META, b'{"error":{"code":500,"message":"late"}}'),
        _events(b'{"text":"","meta_info":{"prompt_tokens":1,"finish_reason":{"type":"abort","status_code":503}}}'),
        Answer(200, b""),
    ],
)
def test_no_usage_of_a_slice_that_was_not(answer: Answer) -> None:
    assert slicer.usage_of(answer) is None


def test_the_clients_usage_says_what_was_cached_before_the_slices() -> None:
    answer = b'{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens": 8000},"completion_tokens":1}}'
    assert splice.with_cached_tokens(answer, 64, 8000) == answer.replace(b" 8000", b"64")
    assert splice.with_cached_tokens(answer, 64, 7999) == answer  # more than slices brought: it was there
    assert splice.with_cached_tokens(answer, 8000, 8000) == answer
    null = b'{"usage":{"prompt_tokens_details":null}}'
    assert splice.with_cached_tokens(null, 64, 8000) == null


def test_where_tokens_are_cached_is_not_told_of_those_that_slices_brought() -> None:
    answer = b'{"meta_info":{"cached_tokens":128,"cached_tokens_details":{"device":128,"host":0},"dp_rank":null}}'
    expected = b'{"meta_info":{"cached_tokens":0,"cached_tokens_details":null,"dp_rank":null}}'
    assert splice.with_cached_tokens(answer, 0, 128) == expected
    assert splice.with_cached_tokens(answer, 128, 128) == answer


def test_generated_text_that_looks_like_usage_stays() -> None:
    said = '"cached_tokens": 5, {"cached_tokens":5}'
    answer = orjson.dumps({"choices": [{"text": said}], "usage": {"cached_tokens": 640}})
    found = orjson.loads(splice.with_cached_tokens(answer, 0, 640))
    assert found == {"choices": [{"text": said}], "usage": {"cached_tokens": 0}}
