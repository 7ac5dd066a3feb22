"""A spliced body parses to what the edit says and keeps every other byte."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_router.dispatch import splice

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
_KEYS = st.text(max_size=8) | st.sampled_from(["model", "rid", 'a"b', "a\\", "{", "mod\u00e9l"])
_OBJECTS = st.dictionaries(_KEYS, _VALUES, min_size=1, max_size=6)
_SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")])


@settings(max_examples=60)
@given(_OBJECTS, st.data(), _SEPARATORS, st.booleans(), _VALUES)
def test_value_is_replaced_and_the_rest_kept(
    doc: dict[str, Any], data: st.DataObject, separators: tuple[str, str], ascii_only: bool, value: Any
) -> None:
    key = data.draw(st.sampled_from(sorted(doc)))
    body = json.dumps(doc, separators=separators, ensure_ascii=ascii_only).encode()
    new = json.dumps(value).encode()
    edited = splice.with_value(body, key, new)
    assert json.loads(edited) == {**doc, key: value}
    span = splice.value_span(body, key)
    assert span is not None
    assert edited == body[: span[0]] + new + body[span[1] :]


@settings(max_examples=60)
@given(_OBJECTS, _SEPARATORS)
def test_fields_go_first(doc: dict[str, Any], separators: tuple[str, str]) -> None:
    body = b" \n" + json.dumps(doc, separators=separators).encode()
    parts = splice.with_fields(body, b'"\xc2\xa7new":[1,{"x":2}]')
    assert json.loads(b"".join(parts)) == {"\u00a7new": [1, {"x": 2}], **doc}
    assert parts[1] == body[body.index(b"{") + 1 :]


@settings(max_examples=60)
@given(_OBJECTS)
def test_absent_key_has_no_span(doc: dict[str, Any]) -> None:
    assert splice.value_span(json.dumps({"outer": doc}).encode(), "no such key") is None


def test_last_of_repeated_keys_is_replaced() -> None:
    body = b'{"model":"a","x":{"model":"b"},"model":"c"}'
    assert splice.with_value(body, "model", b'"d"') == b'{"model":"a","x":{"model":"b"},"model":"d"}'
