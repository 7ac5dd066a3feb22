"""GET /v1/loads. Values are of this moment; the engine's lag by up to 15 decode steps."""

import time
from datetime import UTC, datetime
from typing import Any

from shoal_sim.http import errors
from shoal_sim.http.asgi import Exchange
from shoal_sim.http.info import VERSION
from shoal_sim.runtime import Runtime

SECTIONS = frozenset(("core", "memory", "spec", "lora", "disagg", "queues", "all"))
_PROMETHEUS = b"text/plain; version=0.0.4; charset=utf-8"
_SECTION_PREFIX = {"disaggregation": "disagg"}


async def loads(runtime: Runtime, exchange: Exchange) -> None:
    started = time.perf_counter()
    include = set(exchange.query.get("include", "all").split(","))
    if not include <= SECTIONS:
        raise errors.internal()
    rank = exchange.query.get("dp_rank")
    entries = [_entry(runtime, include)] if rank in (None, "0") else []
    runtime.telemetry.loads_duration.observe(time.perf_counter() - started)
    if exchange.query.get("format") == "prometheus":
        await exchange.reply(200, _prometheus(entries).encode(), _PROMETHEUS)
        return
    await exchange.reply_json(
        {
            "timestamp": datetime.now(UTC).isoformat(),
            "version": VERSION,
            "accelerator": runtime.settings.profile.gpu_name,
            "num_accelerators": runtime.settings.server_args["tp_size"],
            "loads": entries,
        }
    )


def _entry(runtime: Runtime, include: set[str]) -> dict[str, Any]:
    entry = _core(runtime)
    wanted = SECTIONS if "all" in include else include
    memory = runtime.settings.profile.memory
    if "memory" in wanted:
        entry["memory"] = {
            "weight_gb": round(memory.weight_bytes / 2**30, 3),
            "kv_cache_gb": round(runtime.settings.kv_tokens * memory.kv_token_bytes / 2**30, 3),
            "graph_gb": 0.0,
            "token_capacity": runtime.settings.kv_tokens,
        }
    if "spec" in wanted and runtime.settings.speculation is not None:
        entry["speculative"] = _speculative(runtime)
    if "disagg" in wanted:
        queues = ("prefill_bootstrap", "prefill_inflight", "decode_prealloc", "decode_transfer", "decode_retracted")
        entry["disaggregation"] = {
            "mode": runtime.settings.server_args["disaggregation_mode"],
            **{f"{queue}_queue_reqs": 0 for queue in queues},
            "kv_transfer_speed_gb_s": 0.0,
            "kv_transfer_latency_ms": 0.0,
        }
    if "queues" in wanted:
        waiting = runtime.engine.scheduler.waiting
        entry["queues"] = {
            "waiting": len(waiting),
            "grammar": 0,
            "paused": 0,
            "retracted": sum(1 for request in waiting if request.retractions),
            "prealloc_ready": 0,
        }
    return entry


def _core(runtime: Runtime) -> dict[str, Any]:
    settings, telemetry = runtime.settings, runtime.telemetry
    scheduler = runtime.engine.scheduler
    waiting = scheduler.waiting + runtime.engine.arrivals.requests()
    page = settings.policy.page_tokens
    used = (scheduler.cache.locked_pages + scheduler.cache.private_pages) * page
    uncached = sum(r.sequence_tokens - scheduler.cache.peek(r.hashes) * page for r in waiting)
    return {
        "timestamp": time.time(),
        "dp_rank": 0,
        "num_running_reqs": scheduler.active,
        "num_waiting_reqs": len(waiting),
        "num_waiting_uncached_tokens": uncached,
        "num_used_tokens": used,
        "num_total_tokens": used + sum(r.sequence_tokens for r in waiting),
        "num_active_tokens": used,
        "num_prealloc_ready_tokens": 0,
        "max_total_num_tokens": settings.kv_tokens,
        "max_running_requests": settings.policy.max_running,
        "token_usage": round(used / settings.kv_tokens, 4),
        "gen_throughput": round(telemetry.gen_throughput, 2),
        "cache_hit_rate": round(telemetry.cache_hit_rate, 4),
        "utilization": 0.0,
        "total_prefill_uncached_tokens": scheduler.counters.prefill_tokens,
        "total_prefill_busy_us": int(telemetry.prefill_busy_s * 1e6),
        "decode_moments": list(telemetry.decode_moments),
    }


def _speculative(runtime: Runtime) -> dict[str, float]:
    counters, speculation = runtime.engine.scheduler.counters, runtime.settings.speculation
    assert speculation is not None
    length = counters.spec_accepted / counters.spec_verifies if counters.spec_verifies else 0.0
    drafted = max(1, speculation.draft_tokens - 1)
    return {"accept_length": round(length, 2), "accept_rate": round(max(0.0, length - 1) / drafted, 3)}


def _prometheus(entries: list[dict[str, Any]]) -> str:
    lines: list[str] = []
    for entry in entries:
        rank = entry["dp_rank"]
        for key, value in entry.items():
            group = value if isinstance(value, dict) else {"": value}
            prefix = f"{_SECTION_PREFIX.get(key, key)}_" if isinstance(value, dict) else key
            for name, number in group.items():
                if isinstance(number, int | float) and key != "dp_rank":
                    lines.append(f"# TYPE sglang_{prefix}{name} gauge")
                    lines.append(f'sglang_{prefix}{name}{{dp_rank="{rank}"}} {number}')
    return "\n".join(lines) + "\n"
