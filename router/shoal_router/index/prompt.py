"""Canonical bytes of a parsed request body: tools, then messages, as a chat template orders them. Once a request.

Bytes, not JSON: what a template never shows (cache markers, ids of calls, the order of keys, a string against a list
of one text part) must not break a prefix, and what it shows must be in order. Bodies are assumed to have passed the
server's checks; a field of the wrong type is left out of the prefix, never an error.
"""

import array
import contextlib
from collections.abc import Iterable
from typing import Any

import orjson
import xxhash

from shoal_router import model

_TOOLS = b"\x01tools\x02"
_MESSAGE = b"\x01"
_CONTENT = b"\x02"
_CALL = b"\x03"
_THOUGHT = b"\x04"
_MEDIA = b"\x05"
_MEDIA_REPEATS = 64
"""An image or sound is its 16-byte digest so many times: 1 KiB, so that it weighs something in the prefix."""

BYTES_PER_ID = 4


def chat(body: dict[str, Any]) -> model.Prompt:
    """Prompt of a `/v1/chat/completions` body."""
    parts: list[bytes] = []
    tools = body.get("tools")
    if tools:
        parts += (_TOOLS, _json(tools))
    messages = body.get("messages")
    if isinstance(messages, list):
        for message in messages:
            if isinstance(message, dict):
                _add_message(parts, message)
    return model.Prompt(data=b"".join(parts), salt=_salt(body))


def completion(body: dict[str, Any]) -> model.Prompt:
    """Prompt of a `/v1/completions` body: text, ids, or a batch of either (the first one is the prefix)."""
    return _flat(body.get("prompt"), _salt(body))


def generate(body: dict[str, Any]) -> model.Prompt:
    """Prompt of a `/generate` body: `text` or `input_ids`, single or batch."""
    text = body.get("text")
    return _flat(body.get("input_ids") if text is None else text, _salt(body))


def _flat(prompt: object, salt: int) -> model.Prompt:
    if isinstance(prompt, str):
        return model.Prompt(data=_utf8(prompt), salt=salt)
    if not isinstance(prompt, list) or not prompt:
        return model.Prompt(data=b"", salt=salt)
    first = prompt[0]
    if isinstance(first, int):
        data = _ids(prompt)
        return model.Prompt(data=data, tokens=len(prompt), salt=salt)
    if isinstance(first, list):
        rest = sum(len(ids) for ids in prompt[1:] if isinstance(ids, list)) * BYTES_PER_ID
        return model.Prompt(data=_ids(first), tokens=len(first), rest_bytes=rest, salt=salt)
    rest = sum(len(text) for text in prompt[1:] if isinstance(text, str))
    return model.Prompt(data=_utf8(first) if isinstance(first, str) else b"", rest_bytes=rest, salt=salt)


def _ids(ids: Iterable[object]) -> bytes:
    """Four bytes a token; ids that are no unsigned 32-bit integers end the prefix."""
    packed = array.array("I")
    with contextlib.suppress(TypeError, OverflowError):  # what came before the first odd id is still a prefix
        packed.extend(ids)  # type: ignore[arg-type]
    return packed.tobytes()


def _add_message(parts: list[bytes], message: dict[str, Any]) -> None:
    role = message.get("role")
    parts.append(_MESSAGE)
    parts.append(_utf8(role) if isinstance(role, str) else b"")
    thought = message.get("reasoning_content")
    if isinstance(thought, str) and thought:
        parts += (_THOUGHT, _utf8(thought))
    content = message.get("content")
    parts.append(_CONTENT)
    if isinstance(content, str):
        parts.append(_utf8(content))
    elif isinstance(content, list):
        for part in content:
            _add_part(parts, part)
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        for call in calls:
            _add_call(parts, call)


def _add_part(parts: list[bytes], part: object) -> None:
    if isinstance(part, str):
        parts.append(_utf8(part))
    elif isinstance(part, dict):
        text = part.get("text")
        if isinstance(text, str):
            parts.append(_utf8(text))
            return
        media = {key: value for key, value in part.items() if key != "cache_control"}
        parts += (_MEDIA, xxhash.xxh3_128_digest(_json(media)) * _MEDIA_REPEATS)


def _add_call(parts: list[bytes], call: object) -> None:
    function = call.get("function") if isinstance(call, dict) else None
    if isinstance(function, dict):
        name, arguments = function.get("name"), function.get("arguments")
        parts += (_CALL, _utf8(name) if isinstance(name, str) else b"", _CONTENT)
        parts.append(_utf8(arguments) if isinstance(arguments, str) else _json(arguments))


def _salt(body: dict[str, Any]) -> int:
    """Engines keep caches apart by salt and by adapter (`model: "base:adapter"` or `lora_path`)."""
    name = body.get("model")
    adapter = name.partition(":")[2] if isinstance(name, str) else ""
    parts = [body.get("cache_salt"), body.get("extra_key"), body.get("lora_path"), adapter]
    named = [part for part in parts if isinstance(part, str) and part]
    return xxhash.xxh3_64_intdigest("\x00".join(named).encode("utf-8", "surrogatepass")) if named else 0


def _json(value: object) -> bytes:
    """Empty where the value is nested too deep to be written: orjson reads deeper than it writes."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return b""


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
