"""POST /v1/chat/completions.

Order of a stream's events, as captured: role, content..., finish of each choice, sglext, usage, [DONE]. Nothing is
sent before the first token exists, so a request that the engine refuses is told from one that it serves by its first
event.
"""

import time
from dataclasses import dataclass
from typing import Any

import orjson

from shoal_sim import chat_template
from shoal_sim.http import bodies, errors, failures, intake, logprobs, usage
from shoal_sim.http.asgi import Exchange
from shoal_sim.request import Request
from shoal_sim.runtime import Runtime
from shoal_sim.tokens import bytes_of, ids_of

ROUTE_OBJECT = "chat.completion"
CHUNK_OBJECT = "chat.completion.chunk"


@dataclass(frozen=True, slots=True)
class Extras:
    """What the caller wants to see beside the text."""

    usage: bool
    usage_always: bool
    input_ids: bool
    output_ids: bool
    cached_details: bool
    meta_info: bool
    token_ids: bool
    logprobs: bool
    top_logprobs: int


async def serve(runtime: Runtime, exchange: Exchange) -> None:
    data = await exchange.body()
    bodies.require_json_type(exchange.headers.get("content-type"))
    # A body that is valid JSON but no object makes the engine fail, here and only here.
    body = bodies.parse_object(data, not_object=errors.internal())
    bodies.check_messages(body)
    model = intake.check_model(body)
    intake.check_headers(exchange)
    max_tokens = _max_tokens(runtime, body)
    asked = intake.terms(runtime, body, max_tokens)
    extras = _extras(runtime, exchange, body)
    if extras.token_ids and asked.stream:
        raise errors.flat(
            "return_token_ids is not supported with streaming on /v1/chat/completions. "
            "Please set stream=false when using return_token_ids=true.",
            "BadRequest",
        )
    ids = bodies.integers(body, "input_ids")
    prompt = bytes_of(ids) if ids else chat_template.render(body)
    requests = intake.make_requests(runtime, [prompt], asked)
    problem = intake.check_length(runtime, requests[0].prompt.tokens, max_tokens)
    if problem:
        raise errors.flat(problem)
    async with intake.submitted(runtime, exchange, requests, text=not ids):
        if asked.stream:
            await _stream(runtime, exchange, requests, model, extras)
        else:
            await intake.finished(requests)
            failures.raise_if_failed(requests)
            await exchange.reply_json(_completion(runtime, requests, model, extras))


def _max_tokens(runtime: Runtime, body: dict[str, Any]) -> int | None:
    value = bodies.integer(body, "max_completion_tokens", bodies.integer(body, "max_tokens"))
    most = runtime.settings.context_length
    if value is not None and value > most:
        raise errors.flat(
            f"max_completion_tokens is too large: {value}.This model supports at most {most} completion tokens."
        )
    return value


def _extras(runtime: Runtime, exchange: Exchange, body: dict[str, Any]) -> Extras:
    options = body.get("stream_options")
    stream_options = options if isinstance(options, dict) else {}
    args, headers = runtime.settings.server_args, exchange.headers

    def ids(direction: str) -> bool:
        header = headers.get(f"x-sglext-return-{direction}-ids") == "1"
        return header or bodies.boolean(body, f"return_{direction}_ids_in_sglext") or args[f"return_{direction}_ids"]

    return Extras(
        usage=bodies.boolean(stream_options, "include_usage", runtime.settings.stream_usage_default),
        usage_always=bodies.boolean(stream_options, "continuous_usage_stats"),
        input_ids=ids("input"),
        output_ids=ids("output"),
        cached_details=bodies.boolean(body, "return_cached_tokens_details"),
        meta_info=bodies.boolean(body, "return_meta_info"),
        token_ids=bodies.boolean(body, "return_token_ids"),
        logprobs=bodies.boolean(body, "logprobs"),
        top_logprobs=bodies.integer(body, "top_logprobs", 0) or 0,
    )


def _completion(runtime: Runtime, requests: list[Request], model: str, extras: Extras) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "id": requests[0].rid,
        "object": ROUTE_OBJECT,
        "created": int(time.time()),
        "model": model,
        "choices": [_choice(request, index, extras) for index, request in enumerate(requests)],
        "usage": usage.block(requests, len(requests), runtime.settings.cache_report),
        "metadata": usage.metadata(requests[0]),
    }
    sglext = _sglext(requests, extras)
    if sglext:
        answer["sglext"] = sglext
    return answer


def _choice(request: Request, index: int, extras: Extras) -> dict[str, Any]:
    finish = request.finish
    assert finish is not None
    choice: dict[str, Any] = {
        "index": index,
        "message": {"role": "assistant", "content": "".join(request.output), "reasoning_content": None},
        "logprobs": logprobs.chat(request.output, extras.top_logprobs) if extras.logprobs else None,
        "finish_reason": finish.kind,
        "matched_stop": finish.matched,
    }
    if extras.meta_info:
        choice["meta_info"] = usage.meta_info(request)
    if extras.token_ids:
        choice["prompt_token_ids"] = ids_of(request.prompt.data)
        choice["response_token_ids"] = usage.output_ids(request)
    return choice


