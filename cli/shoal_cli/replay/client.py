"""One request to the endpoint: sent, its stream followed to the end and checked, the result as an Outcome.

Never raises for what the endpoint does: that is counted. A stream must end with [DONE] or an error event and bring
exactly the tokens asked for. Retries are those the server asks for (429 or 503 with Retry-After), bounded in number
and time. Called by the drivers; the only module here that talks to the network.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import aiohttp
import orjson

from shoal_cli.replay import sse
from shoal_cli.replay.outcome import Ending, Outcome, Usage

RETRIED_STATUS = frozenset({429, 503})
CHUNK_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    url: str
    """Base address; `/v1/chat/completions` is appended."""
    headers: dict[str, str] = field(default_factory=dict)
    retries_max: int = 5
    retry_after_max_s: float = 30.0
    connect_s: float = 10.0
    silence_s: float = 120.0
    """Longest time without a byte from the server."""
    total_s: float = 900.0
    """Longest time for a request with its retries."""
    expected: Callable[[bytes], str] | None = None
    """From a request body, the answer that it must get (the simulator's); None leaves the text unchecked."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request with what the trace knows about it."""

    session: str
    body: bytes
    input_tokens: int
    bound_tokens: int
    output_tokens: int
    parent_session: str | None = None


@dataclass(slots=True)
class _Stream:
    """What was received so far."""

    status: int = 0
    replica: str = ""
    first_s: float | None = None
    last_s: float | None = None
    tokens: int = 0
    done: bool = False
    usage: Usage | None = None
    error: str = ""
    detail: str = ""
    text: list[str] = field(default_factory=list)


class Client:
    def __init__(self, session: aiohttp.ClientSession, settings: Settings, began_s: float) -> None:
        self._session = session
        self._settings = settings
        self._url = settings.url.rstrip("/") + "/v1/chat/completions"
        self._began_s = began_s

    async def send(self, call: Call) -> Outcome:
        started_s = time.monotonic()
        deadline_s = started_s + self._settings.total_s
        outcome = self.cancelled(call, started_s)
        retries = 0
        while True:
            stream = _Stream()
            pause_s: float | None = None
            try:
                pause_s = await self._attempt(call, stream, deadline_s)
            except TimeoutError:
                stream.error = "timeout"
                stream.detail = "no byte in time" if time.monotonic() < deadline_s else "not done in time"
            except sse.SseError as error:
                stream.error, stream.detail = "bad_stream", str(error)
            except aiohttp.ClientConnectorError as error:
                stream.error, stream.detail = "connect", str(error)
            except (aiohttp.ClientError, OSError) as error:
                begun = stream.first_s is not None
                stream.error, stream.detail = "stream_cut" if begun else "disconnected", str(error) or repr(error)
            can_retry = pause_s is not None and retries < self._settings.retries_max
            if pause_s is None or not can_retry or time.monotonic() + pause_s >= deadline_s:
                return self._judge(outcome, call, stream, started_s, retries)
            retries += 1
            await asyncio.sleep(pause_s)

    def cancelled(self, call: Call, started_s: float) -> Outcome:
        """The outcome of a request that the replay itself gave up."""
        return Outcome(
            Ending.CANCELLED,
            call.session,
            call.input_tokens,
            call.bound_tokens,
            call.output_tokens,
            started_s=started_s - self._began_s,
        )

    async def _attempt(self, call: Call, stream: _Stream, deadline_s: float) -> float | None:
        """Follows one attempt. Returns the pause that the server asks for before another one, or None."""
        settings = self._settings
        headers = {**settings.headers, "content-type": "application/json", "x-session-id": call.session}
        headers["x-shoal-explain"] = "1"
        if call.parent_session is not None:
            headers["x-parent-session-id"] = call.parent_session
        timeout = aiohttp.ClientTimeout(
            total=max(0.001, deadline_s - time.monotonic()),
            sock_connect=settings.connect_s,
            sock_read=settings.silence_s,
        )
        async with self._session.post(self._url, data=call.body, headers=headers, timeout=timeout) as response:
            stream.status = response.status
            stream.replica = response.headers.get("x-shoal-replica", "")
            if response.status != 200:
                stream.error = f"http_{response.status}"
                stream.detail = (await response.content.read(2000)).decode("utf-8", "replace")
                return self._pause_s(response)
            parser = sse.Parser()
            async for chunk in response.content.iter_chunked(CHUNK_BYTES_MAX):
                now_s = time.monotonic()
                for event in parser.feed(chunk):
                    self._event(event, stream, now_s)
            return None

    def _pause_s(self, response: aiohttp.ClientResponse) -> float | None:
        after = response.headers.get("Retry-After", "")
        if response.status not in RETRIED_STATUS or not after.isdecimal():
            return None
        return min(float(after), self._settings.retry_after_max_s)

    def _event(self, event: sse.Event, stream: _Stream, now_s: float) -> None:
        if event.data == sse.DONE:
            stream.done = True
            return
        try:
            value = orjson.loads(event.data)
        except orjson.JSONDecodeError:
            stream.error, stream.detail = "bad_stream", "an event is not JSON"
            return
        if event.name == "error" or "error" in value:
            error = value.get("error", value)
            kind = error.get("code") or error.get("type") if isinstance(error, dict) else None
            stream.error = f"event_{kind or 'error'}"
            stream.detail = str(error.get("message", "") if isinstance(error, dict) else error)[:500]
            return
        if value.get("usage"):
            stream.usage = _usage(value["usage"])
        for choice in value.get("choices") or ():
            delta = choice.get("delta") or {}
            text = (delta.get("reasoning_content") or "") + (delta.get("content") or "")
            if text:
                stream.first_s = stream.first_s if stream.first_s is not None else now_s
                stream.last_s = now_s
                stream.tokens += 1
                if self._settings.expected is not None:
                    stream.text.append(text)

    def _judge(self, outcome: Outcome, call: Call, stream: _Stream, started_s: float, retries: int) -> Outcome:
        error, detail = stream.error, stream.detail
        if not error:
            error, detail = _flaw(call, stream)
        if (
            not error
            and self._settings.expected is not None
            and "".join(stream.text) != self._settings.expected(call.body)
        ):
            error, detail = "wrong_text", "the answer is not what the simulator makes of this prompt"
        if not error:
            ending = Ending.COMPLETED
        elif stream.error.startswith("event_") and stream.first_s is not None:
            ending = Ending.ERROR_EVENT
        else:
            ending = Ending.FAILED
        return replace(_ended(outcome, stream, started_s, retries), ending=ending, error=error, detail=detail)


def _flaw(call: Call, stream: _Stream) -> tuple[str, str]:
    """What is wrong with a stream that ended without an error, as (kind, detail); empty strings if nothing is."""
    if not stream.done:
        return "no_end", "the stream ended without [DONE] and without an error event"
    if stream.usage is None:
        return "no_usage", "the stream ended without usage"
    got = stream.usage.completion_tokens
    if got != call.output_tokens:
        return "wrong_length", f"{got} tokens instead of {call.output_tokens}"
    return "", ""


def _usage(value: dict[str, object]) -> Usage:
    details = value.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    prompt, completion = value.get("prompt_tokens"), value.get("completion_tokens")
    return Usage(
        prompt_tokens=prompt if isinstance(prompt, int) else 0,
        completion_tokens=completion if isinstance(completion, int) else 0,
        cached_tokens=cached if isinstance(cached, int) else None,
    )


def _ended(outcome: Outcome, stream: _Stream, started_s: float, retries: int) -> Outcome:
    first_s, last_s = stream.first_s, stream.last_s
    return replace(
        outcome,
        retries=retries,
        ttft_s=None if first_s is None else first_s - started_s,
        decode_s=None if first_s is None or last_s is None else last_s - first_s,
        total_s=time.monotonic() - started_s,
        tokens_seen=stream.tokens,
        usage=stream.usage,
        replica=stream.replica,
    )
