"""POST /generate, the engine's native route: text or input_ids, one or a batch.

A stream's events carry the whole text so far. Errors have forms of their own (see `errors.nested`); a stream answers
200 even where the prompt is too long, and says so in its first event.
"""

import time
from dataclasses import dataclass
from typing import Any

from shoal_sim.http import bodies, errors, failures, intake, logprobs, usage
from shoal_sim.http.asgi import Exchange, sse
from shoal_sim.http.errors import ApiError
from shoal_sim.request import Limits, Request
from shoal_sim.runtime import Runtime
from shoal_sim.tokens import bytes_of, ids_of

SAMPLING_FIELDS = (
    "max_new_tokens", "stop", "stop_token_ids", "stop_regex", "temperature", "top_p", "top_k", "min_p",
    "frequency_penalty", "presence_penalty", "repetition_penalty", "min_new_tokens", "n", "json_schema", "regex",
    "ebnf", "structural_tag", "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim",
    "stream_interval", "logit_bias", "sampling_seed", "custom_params", "beam_width", "watermark", "choice",
)  # fmt: skip
DEFAULT_MAX_TOKENS = 128
TOP_LOGPROBS_MAX = 20
_NO_PROMPT = "Either text, input_ids or input_embeds should be provided."


@dataclass(frozen=True, slots=True)
class Call:
    prompts: list[bytes]
    text: bool
    """Prompts were given as text, not as ids."""
    batch: bool
    asked: intake.Terms
    max_tokens: int
    logprob: bool
    top_logprobs: int


async def serve(runtime: Runtime, exchange: Exchange) -> None:
    data = await exchange.body()
    body = _object(data, exchange.headers.get("content-type"))
    try:
        call = _call(runtime, body)
        requests = intake.make_requests(runtime, call.prompts, call.asked)
    except ApiError as error:
        raise _native(error) from error
    for request in requests:
        problem = intake.check_length(runtime, request.prompt.tokens, call.max_tokens)
        if problem:
            await _refuse(exchange, problem, call.asked.stream)
            return
    async with intake.submitted(runtime, exchange, requests, text=call.text):
        if call.asked.stream:
            await _stream(exchange, requests, call)
        else:
            await intake.finished(requests)
            failures.raise_if_failed(requests)
            answers = [_answer(request, call) for request in requests]
            await exchange.reply_json(answers if call.batch or call.asked.choices > 1 else answers[0])


def _object(data: bytes, content_type: str | None) -> dict[str, Any]:
    """Without a JSON content type the engine sees the body as bytes, which is no object."""
    kind, message = "dataclass_type", "Input should be a dictionary or an instance of GenerateReqInput"
    if data and (content_type or "").split(";")[0].strip().lower() != "application/json":
        raise errors.invalid(kind, (), message, data)
    value = bodies.parse(data)
    if not isinstance(value, dict):
        raise errors.invalid(kind, (), message, value)
    return value


def _native(error: ApiError) -> ApiError:
    """The route's own form of what a check of the OpenAI routes found."""
    message = error.body.get("message") if isinstance(error.body, dict) else None
    return errors.nested(message, error.status) if message is not None else error


