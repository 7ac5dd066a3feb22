"""Byte edits on a request body that is known to be a JSON object: add a field, replace a field's value.

The body is never serialised anew: what the client wrote is what the engine reads, but for the bytes edited here.
Used by dispatch.exchange when it sends a request.
"""

import re
from typing import Final

import orjson

_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]:,]', re.DOTALL)
_CACHED: Final = re.compile(rb'"cached_tokens"\s*:\s*(\d+)')
_CACHED_WHERE: Final = re.compile(rb'("cached_tokens_details"\s*:\s*)\{[^{}]*\}')
_QUOTE, _COLON, _COMMA = b'":,'
_OPEN: Final = frozenset(b"{[")
_CLOSE: Final = frozenset(b"}]")


def with_fields(body: bytes, fields: bytes) -> list[bytes | memoryview]:
    """Body with `fields` (b'"rid":"x"', comma separated) put first, as two parts so that a large body is not copied.
    The object must have at least one field of its own."""
    at = body.index(b"{") + 1
    return [b"{" + fields + b",", memoryview(body)[at:]]


def value_span(body: bytes, key: str) -> tuple[int, int] | None:
    """Offsets of the value of a top-level key, surrounding space included; of the last one where keys repeat, which is
    the one that JSON parsers keep."""
    depth = 0
    name = b""
    value_start = -1
    span: tuple[int, int] | None = None
    for match in _TOKEN.finditer(body):
        token = body[match.start()]
        if token == _QUOTE:
            if depth == 1 and value_start < 0:
                name = match[0]
        elif token in _OPEN:
            depth += 1
        elif token in _CLOSE:
            depth -= 1
            if depth == 0 and value_start >= 0 and _is_key(name, key):
                span = (value_start, match.start())
        elif depth == 1 and token == _COLON:
            value_start = match.end()
        elif depth == 1 and token == _COMMA:
            if _is_key(name, key):
                span = (value_start, match.start())
            value_start = -1
    return span


def with_value(body: bytes, key: str, value: bytes) -> bytes:
    """Body with the value of a top-level key replaced."""
    span = value_span(body, key)
    if span is None:
        raise KeyError(key)
    return b"".join((body[: span[0]], value, body[span[1] :]))


def with_cached_tokens(answer: bytes, tokens: int, computed: int) -> bytes:
    """An answer, or whole events of one, of a prompt of which slices computed the first so many tokens: it tells the
    count of cached tokens as it was before them, and not in which memory they are. A count above what they computed was
    there before. Quotes within strings are escaped, so the keys are never part of generated text."""
    found = _CACHED.search(answer) if answer.find(b'"cached_tokens"') >= 0 else None
    if found is None or int(found[1]) > computed or int(found[1]) == tokens:
        return answer
    return _CACHED_WHERE.sub(rb"\1null", _CACHED.sub(b'"cached_tokens":%d' % tokens, answer))


def _is_key(raw: bytes, key: str) -> bool:
    return bool(orjson.loads(raw) == key) if b"\\" in raw else raw[1:-1] == key.encode()
