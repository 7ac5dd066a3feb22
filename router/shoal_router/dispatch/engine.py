"""What `/server_info` of an engine says that the router uses. Pure; called by dispatch.fleet."""

from dataclasses import dataclass
from typing import Any

import orjson

from shoal_router import model


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """None where the engine did not say."""

    facts: model.EngineFacts
    boot: str
    """Differs between two starts of one engine: its seed is drawn at start, its start-up times are measured."""
    context_tokens: int | None = None
    vocab_size: int | None = None
    queued_max: int | None = None
    version: str = ""
    cache_reported: bool = False
    """`cached_tokens` that is null means 0, not unknown."""
    usage_by_default: bool = False
    """Streams end with usage although nobody asked."""


def parse(body: bytes) -> EngineInfo | None:
    """None where the body is not the JSON object of a running engine."""
    try:
        info = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(info, dict) or info.get("status") not in ("ready", None):
        return None
    listed = info.get("internal_states")
    states = [state for state in listed if isinstance(state, dict)] if isinstance(listed, list) else []
    effective = [_integer(state.get("effective_max_running_requests_per_dp")) for state in states]
    running = sum(value for value in effective if value) or _integer(info.get("max_running_requests"))
    return EngineInfo(
        facts=model.EngineFacts(
            kv_tokens_max=_integer(info.get("max_total_num_tokens")),
            running_max=running,
            page_tokens=_integer(info.get("page_size")),
            ranks=_integer(info.get("attn_dp_size")) or _integer(info.get("dp_size")),
        ),
        boot=f"{info.get('random_seed')}/{_boot_time(info.get('startup_time'))}",
        context_tokens=_integer(info.get("context_length")) or _context(info),
        vocab_size=_integer(info.get("vocab_size")),
        queued_max=_integer(info.get("max_queued_requests")),
        version=str(info.get("version", "")),
        cache_reported=info.get("enable_cache_report") is True,
        usage_by_default=info.get("stream_response_default_include_usage") is True,
    )


def _context(info: dict[str, Any]) -> int | None:
    """Where the context length is the model's own: the longest input, plus the few tokens the engine keeps back."""
    longest = _integer(info.get("max_req_input_len"))
    return longest + 6 if longest else None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _boot_time(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode() if isinstance(value, dict) else ""
