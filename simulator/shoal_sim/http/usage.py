"""Usage, metadata and meta_info blocks of answers."""

import time
from collections.abc import Sequence
from typing import Any

from shoal_sim.request import Finish, Request
from shoal_sim.tokens import token_id

WEIGHT_VERSION = "default"


def block(requests: Sequence[Request], choices: int, report: bool) -> dict[str, Any]:
    """Usage of one API call. A prompt counts once, however many choices it has."""
    failed = all(r.finish is not None and r.finish.failed for r in requests)
    prompt = 0 if failed else sum(r.prompt.tokens for r in requests[::choices])
    output = sum(len(r.output) for r in requests)
    cached = sum(r.cached_tokens for r in requests[::choices])
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + output,
        "completion_tokens": output,
        "prompt_tokens_details": {"cached_tokens": cached} if report else None,
        "reasoning_tokens": 0,
        "completion_tokens_details": None,
    }


def metadata(request: Request) -> dict[str, Any]:
    return {"weight_version": WEIGHT_VERSION, "weight_versions": weight_versions(request)}


def weight_versions(request: Request) -> list[dict[str, Any]]:
    return [{"version": WEIGHT_VERSION, "start": 0, "end": len(request.output)}]


def finish_reason(finish: Finish, count: int) -> dict[str, Any]:
    """The form of /generate."""
    if finish.kind == "length":
        return {"type": "length", "length": count}
    if finish.kind == "stop":
        return {"type": "stop", "matched": finish.matched}
    if finish.failed:
        return {"type": "abort", "status_code": finish.status, "message": finish.message}
    return {"type": "abort", "message": finish.message, "status_code": None, "err_type": None}


def meta_info(request: Request, sent_at: float | None = None, logprobs: dict[str, Any] | None = None) -> dict[str, Any]:
    """As /generate gives it, at this moment or, after the end, complete. `logprobs` are its fields for those."""
    times, finish = request.times, request.finish
    if finish is not None and finish.failed:
        return {
            "id": request.rid,
            "finish_reason": finish_reason(finish, 0),
            "weight_version": WEIGHT_VERSION,
            "e2e_latency": times.finished - times.received,
            "weight_versions": weight_versions(request),
            "completion_tokens": 0,
            "response_sent_to_client_ts": time.time(),
        }
    info: dict[str, Any] = {
        "id": request.rid,
        "finish_reason": finish_reason(finish, len(request.output)) if finish else None,
        "prompt_tokens": request.prompt.tokens,
        "weight_version": WEIGHT_VERSION,
        "num_retractions": request.retractions,
        "storage_prefetch_wait": 0.0,
        "storage_staging_wait": 0.0,
        "forward_entry_time": times.forward_entry,
        "prefill_finished_time": times.prefill_finished,
        "queue_time": times.forward_entry - times.received,
        **(logprobs or {}),
        "reasoning_tokens": 0,
        "completion_tokens": len(request.output),
        "cached_tokens": request.cached_tokens,
    }
    if finish is not None:
        info["weight_versions"] = weight_versions(request)
    info["cached_tokens_details"] = cached_details(request) if request.cached_tokens else None
    info["dp_rank"] = None
    if finish is not None:
        info |= _after_the_end(request, sent_at)
    elif sent_at is not None:
        info["response_sent_to_client_ts"] = sent_at
    return info


def _after_the_end(request: Request, sent_at: float | None) -> dict[str, float]:
    """A stream knows when its first event was sent; an answer that is not a stream is sent after everything else."""
    times = request.times
    decoding = max(times.finished - times.first_token, 1e-6)
    info = {
        "e2e_latency": times.finished - times.received,
        "request_received_ts": times.received,
        "first_token_latency": times.first_token - times.received,
        "api_server_dispatch_finish_ts": times.received,
    }
    if sent_at is not None:
        info["response_sent_to_client_ts"] = sent_at
    info["request_finished_ts"] = times.finished
    info["decode_throughput"] = max(0, len(request.output) - 1) / decoding
    if sent_at is None:
        info["response_sent_to_client_ts"] = time.time()
    return info


def cached_details(request: Request) -> dict[str, int]:
    return {"device": request.cached_tokens, "host": 0}


def output_ids(request: Request, start: int = 0) -> list[int]:
    return [token_id(text) for text in request.output[start:]]
