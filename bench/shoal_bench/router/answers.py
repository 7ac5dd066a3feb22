"""What a light engine says: prebuilt bytes for chat completions and for what routers ask when they discover engines.

The shapes are SGLang's; numbers are large enough that no router holds requests back for want of room. Pure.
"""

import json
from typing import Final

MODEL: Final = "bench-model"
CREATED: Final = 1_700_000_000
ID: Final = "0f3c9a6b2f5e4d0c8b7a6f5e4d3c2b1a"

_CARD: Final = {"id": MODEL, "object": "model", "created": CREATED, "owned_by": "sglang", "root": MODEL}
_MODEL_CARD: Final = {"object": "list", "data": [{**_CARD, "max_model_len": 1048576}]}
_MODEL_INFO: Final = {
    "model_path": MODEL,
    "tokenizer_path": MODEL,
    "served_model_name": MODEL,
    "is_generation": True,
    "weight_version": "default",
}
_SERVER_INFO: Final = {
    **_MODEL_INFO,
    "version": "0.5.23",
    "status": "ready",
    "tp_size": 1,
    "dp_size": 1,
    "page_size": 64,
    "context_length": 1048576,
    "max_total_num_tokens": 4_000_000_000,
    "max_running_requests": 1_000_000,
    "random_seed": 1,
    "internal_states": [{"effective_max_running_requests_per_dp": 1_000_000}],
}
_LOADS: Final = {"loads": [{"dp_rank": 0, "num_running_reqs": 0, "num_waiting_reqs": 0, "num_tokens": 0}]}

PAGES: Final[dict[str, tuple[str, bytes]]] = {
    **dict.fromkeys(("/health", "/health_generate", "/ready", "/liveness", "/ping"), ("text/plain", b"")),
    "/v1/models": ("application/json", json.dumps(_MODEL_CARD).encode()),
    **dict.fromkeys(("/model_info", "/get_model_info"), ("application/json", json.dumps(_MODEL_INFO).encode())),
    **dict.fromkeys(("/server_info", "/get_server_info"), ("application/json", json.dumps(_SERVER_INFO).encode())),
    **dict.fromkeys(("/v1/loads", "/get_load"), ("application/json", json.dumps(_LOADS).encode())),
    "/abort_request": ("application/json", b"{}"),
    "/metrics": ("text/plain", b"sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\nsglang:token_usage 0\n"),
}
"""Path to content type and body."""


def page(path: str) -> bytes:
    """A whole answer; 404 for what a light engine does not know."""
    kind, body = PAGES.get(path, ("application/json", b'{"detail":"Not Found"}'))
    status = b"200 OK" if path in PAGES else b"404 Not Found"
    head = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
    return head % (status, kind.encode(), len(body)) + body


def _completion() -> tuple[bytes, bytes, bytes, bytes]:
    """The parts of an answer around its two numbers, and the head up to its length."""
    made = {
        "id": ID,
        "object": "chat.completion",
        "created": CREATED,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Paris.", "reasoning_content": None, "tool_calls": None},
                "logprobs": None,
                "finish_reason": "stop",
                "matched_stop": None,
            }
        ],
        "usage": _usage(1111111, 1),
    }
    text = json.dumps(made, separators=(",", ":")).encode()
    before, _, rest = text.partition(b"1111111")
    between, _, after = rest.partition(b"1111112")
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
    return head, b"\r\n\r\n" + before, between, after


def _usage(prompt_tokens: int, completion_tokens: int) -> dict[str, object]:
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
        "prompt_tokens_details": None,
    }


_HEAD, _BEFORE, _BETWEEN, _AFTER = _completion()
_BODY_BYTES: Final = len(_BEFORE) - 4 + len(_BETWEEN) + len(_AFTER)


def completion(prompt_tokens: int) -> bytes:
    """A whole answer that does not stream."""
    prompt, total = b"%d" % prompt_tokens, b"%d" % (prompt_tokens + 1)
    length = b"%d" % (_BODY_BYTES + len(prompt) + len(total))
    return b"".join((_HEAD, length, _BEFORE, prompt, _BETWEEN, total, _AFTER))


def _event(delta: dict[str, object], finish: str | None) -> bytes:
    made = {
        "id": ID,
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": MODEL,
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, "matched_stop": None}],
        "usage": None,
    }
    return b"data: " + json.dumps(made, separators=(",", ":")).encode() + b"\n\n"


def _framed(*events: bytes) -> bytes:
    """Each as an HTTP chunk of its own, as SGLang's server sends them."""
    return b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in events)


STREAM_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)
ROLE: Final = _framed(_event({"role": "assistant", "content": ""}, None))
TOKEN: Final = _framed(_event({"content": " token"}, None))
"""One chunk of a stream, with its framing: 240 bytes, as SGLang's are."""


def stream_end(prompt_tokens: int, tokens: int, with_usage: bool) -> bytes:
    """What follows the last token."""
    usage = {
        "id": ID,
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": MODEL,
        "choices": [],
        "usage": _usage(prompt_tokens, tokens),
    }
    last = [_event({}, "length")]
    if with_usage:
        last.append(b"data: " + json.dumps(usage, separators=(",", ":")).encode() + b"\n\n")
    return _framed(*last, b"data: [DONE]\n\n") + b"0\r\n\r\n"
