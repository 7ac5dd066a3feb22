"""The light engine: answers chat completions with canned bytes as fast as one core can, so that routers are measured.

    python -m shoal_bench.router.engine --port 30000

Reads of a request its length and three fields: `stream`; `max_tokens`, the tokens of a stream; and `seed`, the
milliseconds between two of them. These survive routers that serialise bodies anew. Streams of one pace step together,
as the requests of one batch do in a real engine. Nothing is checked: it is no server for anything but benchmarks.
`GET /counts` says how often each path was asked for.
"""

import argparse
import asyncio
import json
import re
from typing import Final, cast

import uvloop

from shoal_bench.router import answers

BYTES_PER_TOKEN: Final = 4
EDGE_BYTES: Final = 4096
"""Fields of a large body are looked for at its two ends: what makes it large is its messages."""

_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_CHUNKED: Final = re.compile(rb"(?i)\r\ntransfer-encoding: *chunked")
_STREAM: Final = (b'"stream":true', b'"stream": true')
_TOKENS: Final = re.compile(rb'"max_(?:completion_)?tokens": ?(\d+)')
_GAP: Final = re.compile(rb'"seed": ?(\d+)')
_USAGE: Final = re.compile(rb'"include_usage": ?true')
_CHAT: Final = b"POST /v1/chat/completions "


def _content_length(data: bytes, end: int) -> int:
    """-1 without one. Most clients write it one way, which is looked for first: a pattern costs microseconds."""
    at = data.find(b"ontent-Length: ", 0, end)
    if at < 0:
        at = data.find(b"ontent-length: ", 0, end)
    if at >= 0:
        return int(data[at + 15 : data.find(b"\r", at)])
    found = _LENGTH.search(data, 0, end + 2)
    return int(found[1]) if found else -1


class Steps:
    """One pace: a list of streams that all get a token at each step."""

    def __init__(self, loop: asyncio.AbstractEventLoop, gap_s: float) -> None:
        self._loop = loop
        self._gap_s = gap_s
        self._streams: list[Engine] = []
        self._next_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def join(self, stream: "Engine") -> None:
        self._streams.append(stream)
        if self._timer is None:
            self._next_s = self._loop.time() + self._gap_s
            self._timer = self._loop.call_at(self._next_s, self._step)

    def _step(self) -> None:
        self._streams = [one for one in self._streams if one.step()]
        if not self._streams:
            self._timer = None
            return
        # A step that is late is not made up for: engines that are late stay late.
        self._next_s = max(self._next_s + self._gap_s, self._loop.time())
        self._timer = self._loop.call_at(self._next_s, self._step)


class Counts(dict[bytes, int]):
    """Requests by path."""

    def add(self, path: bytes) -> None:
        self[path] = self.get(path, 0) + 1


class Engine(asyncio.Protocol):
    """One connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, paces: dict[int, Steps], counts: Counts) -> None:
        self._loop = loop
        self._paces = paces
        self._counts = counts
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        """Of a request whose head is not there yet, or of a chunked one."""
        self._first = b""
        self._missing = 0
        self._length = 0
        self._left = 0
        self._end = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are of no class of asyncio

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        if self._missing:
            self._missing -= len(data)
            if self._missing <= 0:
                self._missing = 0
                self._answer(self._first, data)
            return
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._buffer = data
            return
        length = _content_length(data, end)
        if length < 0:
            self._without_length(data, end)
            return
        self._length = length
        missing = length - (len(data) - end - 4)
        if missing <= 0:
            self._answer(data, b"")
        else:
            self._missing = missing
            self._first = data

    def _without_length(self, data: bytes, end: int) -> None:
        """No body, or one in chunks, which ends with an empty one; trailers are not expected."""
        if _CHUNKED.search(data, 0, end + 2) and not data.endswith(b"0\r\n\r\n"):
            self._buffer = data
            return
        self._length = len(data) - end - 4
        self._answer(data, b"")

    def _answer(self, first: bytes, last: bytes) -> None:
        """`first` holds the head, `last` the end of a body that came in several reads."""
        if first.startswith(_CHAT):
            self._chat(first, last)
        else:
            self._page(first)

    def _page(self, data: bytes) -> None:
        assert self._transport is not None
        words = data.split(b" ", 2)
        path = words[1].partition(b"?")[0]
        self._counts.add(path)
        if data.startswith(b"PRI "):
            self._transport.close()  # speaks HTTP/2 without having asked
        elif path == b"/counts":
            body = json.dumps({key.decode(): count for key, count in self._counts.items()}).encode()
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        else:
            self._transport.write(answers.page(path.decode()))

    def _chat(self, first: bytes, last: bytes) -> None:
        assert self._transport is not None
        counts = self._counts
        counts[b"chat"] = counts.get(b"chat", 0) + 1
        text = first if len(first) < 2 * EDGE_BYTES else first[:EDGE_BYTES] + first[-EDGE_BYTES:]
        if last:
            text += last[-EDGE_BYTES:]
        tokens = self._length // BYTES_PER_TOKEN
        if _STREAM[0] in text or _STREAM[1] in text:
            self._stream(text, tokens)
        else:
            self._transport.write(answers.completion(tokens))

    def _stream(self, text: bytes, prompt_tokens: int) -> None:
        assert self._transport is not None
        tokens = _TOKENS.search(text)
        gap = _GAP.search(text)
        self._left = int(tokens[1]) if tokens else 1
        self._end = answers.stream_end(prompt_tokens, self._left, _USAGE.search(text) is not None)
        gap_ms = int(gap[1]) if gap else 0
        if gap_ms == 0:
            self._transport.write(answers.STREAM_HEAD + answers.ROLE + answers.TOKEN * self._left + self._end)
            return
        self._transport.write(answers.STREAM_HEAD + answers.ROLE)
        steps = self._paces.get(gap_ms)
        if steps is None:
            steps = self._paces[gap_ms] = Steps(self._loop, gap_ms / 1000)
        steps.join(self)

    def step(self) -> bool:
        """Sends a token; false when there is no more."""
        if self._transport is None:
            return False
        self._left -= 1
        if self._left > 0:
            self._transport.write(answers.TOKEN)
            return True
        self._transport.write(answers.TOKEN + self._end)
        return False


async def serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    paces: dict[int, Steps] = {}
    counts = Counts()
    server = await loop.create_server(lambda: Engine(loop, paces, counts), "127.0.0.1", port, backlog=8192)
    async with server:
        await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
