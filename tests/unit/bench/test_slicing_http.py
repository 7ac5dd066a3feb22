"""The client of bench-slicing: chunks, events, which of them are tokens, and what is no good answer."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_bench.slicing import http
from shoal_bench.slicing.load import Kind


def encoded(parts: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in parts) + b"0\r\n\r\n"


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.lists(st.integers(1, 30), max_size=60))
def test_chunks_are_undone_wherever_they_are_cut(parts: list[bytes], cuts: list[int]) -> None:
    wire, chunks, body = encoded(parts), http.Chunks(), b""
    for size in cuts:
        body += chunks.feed(wire[:size])
        wire = wire[size:]
    body += chunks.feed(wire)

    assert body == b"".join(parts)
    assert chunks.ended


def test_an_answer_that_was_cut_has_not_ended() -> None:
    chunks = http.Chunks()
    assert chunks.feed(b"5\r\nfir") == b"fir"
    assert not chunks.ended


def test_events_are_told_apart_wherever_they_are_cut() -> None:
    events = http.Events()
    assert events.feed(b"data: a\n\nda") == [b"a"]
    assert events.feed(b": comment\n\n") == []
    assert events.feed(b"data: b\n") == []
    assert events.feed(b"\ndata: [DONE]\n\n") == [b"b", b"[DONE]"]


def generated(count: int, reason: Any = None, **more: Any) -> bytes:
    meta = {"finish_reason": reason, "prompt_tokens": 9, "completion_tokens": count, "cached_tokens": 4, **more}
    return json.dumps({"text": "x" * count, "meta_info": meta}).encode()


def chatted(content: str | None = None, reason: str | None = None, usage: Any = None) -> bytes:
    choices = [] if usage else [{"delta": {"content": content}, "finish_reason": reason}]
    return json.dumps({"choices": choices, "usage": usage}).encode()


def read(kind: Kind, events: list[bytes], asked: int) -> http.Answer:
    answer = http.Answer(0.0)
    reader = http.Reader(kind, answer)
    for number, event in enumerate(events):
        reader.take(event, float(number))
    reader.finish(asked)
    return answer


LENGTH = {"type": "length", "length": 2}
DONE = b"[DONE]"


def test_every_event_of_generate_that_counts_a_token_is_one() -> None:
    answer = read("ids", [generated(0), generated(1), generated(2, LENGTH), DONE], 2)
    assert answer.token_s == [1.0, 2.0]
    assert (answer.prompt_tokens, answer.cached_tokens, answer.output_tokens) == (9, 4, 2)


def test_tokens_of_a_chat_are_events_with_text_spaced_or_not() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": None}
    tight = b'{"choices":[{"delta":{"content":"b"},"finish_reason":null}]}'
    events = [chatted(""), chatted("a"), tight, chatted(None, "length"), chatted(usage=usage), DONE]
    answer = read("chat", events, 2)
    assert answer.token_s == [1.0, 2.0]
    assert (answer.output_tokens, answer.cached_tokens) == (2, 0)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([generated(1), generated(2, LENGTH)], r"without \[DONE\]"),
        ([generated(1, {"type": "length"}), DONE], "1 of 2 tokens"),
        ([generated(2, {"type": "abort", "status_code": 503}), DONE], "ended by abort"),
        ([generated(1), b'{"error":{"message":"gone"}}', DONE], "error event.*gone"),
        ([], r"without \[DONE\]"),
    ],
)
def test_what_is_no_whole_answer_is_said(events: list[bytes], said: str) -> None:
    with pytest.raises(http.BadAnswerError, match=said):
        read("ids", events, 2)


def test_heads_have_a_status_and_headers() -> None:
    status, headers = http.parse_head(b"HTTP/1.1 503 Service Unavailable\r\nX-Shoal-Slices: 7\r\nA: b: c\r\n\r\n")
    assert status == 503
    assert headers == {"x-shoal-slices": "7", "a": "b: c"}
