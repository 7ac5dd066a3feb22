"""Requests that the benchmark sends: small chats, 350 KB prompts as sessions send them, and streams. Pure.

No two requests of a run are alike, since routers remember prompts. A small chat has the common system prompt and a
question of its own. A long prompt is one of eight conversations of 348 KB, followed by a new message of 2 KB: what
comes from a session's next turn, most of it seen before. Text is made of words with a fixed seed.
"""

import functools
import json
import random
from dataclasses import dataclass
from typing import Final

from shoal_bench.router import answers

LONG_BYTES: Final = 350_000
SESSIONS: Final = 8
TURN_BYTES: Final = 8_000
NEW_BYTES: Final = 2_000
COUNTER_DIGITS: Final = 8
_MARK: Final = "#" * COUNTER_DIGITS
_SEED: Final = 7


@dataclass(frozen=True, slots=True)
class Template:
    """A body with a hole for a number of eight digits."""

    before: bytes
    after: bytes

    @property
    def body_bytes(self) -> int:
        return len(self.before) + COUNTER_DIGITS + len(self.after)

    def head(self, authority: str) -> bytes:
        return (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {self.body_bytes}\r\n\r\n"
        ).encode()

    def request(self, authority: str, number: int) -> bytes:
        """The whole request with this number in it."""
        return b"".join((self.head(authority), self.before, b"%0*d" % (COUNTER_DIGITS, number), self.after))


def small() -> list[Template]:
    """Chats of about 220 bytes."""
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": f"Order {_MARK}: where is it now, and when will it arrive?"},
    ]
    return [_template(messages, {"max_tokens": 1, "temperature": 0})]


def long(*, stream_tokens: int = 0) -> list[Template]:
    """Prompts of 350 KB, one template a session; with `stream_tokens` they ask for a stream of so many tokens."""
    fields: dict[str, object] = {"max_tokens": max(1, stream_tokens), "temperature": 0}
    if stream_tokens:
        fields["stream"] = True
    return [_template(_conversation(number), fields) for number in range(SESSIONS)]


def paced(tokens: int, gap_ms: int) -> Template:
    """A small chat that asks for a stream of `tokens`, one every `gap_ms`."""
    fields: dict[str, object] = {"max_tokens": tokens, "temperature": 0, "seed": gap_ms, "stream": True}
    messages = [{"role": "user", "content": f"Story {_MARK}, please."}]
    return _template(messages, fields)


@functools.cache
def _conversation(session: int) -> list[dict[str, str]]:
    rng = random.Random(_SEED + session)
    messages = [{"role": "system", "content": _text(rng, TURN_BYTES)}]
    size = len(json.dumps(messages))
    while size < LONG_BYTES - NEW_BYTES - TURN_BYTES:
        role = "user" if len(messages) % 2 else "assistant"
        messages.append({"role": role, "content": _text(rng, TURN_BYTES)})
        size += TURN_BYTES + 40
    messages.append({"role": "assistant", "content": _text(rng, max(1, LONG_BYTES - NEW_BYTES - size - 240))})
    messages.append({"role": "user", "content": f"{_MARK} {_text(rng, NEW_BYTES)}"})
    return messages


def _template(messages: list[dict[str, str]], fields: dict[str, object]) -> Template:
    text = json.dumps({"model": answers.MODEL, "messages": messages, **fields}, separators=(",", ":")).encode()
    before, mark, after = text.partition(_MARK.encode())
    assert mark
    return Template(before, after)


def _text(rng: random.Random, size: int) -> str:
    """Words in lines; as long as asked for once it is JSON, but for a few bytes."""
    made: list[str] = []
    length = 0
    while length < size:
        word = "".join(rng.choices("abcdefghiklmnoprstuvw", k=rng.randint(2, 9)))
        made.append(word + ("\n" if rng.random() < 0.08 else " "))
        length += len(word) + (2 if made[-1].endswith("\n") else 1)
    return "".join(made)
