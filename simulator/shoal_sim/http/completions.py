"""POST /v1/completions. Unlike in a chat, the last content event of a stream carries the finish reason."""

import time
from dataclasses import dataclass
from typing import Any

from shoal_sim.http import bodies, errors, failures, intake, logprobs, usage
from shoal_sim.http.asgi import Exchange, sse
from shoal_sim.request import Request
from shoal_sim.runtime import Runtime
from shoal_sim.tokens import bytes_of, ids_of, text_of

DEFAULT_MAX_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Extras:
    usage: bool
    usage_always: bool
    echo: bool
    token_ids: bool
    logprobs: int | None


async def serve(runtime: Runtime, exchange: Exchange) -> None:
    data = await exchange.body()
    bodies.require_json_type(exchange.headers.get("content-type"))
    body = bodies.parse_object(data)
    if "prompt" not in body:
        raise errors.missing("prompt", body)
    prompts = _prompts(body["prompt"])
    model = intake.check_model(body)
    intake.check_headers(exchange)
    max_tokens = bodies.integer(body, "max_tokens", DEFAULT_MAX_TOKENS)
    asked = intake.terms(runtime, body, max_tokens)
    extras = _extras(runtime, body)
    requests = intake.make_requests(runtime, prompts, asked)
    for request in requests:
        problem = intake.check_length(runtime, request.prompt.tokens, max_tokens)
        if problem:
            raise errors.flat(problem)
    async with intake.submitted(runtime, exchange, requests, text=_is_text(body["prompt"])):
        if asked.stream:
            await _stream(runtime, exchange, requests, asked.choices, model, extras)
        else:
            await intake.finished(requests)
            failures.raise_if_failed(requests)
            await exchange.reply_json(_completion(runtime, requests, asked.choices, model, extras))


def _prompts(prompt: Any) -> list[bytes]:
    """A text, a list of texts, a list of ids, or a list of lists of ids."""
    if isinstance(prompt, str):
        return [prompt.encode("utf-8", "surrogatepass")]
    if isinstance(prompt, list) and prompt:
        if all(isinstance(item, str) for item in prompt):
            return [item.encode("utf-8", "surrogatepass") for item in prompt]
        if all(type(item) is int for item in prompt):
            return [bytes_of(prompt)]
        if all(isinstance(item, list) for item in prompt):
            return [bytes_of(item) for item in prompt]
    raise errors.invalid("string_type", ("prompt", "str"), "Input should be a valid string", prompt)


def _is_text(prompt: Any) -> bool:
    return isinstance(prompt if isinstance(prompt, str) else prompt[0], str)


def _extras(runtime: Runtime, body: dict[str, Any]) -> Extras:
    options = body.get("stream_options")
    stream_options = options if isinstance(options, dict) else {}
    return Extras(
        usage=bodies.boolean(stream_options, "include_usage", runtime.settings.stream_usage_default),
        usage_always=bodies.boolean(stream_options, "continuous_usage_stats"),
        echo=bodies.boolean(body, "echo"),
        token_ids=bodies.boolean(body, "return_token_ids"),
        logprobs=bodies.integer(body, "logprobs"),
    )


def _completion(runtime: Runtime, requests: list[Request], choices: int, model: str, extras: Extras) -> dict[str, Any]:
    return {
        "id": requests[0].rid,
        "object": "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": [_choice(request, index, extras) for index, request in enumerate(requests)],
        "usage": usage.block(requests, choices, runtime.settings.cache_report),
        "metadata": usage.metadata(requests[0]),
    }


def _choice(request: Request, index: int, extras: Extras) -> dict[str, Any]:
    assert request.finish is not None
    choice: dict[str, Any] = {
        "index": index,
        "text": (_prompt_text(request) if extras.echo else "") + "".join(request.output),
        "logprobs": _logprobs(request.output, extras),
        "finish_reason": request.finish.kind,
        "matched_stop": request.finish.matched,
    }
    if extras.token_ids:
        choice["token_ids"] = usage.output_ids(request)
        choice["prompt_token_ids"] = ids_of(request.prompt.data)
    return choice


def _prompt_text(request: Request) -> str:
    return text_of(ids_of(request.prompt.data))


def _logprobs(tokens: list[str], extras: Extras) -> dict[str, Any] | None:
    return None if extras.logprobs is None else logprobs.completion(tokens, extras.logprobs)


class _Stream:
    """Events of one choice."""

    __slots__ = ("_extras", "_head", "_report", "_sent", "ended", "index", "request")

    def __init__(self, request: Request, index: int, head: dict[str, Any], extras: Extras, report: bool) -> None:
        self.request = request
        self.index = index
        self.ended = False
        self._head = head
        self._extras = extras
        self._report = report
        self._sent = 0

    def news(self) -> bytes | None:
        """One event for everything since the last call; the last one carries the finish reason."""
        request, finish, extras = self.request, self.request.finish, self._extras
        self.ended = finish is not None
        if finish is not None and finish.failed:
            return failures.event(finish)
        start, self._sent = self._sent, len(request.output)
        new = request.output[start:]
        if not new and finish is None:
            return None
        choice: dict[str, Any] = {
            "index": self.index,
            "text": (_prompt_text(request) if extras.echo and start == 0 else "") + "".join(new),
            "logprobs": _logprobs(new, extras),
            "finish_reason": finish.kind if finish else None,
            "matched_stop": finish.matched if finish else None,
        }
        if extras.token_ids:
            choice["token_ids"] = usage.output_ids(request, start)
            if start == 0:
                choice["prompt_token_ids"] = ids_of(request.prompt.data)
        block = usage.block([request], 1, self._report) if extras.usage_always else None
        return sse({"id": request.rid, **self._head, "choices": [choice], "usage": block})


async def _stream(
    runtime: Runtime, exchange: Exchange, requests: list[Request], choices: int, model: str, extras: Extras
) -> None:
    report = runtime.settings.cache_report
    head: dict[str, Any] = {"object": "text_completion", "created": int(time.time()), "model": model}
    streams = [_Stream(request, index, head, extras, report) for index, request in enumerate(requests)]
    signal = requests[0].signal
    while not any(request.output or request.finish for request in requests):
        await signal.wait()
    await exchange.start_events()
    open_streams = list(streams)
    while open_streams:
        fresh = False
        for stream in open_streams:
            event = stream.news()
            if event is not None:
                await exchange.event(event)
                fresh = True
        open_streams = [stream for stream in open_streams if not stream.ended]
        if open_streams and not fresh:
            await signal.wait()
    if extras.usage and not any(r.finish and r.finish.failed for r in requests):
        block = usage.block(requests, choices, report)
        del block["completion_tokens_details"]
        await exchange.event(sse({"id": requests[-1].rid, **head, "choices": [], "usage": block}))
    await exchange.end_events()
