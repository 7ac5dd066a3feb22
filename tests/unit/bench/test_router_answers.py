"""What the light engine says is what clients and routers can read."""

import json

import pytest

from shoal_bench.router import answers, load
from shoal_router.dispatch import engine


def content(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("tokens", [0, 7, 87500])
def test_completion_has_the_length_it_says_and_the_tokens(tokens: int) -> None:
    answer = answers.completion(tokens)

    assert load.answer_ended(answer)
    assert not load.answer_ended(answer[:-1])
    assert json.loads(content(answer))["usage"]["prompt_tokens"] == tokens
    assert json.loads(content(answer))["usage"]["total_tokens"] == tokens + 1


def test_shoal_takes_it_for_an_engine_with_room() -> None:
    info = engine.parse(content(answers.page("/server_info")))

    assert info is not None
    assert info.facts.running_max is not None
    assert info.facts.running_max >= 10_000


def test_unknown_page_is_404() -> None:
    assert answers.page("/v1/chat/completions/render").startswith(b"HTTP/1.1 404 ")
    assert answers.page("/health").startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("with_usage", [False, True])
def test_stream_is_chunks_of_events_that_end(with_usage: bool) -> None:
    answer = answers.STREAM_HEAD + answers.ROLE + answers.TOKEN * 2 + answers.stream_end(5, 2, with_usage)

    assert load.answer_ended(answer)
    events = []
    rest = content(answer)
    while rest != b"0\r\n\r\n":
        size, _, rest = rest.partition(b"\r\n")
        events.append(rest[: int(size, 16)])
        assert rest[int(size, 16) :].startswith(b"\r\n")
        rest = rest[int(size, 16) + 2 :]
    assert events[-1] == b"data: [DONE]\n\n"
    parsed = [json.loads(one.removeprefix(b"data: ")) for one in events[:-1]]
    assert [one["usage"] is not None for one in parsed].count(True) == with_usage
