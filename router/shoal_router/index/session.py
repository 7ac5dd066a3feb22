"""The session key of a request: what a harness sends, in the configured order, else the start of the conversation.

Keys are 64-bit hashes, so that the table is bounded in bytes and no client's text is kept.
"""

from collections.abc import Iterable
from typing import Any

import xxhash

from shoal_router import model

PARENT_HEADERS = ("x-parent-session-id", "x-claude-code-parent-agent-id", "x-claude-code-parent-session-id")
"""Session id of the agent that started this one; the first turn of a sub-agent follows it."""

BODY_KEYS = ("prompt_cache_key", "session_id", "metadata.user_id", "user")
_BODY_FIELDS = tuple((name, name.partition(".")[0]) for name in BODY_KEYS)
_START_BYTES = 4096
"""So much of each first message makes the fallback key."""


def find(headers: dict[str, str], body: dict[str, Any], order: Iterable[str], prompt: model.Prompt) -> model.Session:
    """Session of a request; `headers` have lower-case names. Never fails: the last rule always gives a key."""
    if headers:
        for name in order:
            value = headers.get(name)
            if value:
                return model.Session(_hash(value), name)
    for name, key in _BODY_FIELDS:
        if key in body:
            value = _body_value(body, name)
            if value:
                return model.Session(_hash(value), name)
    return model.Session(_start(body, prompt), "start")


def parent(headers: dict[str, str]) -> int | None:
    """Key of the parent's session, if the harness names one."""
    for name in PARENT_HEADERS if headers else ():
        value = headers.get(name)
        if value:
            return _hash(value)
    return None


def _body_value(body: dict[str, Any], name: str) -> str:
    if name == "metadata.user_id":
        metadata = body.get("metadata")
        value = metadata.get("user_id") if isinstance(metadata, dict) else None
    else:
        value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return ""
    return str(value)


def _start(body: dict[str, Any], prompt: model.Prompt) -> int:
    """Hash of the first system and first user message; of the prompt's start where there are no messages."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return xxhash.xxh3_64_intdigest(memoryview(prompt.data)[:_START_BYTES], prompt.salt)
    value = prompt.salt
    for roles in (("system", "developer"), ("user",)):
        for message in messages:
            if isinstance(message, dict) and message.get("role") in roles:
                value = xxhash.xxh3_64_intdigest(_text(message.get("content")), value)
                break
    return value


def _text(content: object) -> bytes:
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "".join(text for text in texts if isinstance(text, str))
    return content[:_START_BYTES].encode("utf-8", "surrogatepass") if isinstance(content, str) else b""


def _hash(value: str) -> int:
    return xxhash.xxh3_64_intdigest(value.encode("utf-8", "surrogatepass"))
