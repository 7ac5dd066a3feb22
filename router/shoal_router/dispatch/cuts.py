"""How prefixes of a prompt are put to an engine: as token ids where there are any, else cut as text. Pure.

Any prefix will do: a cut in the wrong place costs the next slice a cache miss, never the client a wrong answer, since
the request itself goes last and unchanged. What decides which cache an engine looks in (salt, adapter) must be as in
the request. Made and used by dispatch.slicer.
"""

from typing import Any, Final

import orjson

from shoal_router.dispatch import api as apis
from shoal_router.dispatch.api import Api
from shoal_router.dispatch.outgoing import adapter

_ONE_TOKEN: Final = {"max_new_tokens": 1, "temperature": 0}
_GENERATE_KEPT: Final = ("lora_path", "extra_key", "cache_salt", "priority")
_COMPLETION_KEPT: Final = ("model", *_GENERATE_KEPT)
_CHAT_KEPT: Final = (*_COMPLETION_KEPT, "tools", "chat_template_kwargs", "reasoning_effort")
SALTS_APART: Final = (0, 5, 23)
"""From this version on `/generate` knows `cache_salt`. Before, the OpenAI routes put it in front of `extra_key`, and
whoever wants the same cache through `/generate` does so too."""


class Slice:
    """One prefix as a request: `body` for `path`."""

    __slots__ = ("body", "path", "tokens")

    def __init__(self, path: str, body: bytes, tokens: int) -> None:
        self.path = path
        self.body = body
        self.tokens = tokens
        """Exact with ids; with text the engine's count says how many there were."""


class Ids:
    """A prompt whose token ids are known."""

    exact: Final = True

    __slots__ = ("_fields", "_ids")

    def __init__(self, ids: list[int], doc: dict[str, Any], api: Api, served_name: str, version: str) -> None:
        self._ids = ids
        self._fields = _fields(doc, api, served_name, version)

    def cut(self, tokens: int, rid: str) -> Slice | None:
        """The first so many tokens."""
        doc = {
            **self._fields,
            "rid": rid,
            "stream": True,
            "sampling_params": _ONE_TOKEN,
            "input_ids": self._ids[:tokens],
        }
        return Slice("/generate", orjson.dumps(doc), tokens)


class Messages:
    """A chat that no tokenizer is asked about: cut where a message ends."""

    exact: Final = False

    __slots__ = ("_bytes", "_doc", "_sent", "_tokens")

    def __init__(self, doc: dict[str, Any], tokens: int) -> None:
        self._doc = _kept(doc, _CHAT_KEPT)
        if doc.get("tool_choice") == "none":
            self._doc["tool_choice"] = "none"
        self._tokens = tokens
        self._sent = 0
        total = len(orjson.dumps(doc["tools"])) if doc.get("tools") else 0
        self._bytes: list[tuple[int, dict[str, Any]]] = []
        """Where each message ends, and the message."""
        for message in doc["messages"]:
            total += len(orjson.dumps(message))
            self._bytes.append((total, message))

    def cut(self, tokens: int, rid: str) -> Slice | None:
        """As many messages as come nearest to so many tokens, and at least one more than before; None: there is no end
        of a message before the last."""
        total = self._bytes[-1][0]
        wanted = tokens * total / max(1, self._tokens)
        count = self._sent + 1
        while count < len(self._bytes) - 1 and self._bytes[count][0] <= wanted:
            count += 1
        if count >= len(self._bytes):
            return None
        self._sent = count
        messages = [message for _, message in self._bytes[:count]]
        doc = {**self._doc, "rid": rid, "stream": True, "max_tokens": 1, "temperature": 0, "messages": messages}
        doc["stream_options"] = {"include_usage": True}
        share = self._bytes[count - 1][0] / total
        return Slice("/v1/chat/completions", orjson.dumps(doc), int(share * self._tokens))


class Text:
    """A plain text that no tokenizer is asked about: cut behind a line, else a word, else anywhere."""

    exact: Final = False

    __slots__ = ("_doc", "_field", "_path", "_sent", "_text", "_tokens")

    def __init__(self, doc: dict[str, Any], api: Api, tokens: int) -> None:
        native = api is apis.GENERATE
        self._field = "text" if native else "prompt"
        self._path = "/generate" if native else "/v1/completions"
        self._doc = _kept(doc, _GENERATE_KEPT if native else _COMPLETION_KEPT)
        if native:
            self._doc["sampling_params"] = _ONE_TOKEN
        else:
            self._doc |= {"max_tokens": 1, "temperature": 0, "stream_options": {"include_usage": True}}
        self._text: str = doc[self._field]
        self._tokens = tokens
        self._sent = 0

    def cut(self, tokens: int, rid: str) -> Slice | None:
        size = len(self._text)
        at = min(size - 1, tokens * size // max(1, self._tokens))
        if at <= self._sent:
            return None
        for mark in ("\n", " "):
            found = self._text.rfind(mark, self._sent + (at - self._sent) // 2, at)
            if found > 0:
                at = found + 1
                break
        self._sent = at
        doc = {**self._doc, "rid": rid, "stream": True, self._field: self._text[:at]}
        return Slice(self._path, orjson.dumps(doc), at * self._tokens // size)


Cuts = Ids | Messages | Text


def of_ids(doc: dict[str, Any], api: Api, served_name: str, version: str) -> Ids | None:
    """The ids that the client gave; None where it gave text."""
    ids = doc.get("prompt") if api is apis.COMPLETIONS else doc.get("input_ids")
    return Ids(ids, doc, api, served_name, version) if isinstance(ids, list) else None


def of_text(doc: dict[str, Any], api: Api, tokens: int) -> Messages | Text:
    """For a prompt of about so many tokens whose ids cannot be had."""
    return Messages(doc, tokens) if api is apis.CHAT else Text(doc, api, tokens)


def tokenize_body(doc: dict[str, Any], api: Api) -> bytes:
    """What `/v1/tokenize` is asked: a chat with all its fields, since it renders it by the same ones, but that it does
    not stream (it answers 501 where it is asked to); a text alone."""
    if api is apis.CHAT:
        return orjson.dumps({name: value for name, value in doc.items() if name not in ("stream", "stream_options")})
    return orjson.dumps({"prompt": doc["text" if api is apis.GENERATE else "prompt"]})


def ids_of(answer: bytes) -> list[int] | None:
    """The ids in an answer of `/v1/tokenize`; None where it is none."""
    try:
        value = orjson.loads(answer)
    except orjson.JSONDecodeError:
        return None
    ids = value.get("tokens") if isinstance(value, dict) else None
    return ids if isinstance(ids, list) and ids and set(map(type, ids)) == {int} else None


def _fields(doc: dict[str, Any], api: Api, served_name: str, version: str) -> dict[str, Any]:
    """Of a request's fields those that its slices must have too, as `/generate` names them."""
    kept = _kept(doc, _GENERATE_KEPT)
    if api is not apis.GENERATE:
        named = adapter(doc.get("model"), served_name)
        if named is not None:
            kept["lora_path"] = named
        if "cache_salt" in kept and _numbers(version) < SALTS_APART:
            kept["extra_key"] = f"{kept.pop('cache_salt')}{kept.get('extra_key', '')}"
    return kept


def _kept(doc: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: doc[name] for name in names if doc.get(name) is not None}


def _numbers(version: str) -> tuple[int, ...]:
    """`0.5.17` as numbers; one that says nothing counts as new."""
    numbers = []
    for part in version.split(".")[:3]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers) or SALTS_APART
