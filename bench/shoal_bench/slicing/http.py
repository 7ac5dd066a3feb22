"""One streamed request: raw HTTP/1.1 on a connection of its own, chunks undone, events told apart, tokens timed.

A token event is one that brings output: of /generate one that counts at least one output token, of a chat one with
text. What precedes tokens (headers, the event with the role) is none. The answer's end is checked: so many tokens as
asked for, ended by their number, `[DONE]` at last; whatever else happens is an error in words. Called by `play`.
"""

import asyncio
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from shoal_bench.slicing.load import PATHS, Kind

READ_BYTES: Final = 1 << 18
HEAD_BYTES_MAX: Final = 64 << 10
_COUNTED: Final = re.compile(rb'"completion_tokens":\s*[1-9]')
_TEXT: Final = re.compile(rb'"content":\s*"(?!")')
_DONE: Final = b"[DONE]"


@dataclass(slots=True)
class Answer:
    """Seconds are of `time.monotonic`."""

    sent_s: float
    token_s: list[float] = field(default_factory=list)
    """When each token event came."""
    ended_s: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None


class BadAnswerError(Exception):
    """The answer is not what HTTP or the API lets one expect."""


class Chunks:
    """Undoes the chunked encoding of what `feed` is given, wherever it is cut."""

    def __init__(self) -> None:
        self._buffer = b""
        self._left = 0
        """Of the chunk under way, its line end included."""
        self.ended = False

    def feed(self, data: bytes) -> bytes:
        buffer, found = self._buffer + data, []
        while buffer and not self.ended:
            if self._left > 0:
                taken = buffer[: self._left]
                # The last two bytes of a chunk are its line end.
                found.append(taken[: max(0, self._left - 2)])
                buffer = buffer[len(taken) :]
                self._left -= len(taken)
                continue
            end = buffer.find(b"\r\n")
            if end < 0:
                break
            size = int(buffer[:end].split(b";")[0], 16)
            buffer = buffer[end + 2 :]
            self.ended = size == 0
            self._left = size + 2
        self._buffer = buffer
        return b"".join(found)


class Events:
    """Cuts a body into the data of its events."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, body: bytes) -> list[bytes]:
        *whole, self._buffer = (self._buffer + body).split(b"\n\n")
        return [one.removeprefix(b"data:").strip() for one in whole if one.startswith(b"data:")]


class Reader:
    """What the events of one answer say."""

    def __init__(self, kind: Kind, answer: Answer) -> None:
        self._kind, self._answer = kind, answer
        self._token = _COUNTED if kind == "ids" else _TEXT
        self._last: list[bytes] = []
        """The last three: a chat's reason to finish comes before its usage, and both before `[DONE]`."""
        self.done = False

    def take(self, event: bytes, at_s: float) -> None:
        if event == _DONE:
            self.done = True
            return
        if self._token.search(event):
            self._answer.token_s.append(at_s)
        self._last = [*self._last[-2:], event]

    def finish(self, asked_tokens: int) -> None:
        """Raises BadAnswerError unless the answer is whole."""
        last = [json.loads(one) for one in self._last]
        reason = None
        for one in last:
            if "error" in one:
                raise BadAnswerError(f"error event: {json.dumps(one['error'])[:200]}")
            reason = _reason(one) or reason
            self._use(one.get("meta_info") or one.get("usage") or {})
        if not self.done:
            raise BadAnswerError("the stream ended without [DONE]")
        if reason != "length" or self._answer.output_tokens != asked_tokens:
            raise BadAnswerError(f"{self._answer.output_tokens} of {asked_tokens} tokens, ended by {reason}")
        if not self._answer.token_s:
            raise BadAnswerError("no event with a token")

    def _use(self, usage: Mapping[str, Any]) -> None:
        if "completion_tokens" not in usage:
            return
        answer = self._answer
        answer.output_tokens, answer.prompt_tokens = usage["completion_tokens"], usage["prompt_tokens"]
        # An engine of 0.5.17 says null where nothing was cached.
        details = usage.get("prompt_tokens_details") or {}
        answer.cached_tokens = usage.get("cached_tokens", details.get("cached_tokens", 0))


def _reason(event: Mapping[str, Any]) -> str | None:
    found = (event.get("meta_info") or {}).get("finish_reason")
    if isinstance(found, dict):
        return str(found.get("type"))
    return next((str(one["finish_reason"]) for one in event.get("choices") or () if one.get("finish_reason")), None)


async def ask(
    host: str, port: int, kind: Kind, body: bytes, asked_tokens: int, headers: Mapping[str, str], deadline_s: float
) -> Answer:
    """Never raises for what the other side does: see `Answer.error`."""
    lines = [
        f"POST {PATHS[kind]} HTTP/1.1",
        f"Host: {host}:{port}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *(f"{name}: {text}" for name, text in headers.items()),
    ]
    request = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
    answer = Answer(sent_s=time.monotonic())
    writer = None
    try:
        async with asyncio.timeout(deadline_s):
            reader, writer = await asyncio.open_connection(host, port, limit=HEAD_BYTES_MAX)
            writer.write(request)
            await _read(reader, kind, answer, asked_tokens)
    except TimeoutError:
        answer.error = f"no end in {deadline_s:g} s"
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        answer.error = f"connection: {error!r}"
    except (BadAnswerError, ValueError, KeyError) as error:
        answer.error = str(error) or repr(error)
    finally:
        if writer is not None:
            writer.close()
    answer.ended_s = time.monotonic()
    return answer


async def _read(reader: asyncio.StreamReader, kind: Kind, answer: Answer, asked_tokens: int) -> None:
    status, headers = parse_head(await reader.readuntil(b"\r\n\r\n"))
    answer.headers = headers
    if status != 200:
        text = (await reader.read(READ_BYTES)).decode(errors="replace")
        raise BadAnswerError(f"HTTP {status}: {text[:200]}")
    chunks = Chunks() if headers.get("transfer-encoding", "").lower() == "chunked" else None
    events, said = Events(), Reader(kind, answer)
    while not (chunks is not None and chunks.ended):
        data = await reader.read(READ_BYTES)
        at_s = time.monotonic()
        if not data:
            break
        for event in events.feed(chunks.feed(data) if chunks is not None else data):
            said.take(event, at_s)
    said.finish(asked_tokens)


def parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    """Status, and headers by their names in small letters."""
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines:
        name, colon, text = line.partition(":")
        if colon:
            headers[name.strip().lower()] = text.strip()
    return int(first.split(" ")[1]), headers
