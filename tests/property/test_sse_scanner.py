"""What the scanner finds and lets through does not depend on how the stream was cut into reads."""

import itertools
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_router.dispatch import sse


def _data(value: object) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


_TEXT = st.text(max_size=30) | st.sampled_from(['"usage":{"prompt_tokens":9}', "data: [DONE]\n\n", "\n\ndata:", "\\"])
_CONTENT = _TEXT.map(lambda text: _data({"choices": [{"delta": {"content": text}}], "usage": None}))
_LONG = st.integers(16_300, 16_400).map(lambda size: _data({"choices": [{"delta": {"content": "x" * size}}]}))
_COMMENT = st.sampled_from([b": keep-alive\n\n", b"\n", b"event: ping\ndata: {}\n\n"])


def _usage(counts: tuple[int, int, int]) -> bytes:
    prompt, completion, cached = counts
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return _data({"choices": [], "usage": usage})


@st.composite
def _cuts(draw: st.DrawFn, stream: bytes) -> list[bytes]:
    at = sorted(draw(st.sets(st.integers(0, len(stream)), max_size=12)))
    edges = [0, *at, len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


@settings(max_examples=60)
@given(
    st.data(),
    st.lists(_CONTENT | _LONG | _COMMENT, min_size=1, max_size=8),
    st.tuples(st.integers(0, 10**7), st.integers(0, 10**6), st.integers(0, 10**6)),
    st.booleans(),
)
def test_results_are_those_of_the_uncut_stream(
    data: st.DataObject, events: list[bytes], counts: tuple[int, int, int], strip: bool
) -> None:
    body, usage = b"".join(events), _usage(counts)
    stream = body + usage + sse.DONE + b"\n\n"
    want = body + sse.DONE + b"\n\n" if strip else stream

    scanner = sse.Scanner(strip)
    out = b"".join(scanner.feed(part) for part in data.draw(_cuts(stream))) + scanner.flush()

    whole = sse.Scanner(strip)
    whole.feed(stream)
    assert out == want
    assert (scanner.events, scanner.done, scanner.error_code) == (whole.events, True, whole.error_code)
    found = scanner.usage()
    assert found is not None
    assert (found.prompt_tokens, found.completion_tokens, found.cached_tokens) == counts


@settings(max_examples=40)
@given(st.data(), st.lists(_CONTENT, max_size=4), _CONTENT)
def test_a_broken_stream_ends_at_a_whole_event(data: st.DataObject, events: list[bytes], last: bytes) -> None:
    """What the client has got when the engine dies can be followed by an error event."""
    broken = b"".join(events) + last[: data.draw(st.integers(1, len(last) - 2))]
    scanner = sse.Scanner(False)
    out = b"".join(scanner.feed(part) for part in data.draw(_cuts(broken)))
    assert not scanner.mid_event
    assert out == b"".join(events)
    assert not scanner.done


@settings(max_examples=40)
@given(st.data(), st.sampled_from([400, 500, 503]), st.lists(_CONTENT, max_size=2))
def test_first_event_error_is_found(data: st.DataObject, code: int, rest: list[bytes]) -> None:
    stream = _data({"error": {"message": "no", "code": code}}) + b"".join(rest) + sse.DONE + b"\n\n"
    scanner = sse.Scanner(True)
    for part in data.draw(_cuts(stream)):
        scanner.feed(part)
    assert scanner.error_code == code


@settings(max_examples=40)
@given(st.data(), st.lists(_CONTENT, min_size=1, max_size=3))
def test_generate_abort_is_an_error_and_a_normal_finish_is_none(data: st.DataObject, rest: list[bytes]) -> None:
    abort = {"type": "abort", "status_code": 503, "message": "full"}
    for reason, want in ((abort, 503), ({"type": "length", "length": 2}, None), ({"type": "abort"}, None)):
        stream = _data({"text": "", "meta_info": {"finish_reason": reason}}) + b"".join(rest)
        scanner = sse.Scanner(False)
        for part in data.draw(_cuts(stream)):
            scanner.feed(part)
        assert scanner.error_code == want