def _sglext(requests: list[Request], extras: Extras) -> dict[str, Any]:
    block: dict[str, Any] = {}
    if extras.cached_details and requests[0].cached_tokens:
        block["cached_tokens_details"] = usage.cached_details(requests[0])
    if extras.input_ids:
        block["input_ids"] = ids_of(requests[0].prompt.data)
    if extras.output_ids:
        block["output_ids"] = [usage.output_ids(request) for request in requests]
    return block


class _Stream:
    """Bytes of one choice's events. Only the pieces that differ from event to event are put together anew."""

    __slots__ = ("_extras", "_greeted", "_head", "_opening", "_report", "_sent", "ended", "index", "request")

    def __init__(self, request: Request, index: int, head: str, extras: Extras, report: bool) -> None:
        self.request = request
        self.index = index
        self.ended = False
        self._sent = 0
        self._greeted = False
        self._extras = extras
        self._report = report
        self._head = head
        self._opening = f'{head}"choices":[{{"index":{index},"delta":{{"reasoning_content":null,"content":"'

    def news(self) -> list[bytes]:
        """Events for what has happened since the last call, but for the finish."""
        request, events = self.request, []
        if request.finish is not None and request.finish.failed:
            self.ended = True
            return [failures.event(request.finish)]
        if not self._greeted and (request.output or request.finish is not None):
            self._greeted = True
            events.append(self._role())
        if len(request.output) > self._sent:
            content = self._content()
            if content is not None:
                events.append(content)
        self.ended = request.finish is not None
        return events

    def _role(self) -> bytes:
        return (
            f'{self._head}"choices":[{{"index":{self.index},"delta":{{"reasoning_content":null,"role":"assistant",'
            '"content":""},"logprobs":null,"finish_reason":null,"matched_stop":null}]}\n\n'
        ).encode()

    def _content(self) -> bytes | None:
        """All tokens since the last event in one; their text needs no escaping."""
        output, extras, start = self.request.output, self._extras, self._sent
        self._sent = len(output)
        text = "".join(output[start:])
        if not text:
            return None
        if not (extras.logprobs or extras.usage_always):
            return (
                f'{self._opening}{text}"}},"logprobs":null,"finish_reason":null,"matched_stop":null}}]}}\n\n'
            ).encode()
        shown = logprobs.chat(output[start:], extras.top_logprobs) if extras.logprobs else None
        event = f'{self._opening}{text}"}},"logprobs":{orjson.dumps(shown).decode()}'
        event += ',"finish_reason":null,"matched_stop":null}]'
        if extras.usage_always:
            block = usage.block([self.request], 1, self._report)
            event += f',"usage":{orjson.dumps(block).decode()}'
        return f"{event}}}\n\n".encode()

    def finish(self) -> bytes:
        end = self.request.finish
        assert end is not None
        matched = orjson.dumps(end.matched).decode()
        return (
            f'{self._head}"choices":[{{"index":{self.index},"delta":{{"reasoning_content":null}},"logprobs":null,'
            f'"finish_reason":"{end.kind}","matched_stop":{matched}}}]}}\n\n'
        ).encode()


async def _stream(runtime: Runtime, exchange: Exchange, requests: list[Request], model: str, extras: Extras) -> None:
    created = int(time.time())
    report = runtime.settings.cache_report
    heads = [_chunk_head(request.rid, created, model) for request in requests]
    streams = [_Stream(r, i, heads[i], extras, report) for i, r in enumerate(requests)]
    signal = requests[0].signal
    open_streams = list(streams)
    while not any(request.output or request.finish for request in requests):
        await signal.wait()
    await exchange.start_events()
    while open_streams:
        fresh = False
        for stream in open_streams:
            for event in stream.news():
                await exchange.event(event)
                fresh = True
        open_streams = [stream for stream in open_streams if not stream.ended]
        # More may have come while this was being sent.
        if open_streams and not fresh:
            await signal.wait()
    for event in _closing(streams, heads[-1], extras, report):
        await exchange.event(event)
    await exchange.end_events()


def _closing(streams: list[_Stream], head: str, extras: Extras, report: bool) -> list[bytes]:
    """The events after the content, but for [DONE]."""
    requests = [stream.request for stream in streams]
    events = [stream.finish() for stream in streams if stream.request.finish and not stream.request.finish.failed]
    sglext = _sglext(requests, extras) if events else {}
    if sglext:
        events.append(f'{head}"choices":[],"usage":null,"sglext":{orjson.dumps(sglext).decode()}}}\n\n'.encode())
    if extras.usage:
        block = usage.block(requests, len(requests), report)
        events.append(f'{head}"choices":[],"usage":{orjson.dumps(block).decode()}}}\n\n'.encode())
    return events


def _chunk_head(rid: str, created: int, model: str) -> str:
    names = f'"id":{orjson.dumps(rid).decode()},"object":"{CHUNK_OBJECT}","created":{created}'
    return f'data: {{{names},"model":{orjson.dumps(model).decode()},'
