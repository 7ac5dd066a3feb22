"""Everything pure that the router decides about made-up input, one line each: two builds must print the same.

    PYTHONPATH=... python -m shoal_testing.decisions SEED

Bodies with any JSON in any place, heads, streams cut anywhere, an engine's word about itself, and a simulated fleet.
Run by tests/wire/test_router_build.py, once with each build. Raises where the router does, which it never may.
"""

import functools
import json
import random
import sys
from collections.abc import Iterator
from typing import Any, Final

from shoal_fleet import model
from shoal_fleet.fleet import Outcome
from shoal_router.dispatch import api, checks, engine, reply, splice, sse
from shoal_router.index import caller, request
from shoal_router.metrics import histogram
from shoal_router.server import head
from shoal_testing import fleets

BODIES: Final = 1500
HEADS: Final = 1000
STREAMS: Final = 300
REQUESTS: Final = 300
_SESSION_HEADERS: Final = ("x-session-id", "session_id")

_ANY: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -0.0, -1, 1, 127, 128, 2**31, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 10**30),
    *(0.5, 1.0, -1.5, 1e16, 1e308, "", "x", "user", "1", "\u0000", "\u00e9\U0001f600", "a" * 5000, [], {}, [[]], [{}]),
    *([1, 2, 3], [True], [1.5], ["a", 1], [[1], [2]], [[1], 2], [-1], [2**40], {"a": [{"b": None}]}, [None]),
    *([{"type": "text", "text": "part"}], [{"type": "image_url", "image_url": {"url": "data:1"}}], {"type": "text"}),
)
_NAMES: Final = (
    *("model", "messages", "prompt", "text", "input_ids", "input_embeds", "tokens", "stream", "stream_options", "n"),
    *("max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "stop", "rid", "user", "tools", "seed"),
    *("session_id", "prompt_cache_key", "metadata", "sampling_params", "logprobs", "response_format", "tool_choice"),
    *("role", "content", "name", "tool_calls", "frequency_penalty", "logit_bias", "best_of", "echo", "user_id", "type"),
)

_KINDS: Final = (
    *((api.CHAT, "messages"), (api.COMPLETIONS, "prompt"), (api.GENERATE, "text"), (api.GENERATE, "input_ids")),
    *((api.TOKENIZE, "prompt"), (api.DETOKENIZE, "tokens")),
)


def _value(rng: random.Random, depth: int = 0) -> Any:
    if depth > 3 or rng.random() < 0.6:
        return rng.choice(_ANY)
    if rng.random() < 0.5:
        return [_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(_NAMES): _value(rng, depth + 1) for _ in range(rng.randrange(4))}


def _message(rng: random.Random) -> Any:
    made = {"role": rng.choice(("system", "user", "assistant", "tool", "developer")), "content": "Hello " * 40}
    if rng.random() < 0.3:
        made[rng.choice(_NAMES)] = _value(rng)
    return made if rng.random() < 0.95 else _value(rng)


def _body(rng: random.Random) -> tuple[api.Api, bytes]:
    """Mostly what a client might send, with strange things put in."""
    doc: dict[str, Any] = {"model": "m", "stream": rng.random() < 0.5}
    where, kind = rng.choice(_KINDS)
    if kind == "messages":
        doc[kind] = [_message(rng) for _ in range(rng.randrange(1, 5))]
    else:
        doc[kind] = rng.choice(("word " * 900, ["one", "two"], [1, 2, 3] * 300, [[1, 2], [3]], _value(rng)))
    for _ in range(rng.randrange(3)):
        doc[rng.choice(_NAMES)] = _value(rng)
    where = where if rng.random() < 0.9 else rng.choice(api.ALL)
    return where, json.dumps(doc, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def _headers(rng: random.Random) -> dict[str, str]:
    names = (*_SESSION_HEADERS, *caller.HEADERS, "x-parent-session-id")
    values = ("", "s1", "s2", "Bearer k", "30", "-1", "nan", "inf", "1e3", "0.5", " 7 ", "1_0", "\u00b2")
    return {name: rng.choice(values) for name in names if rng.random() < 0.3}


def show(value: object) -> str:
    """Its public attributes, whether it is compiled, has slots, or is a dataclass."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(show(item) for item in value)}]"
    if value is None or isinstance(value, str | bytes | int | float | dict | memoryview):
        return repr(bytes(value) if isinstance(value, memoryview) else value)
    names = [name for name in dir(value) if not name.startswith("_") and not callable(getattr(value, name))]
    return f"{type(value).__name__}({', '.join(f'{name}={show(getattr(value, name))}' for name in names)})"


def bodies(rng: random.Random) -> Iterator[str]:
    for _ in range(BODIES):
        where, body = _body(rng)
        if rng.random() < 0.03:
            body = body[: rng.randrange(len(body))] + rng.choice((b"", b"\xff", b"}", b"NaN"))
        doc = checks.parse(body)
        if not isinstance(doc, dict):
            yield show(doc)
            continue
        checked = checks.check(where, doc, rng.choice((None, 1000)), rng.choice((None, 100)))
        yield show(checked)
        if isinstance(checked, checks.Checked) and where.prompt is not None:
            headers = _headers(rng)
            yield show(request.read(where.prompt, doc, headers, _SESSION_HEADERS, len(body)))
            yield show([splice.value_span(body, name) for name in ("model", "rid", "text")])
            yield show(splice.with_fields(body, b'"rid":"x"'))


def heads(rng: random.Random) -> Iterator[str]:
    names = (b"host", b"content-length", b"transfer-encoding", b"connection", b"expect", b"content-type", b"x-shoal-a")
    values = (b"", b"a", b"a:80", b"0", b"12", b"+1", b"1_0", b"\xb2", b"chunked", b"gzip, chunked", b"close", b"x-b")
    for _ in range(HEADS):
        given = [(rng.choice((*names, b"x-b")), rng.choice(values)) for _ in range(rng.randrange(5))]
        yield show(head.read([(b"host", b"h"), *given] if rng.random() < 0.7 else given, rng.random() < 0.2))
        yield show([head.path_of(rng.choice((b"/", b"", b"http://", b"*", b"/v1/"))), reply.retry_after_s(given)])


def streams(rng: random.Random) -> Iterator[str]:
    for _ in range(STREAMS):
        usage = {
            rng.choice(("prompt_tokens", "completion_tokens", "cached_tokens", "x")): _value(rng) for _ in range(3)
        }
        delta = {"choices": [{"delta": {"content": rng.choice(("", "x" * 300, '"usage":{', "\n\ndata: "))}}]}
        events: list[Any] = [delta, delta, {"choices": [], "usage": usage}, {"error": {"code": _value(rng)}}, delta]
        texts = [b"data: " + json.dumps(one, separators=(",", ":")).encode() + b"\n\n" for one in events]
        whole = b"".join(rng.sample(texts, 4)) + rng.choice((b"", b"data: [DONE]\n\n", b"data: {"))
        scanner, out = sse.Scanner(rng.random() < 0.5), []
        while whole:
            size = rng.choice((1, 7, 100, len(whole)))
            out.append(scanner.feed(whole[:size]))
            whole = whole[size:]
        yield show([*out, scanner.flush(), scanner.events, scanner.done, scanner.error_code, scanner.usage()])


def answers(rng: random.Random) -> Iterator[str]:
    """What engines say: of themselves, and where they refuse."""
    names = ("max_total_num_tokens", "max_running_requests", "context_length", "vocab_size", "page_size", "version")
    for _ in range(HEADS):
        info = {name: _value(rng) for name in (*names, "internal_states", "random_seed") if rng.random() < 0.8}
        yield show(engine.parse(json.dumps(info).encode()))
        refusal = json.dumps({rng.choice(("error", "message", "object", "code")): _value(rng) for _ in range(2)})
        yield show(reply.client_error(rng.choice(("openai", "sglang")), rng.choice((400, 404, 500)), refusal.encode()))


def fleet(rng: random.Random) -> Iterator[str]:
    """State and figures after every request."""
    made = fleets.fleet(model.study(8000, 200_000, fleets.BLOCK_TOKENS), 5, seed=rng.randrange(100))
    lines: list[str] = []

    def done(outcome: Outcome) -> None:
        found = made.policy.state(made.clock.now_s)
        lines.append("" if found is None else found.model_dump_json())
        lines.append(repr((outcome.replica, outcome.first_s, outcome.cached_predicted, outcome.ttft_predicted_s)))

    at_s = 0.0
    for number in range(REQUESTS):
        at_s += rng.expovariate(15.0)
        document, length = rng.randrange(12), rng.randrange(1, 40)
        blocks = (*range(document * 1000, document * 1000 + length), 100_000 + number)
        job = fleets.job(blocks, 1 + rng.randrange(300), rng.randrange(40))
        made.clock.at(at_s, functools.partial(made.submit, job, done))
    made.run()
    yield from lines


def durations(rng: random.Random) -> Iterator[str]:
    found = histogram.Histogram()
    for _ in range(HEADS):
        value_s = rng.choice((0.0, 1e-9, 1.0, rng.expovariate(1.0), rng.expovariate(0.001), 1e9))
        found.add(value_s)
        yield show([histogram.bucket(value_s), found.count, found.sum_s, found.cumulative((0.1, 1.0, 10.0))])


def main(seed: int) -> None:
    for made in (bodies, heads, streams, answers, fleet, durations):
        rng = random.Random(f"{seed} {made.__name__}")
        for line in made(rng):
            print(f"{made.__name__}: {line}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
