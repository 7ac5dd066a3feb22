"""From an API call to scheduler requests: limits, cache namespace, choices, and following the caller's connection."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from shoal_sim.http import bodies, errors
from shoal_sim.http.asgi import Exchange
from shoal_sim.prompt import Prompt
from shoal_sim.request import Finish, Limits, Request, Signal
from shoal_sim.runtime import Runtime
from shoal_sim.scheduler import QUEUE_FULL

CHOICES_MAX = 1024
"""A limit of the simulator: the engine has none, and takes whatever memory that needs."""
DISCONNECT_POLL_S = 4.0
"""The engine looks this often whether the caller of a non-streaming request is still there."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a caller asks beside the prompt, the same for every choice of the call."""

    limits: Limits
    rid: str | None
    namespace: str
    priority: int
    stream: bool
    choices: int = 1


def new_rid() -> str:
    return uuid.uuid4().hex


def namespace(body: dict[str, Any]) -> str:
    """Requests share cached pages only within one of these."""
    salt, key = body.get("cache_salt"), body.get("extra_key")
    return f"{salt or ''}\0{key or ''}" if salt or key else ""


def terms(runtime: Runtime, body: dict[str, Any], max_tokens: int | None) -> Terms:
    """Of an OpenAI route's body. The order of the checks is the engine's."""
    rid = body.get("rid")
    if rid is not None and not isinstance(rid, str):
        kind = type(rid).__name__
        raise errors.flat(f"Internal server error: unhashable type: '{kind}'", "InternalServerError", 500)
    stream = bodies.boolean(body, "stream")
    choices = bodies.integer(body, "n", 1)
    temperature, top_p = bodies.decimal(body, "temperature", 1.0), bodies.decimal(body, "top_p", 1.0)
    priority = bodies.integer(body, "priority")
    limits = Limits(
        max_tokens=max_tokens,
        ignore_eos=bodies.boolean(body, "ignore_eos"),
        stop=bodies.strings(body, "stop"),
        stop_ids=frozenset(bodies.integers(body, "stop_token_ids")),
    )
    bodies.check_sampling(temperature, top_p)
    if max_tokens is not None and max_tokens < 0:
        raise errors.flat(f"max_new_tokens must be at least 0, got {max_tokens}.")
    if not choices or choices < 1:
        raise errors.flat("range() arg 3 must not be zero", "BadRequest")
    if choices > CHOICES_MAX:
        raise errors.flat(f"n must be at most {CHOICES_MAX}, got {choices}.")
    rank = bodies.integer(body, "routed_dp_rank", bodies.integer(body, "data_parallel_rank"))
    if rank is not None and rank != 0:
        raise errors.flat(f"routed_dp_rank={rank} out of range [0, 1)")
    default = runtime.settings.server_args["default_priority_value"] or 0
    return Terms(limits, rid, namespace(body), default if priority is None else priority, stream, choices)


def check_headers(exchange: Exchange) -> None:
    rank = exchange.headers.get("x-data-parallel-rank")
    if rank is not None and not rank.strip().lstrip("-").isdigit():
        raise errors.flat(f"Invalid X-Data-Parallel-Rank header: must be an integer, got '{rank}'", "400")


def check_model(body: dict[str, Any]) -> str:
    """Any name is served and echoed, but for adapters of a base model."""
    model = bodies.string(body, "model")
    adapter = (model or "").partition(":")[2]
    if adapter:
        raise errors.flat(
            f"LoRA adapter '{adapter}' was requested, but LoRA is not enabled. Please launch the server with "
            "--enable-lora flag and preload adapters using --lora-paths or /load_lora_adapter endpoint."
        )
    return "default" if model is None else model


def check_length(runtime: Runtime, tokens: int, max_tokens: int | None) -> str | None:
    """The engine's message for a prompt that does not fit, or None."""
    settings = runtime.settings
    context = settings.context_length
    if tokens >= context:
        return f"The input ({tokens} tokens) is longer than the model's context length ({context} tokens)."
    if max_tokens is not None and tokens + max_tokens >= context:
        return (
            f"Requested token count exceeds the model's maximum context length of {context} tokens. You requested a "
            f"total of {tokens + max_tokens} tokens: {tokens} tokens from the input messages and {max_tokens} tokens "
            "for the completion. Please reduce the number of tokens in the input messages or the completion to fit "
            "within the limit."
        )
    if tokens > settings.input_tokens_max:
        return (
            f"Input length ({tokens} tokens) exceeds the maximum allowed length ({settings.input_tokens_max} tokens). "
            "Use a shorter input or enable --allow-auto-truncate."
        )
    return None


def make_requests(runtime: Runtime, prompts: Sequence[bytes], asked: Terms) -> list[Request]:
    """One request for every choice of every prompt, sharing a signal; not yet submitted."""
    signal = Signal()
    count = len(prompts) * asked.choices
    base = asked.rid
    if base is not None and count == 1 and base in runtime.engine.live:
        raise errors.flat(f"Duplicate request ID detected: {base}")
    requests: list[Request] = []
    for data in prompts:
        prompt = Prompt(data, runtime.settings.policy.page_tokens, asked.namespace)
        for choice in range(asked.choices):
            rid = new_rid() if base is None else base if count == 1 else f"{base}_{len(requests)}"
            request = Request(
                rid,
                prompt,
                asked.limits,
                signal,
                choice=choice,
                namespace=asked.namespace,
                priority=asked.priority,
                streaming=asked.stream,
            )
            room = runtime.settings.request_tokens_max - prompt.tokens - 1
            limit = asked.limits.max_tokens
            request.token_budget = room if limit is None else min(limit, room)
            requests.append(request)
    return requests


@contextlib.asynccontextmanager
async def submitted(
    runtime: Runtime, exchange: Exchange, requests: list[Request], *, text: bool
) -> AsyncIterator[None]:
    """Runs the requests for as long as the caller is there; whatever is left of them at the end is aborted. `text`:
    their prompts have to be tokenized."""
    if runtime.engine.faults.settings.reject:
        for request in requests:
            request.times.received = time.time()
            request.finish = Finish("abort", message=QUEUE_FULL, status=503)
        yield
        return
    for request in requests:
        runtime.engine.submit(request, exchange.received_s, text)
    follower = asyncio.create_task(_follow(runtime, exchange, requests))
    try:
        yield
    finally:
        follower.cancel()
        for request in requests:
            runtime.engine.abort_request(request)


async def finished(requests: list[Request]) -> None:
    signal = requests[0].signal
    while any(request.finish is None for request in requests):
        await signal.wait()


async def _follow(runtime: Runtime, exchange: Exchange, requests: list[Request]) -> None:
    """Aborts the requests when the caller goes away: at once for a stream, else at the next look."""
    started = time.monotonic()
    await exchange.gone()
    if not requests[0].streaming:
        poll = DISCONNECT_POLL_S / runtime.settings.speedup
        await asyncio.sleep(poll - (time.monotonic() - started) % poll)
    for request in requests:
        runtime.engine.abort_request(request)