def _call(runtime: Runtime, body: dict[str, Any]) -> Call:
    prompts, text, batch = _prompts(body)
    sampling = body.get("sampling_params") or {}
    if not isinstance(sampling, dict):
        raise ApiError(400, {"error": "Expected `object`, got another type - at `$.sampling_params`"})
    for name in sampling:
        if name not in SAMPLING_FIELDS:
            known = ", ".join(f"`{field}`" for field in SAMPLING_FIELDS)
            raise ApiError(400, {"error": f"unknown field `{name}`, expected one of {known}"})
    max_tokens = bodies.integer(sampling, "max_new_tokens", DEFAULT_MAX_TOKENS)
    assert max_tokens is not None
    if max_tokens < 0:
        raise errors.nested(f"max_new_tokens must be at least 0, got {max_tokens}.")
    bodies.check_sampling(bodies.decimal(sampling, "temperature", 1.0), bodies.decimal(sampling, "top_p", 1.0))
    rid, choices = body.get("rid"), bodies.integer(sampling, "n", 1) or 1
    if choices > intake.CHOICES_MAX:
        raise errors.nested(f"n must be at most {intake.CHOICES_MAX}, got {choices}.")
    asked = intake.Terms(
        limits=Limits(
            max_tokens,
            bodies.boolean(sampling, "ignore_eos"),
            bodies.strings(sampling, "stop"),
            frozenset(bodies.integers(sampling, "stop_token_ids")),
        ),
        rid=rid if isinstance(rid, str) else None,
        namespace=intake.namespace(body),
        priority=bodies.integer(body, "priority", 0) or 0,
        stream=bodies.boolean(body, "stream"),
        choices=max(1, choices),
    )
    logprob = bodies.boolean(body, "return_logprob")
    top = min(bodies.integer(body, "top_logprobs_num", 0) or 0, TOP_LOGPROBS_MAX)
    return Call(prompts, text, batch, asked, max_tokens, logprob, top)


def _prompts(body: dict[str, Any]) -> tuple[list[bytes], bool, bool]:
    """The prompts, whether they were texts, and whether the call is a batch."""
    text, ids = body.get("text"), body.get("input_ids")
    if isinstance(text, str):
        return [text.encode("utf-8", "surrogatepass")], True, False
    if isinstance(text, list) and text and all(isinstance(item, str) for item in text):
        return [item.encode("utf-8", "surrogatepass") for item in text], True, True
    if isinstance(ids, list) and ids:
        if isinstance(ids[0], list):
            return [bytes_of(item) for item in ids], False, True
        return [bytes_of(ids)], False, False
    raise errors.nested(_NO_PROMPT)


async def _refuse(exchange: Exchange, problem: str, stream: bool) -> None:
    if not stream:
        raise errors.nested(problem)
    await exchange.start_events()
    error = {"message": problem, "type": "invalid_request_error", "code": 400, "retryable": False}
    await exchange.event(sse({"error": error}))
    await exchange.end_events()


def _answer(request: Request, call: Call, sent_at: float | None = None) -> dict[str, Any]:
    ids = usage.output_ids(request)
    shown = _logprobs(request, ids, call.top_logprobs) if call.logprob and request.finish is not None else None
    return {
        "text": "".join(request.output),
        "output_ids": ids,
        "meta_info": usage.meta_info(request, sent_at, shown),
    }


def _logprobs(request: Request, ids: list[int], top: int) -> dict[str, Any]:
    prompt = ids_of(request.prompt.data)
    return {
        "input_token_logprobs": [[None, prompt[0], None], *logprobs.generate(prompt[1:])] if prompt else [],
        "output_token_logprobs": logprobs.generate(ids),
        "output_token_logprobs_length": len(ids),
        "input_top_logprobs": [None, *[logprobs.generate(prompt[:1] * top)] * (len(prompt) - 1)],
        "output_top_logprobs": [logprobs.generate(ids[:1] * top)] * len(ids),
    }


async def _stream(exchange: Exchange, requests: list[Request], call: Call) -> None:
    """The headers go out before the first token, as the engine's do on this route."""
    signal = requests[0].signal
    await exchange.start_events()
    sent = dict.fromkeys(range(len(requests)), -1)
    first_sent: dict[int, float] = {}
    while sent:
        for index in list(sent):
            request = requests[index]
            count = len(request.output)
            finish = request.finish
            if finish is None and count <= max(0, sent[index]):
                continue
            sent[index] = count
            first_sent.setdefault(index, time.time())
            answer = _answer(request, call, first_sent[index])
            await exchange.event(sse({**answer, "index": index} if len(requests) > 1 else answer))
            if finish is not None:
                del sent[index]
        news = any(requests[i].finish or len(requests[i].output) > max(0, n) for i, n in sent.items())
        if sent and not news:
            await signal.wait()
    await exchange.end_events()
