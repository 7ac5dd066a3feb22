"""The /metrics page: every family that the engine has, in its order, with its labels; data/metrics.json is the list.

Families of things that are not simulated stay at zero: a dashboard or a scraper finds all names it knows.
"""

import functools
import json
import os
import time
from collections.abc import Sequence
from importlib import resources
from typing import Any

from shoal_sim.runtime import Runtime
from shoal_sim.telemetry import Histogram

Values = dict[str, dict[str, float] | float]
"""By family; where the family has variants, by the variant's value of its first label."""


@functools.cache
def load_families() -> list[dict[str, Any]]:
    families: list[dict[str, Any]] = json.loads(resources.files("shoal_sim").joinpath("data/metrics.json").read_bytes())
    return families


def buckets(families: list[dict[str, Any]]) -> dict[str, Sequence[float]]:
    """Bounds of the histograms, by name without the prefix."""
    return {f["name"].removeprefix("sglang:"): f["buckets"] for f in families if f["type"] == "histogram"}


def render(families: list[dict[str, Any]], runtime: Runtime) -> str:
    values = {**_gauges(runtime), **_counters(runtime)}
    histograms = _histograms(runtime)
    base = _base_labels(runtime)
    lines: list[str] = []
    for family in families:
        full = family["name"]
        name = full.removeprefix("sglang:")
        lines.append(f"# HELP {full} {family['help']}")
        lines.append(f"# TYPE {full} {family['type']}")
        if family["labels"] == "http":
            lines += _http_lines(full, name, runtime)
            continue
        labels = base[family["labels"]]
        for variant in family.get("variants", [{}]):
            shown = labels | _with_pid(variant)
            key = next(iter(variant.values()), "")
            if family["type"] == "histogram":
                found = histograms.get(name, {})
                lines += _histogram_lines(full, shown, found.get(key) or Histogram(family["buckets"]))
            else:
                value = values.get(name, 0.0)
                number = value.get(key, 0.0) if isinstance(value, dict) else value
                lines.append(f"{full}{_labels(shown)} {_number(number)}")
    return "\n".join(lines) + "\n"


def _base_labels(runtime: Runtime) -> dict[str, dict[str, str]]:
    tokenizer = {"engine_type": "unified", "model_name": runtime.settings.served_model_name}
    return {
        "none": {},
        "tokenizer": tokenizer,
        "scheduler": tokenizer | {"moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"},
    }


def _gauges(runtime: Runtime) -> Values:
    settings, scheduler, cache = runtime.settings, runtime.engine.scheduler, runtime.engine.scheduler.cache
    page, memory = settings.policy.page_tokens, settings.profile.memory
    used = (cache.locked_pages + cache.private_pages) * page
    counters, speculation = scheduler.counters, settings.speculation
    accepted = counters.spec_accepted / counters.spec_verifies if counters.spec_verifies else 0.0
    drafted = max(1, speculation.draft_tokens - 1) if speculation else 1
    return {
        "num_running_reqs": scheduler.active,
        "num_queue_reqs": len(scheduler.waiting) + len(runtime.engine.arrivals),
        "gen_throughput": runtime.telemetry.gen_throughput,
        "cache_hit_rate": runtime.telemetry.cache_hit_rate,
        "decode_sum_seq_lens": sum(r.sequence_tokens for r in scheduler.running),
        "token_usage": used / settings.kv_tokens,
        "full_token_usage": used / settings.kv_tokens,
        "num_used_tokens": used,
        "kv_used_tokens": used,
        "kv_available_tokens": cache.free_pages * page,
        "kv_evictable_tokens": cache.evictable_pages * page,
        "max_total_num_tokens": settings.kv_tokens,
        "page_size": settings.server_args["page_size"],
        "num_pages": settings.capacity_pages,
        "context_len": settings.context_length,
        "weight_memory_usage_gb": memory.weight_bytes / 2**30,
        "kv_cache_memory_usage_gb": settings.kv_tokens * memory.kv_token_bytes / 2**30,
        "startup_available_gpu_memory_gb": memory.gpu_bytes / 2**30,
        "startup_time_seconds": {"load_weight": settings.load_s, "scheduler_e2e": settings.load_s},
        "fwd_occupancy": float("nan"),
        "new_token_ratio": scheduler.headroom.ratio,
        "num_retracted_reqs": sum(1 for r in scheduler.waiting if r.retractions),
        "spec_accept_length": accepted,
        "spec_accept_rate": max(0.0, accepted - 1) / drafted,
        "spec_num_steps": speculation.draft_steps if speculation else 0,
        "spec_num_draft_tokens": speculation.draft_tokens if speculation else 0,
    }


def _counters(runtime: Runtime) -> Values:
    telemetry, counters = runtime.telemetry, runtime.engine.scheduler.counters
    page = runtime.settings.policy.page_tokens
    cpu_s = time.process_time()
    return {
        "process_cpu_seconds_total": {"tokenizer": cpu_s},
        "scheduler_process_cpu_seconds_total": cpu_s,
        "scheduler_idle_seconds_total": telemetry.idle_s,
        "prompt_tokens_total": _by_streaming(telemetry.prompt_tokens),
        "generation_tokens_total": _by_streaming(telemetry.generation_tokens),
        "num_requests_total": _by_streaming(telemetry.requests),
        "cached_tokens_total": {"device": telemetry.cached_tokens},
        "prefill_effective_tokens_total": {"input": counters.prefill_tokens, "device_hit": counters.cached_tokens},
        "realtime_tokens_total": {
            "prefill_compute": counters.prefill_tokens,
            "prefill_cache": counters.cached_tokens,
            "decode": counters.decode_tokens,
        },
        "cuda_graph_passes_total": {"prefill_none": counters.prefill_steps, "decode_none": counters.decode_steps},
        "num_aborted_requests_total": telemetry.aborted,
        "num_retracted_requests_total": counters.retracted,
        "num_retracted_input_tokens_total": counters.retracted_input_tokens,
        "num_retracted_output_tokens_total": counters.retracted_output_tokens,
        "spec_verify_calls_total": counters.spec_verifies,
        "evicted_tokens_total": runtime.engine.scheduler.cache.evicted_pages_total * page,
    }


def _histograms(runtime: Runtime) -> dict[str, dict[str, Histogram]]:
    telemetry = runtime.telemetry
    return {
        "queue_time_seconds": {"": telemetry.queue_time},
        "per_stage_req_latency_seconds": {"prefill_forward": telemetry.prefill_stage},
        "inter_token_latency_seconds": {"": telemetry.inter_token},
        "get_loads_duration_seconds": {"": telemetry.loads_duration},
        "prompt_tokens_histogram": {"": telemetry.prompt_sizes},
        "uncached_prompt_tokens_histogram": {"": telemetry.uncached_sizes},
        "generation_tokens_histogram": {"": telemetry.generation_sizes},
        "time_to_first_token_seconds": _named(telemetry.first_token),
        "e2e_request_latency_seconds": _named(telemetry.whole_request),
        "request_time_per_output_token_seconds": _named(telemetry.per_output_token),
    }


def _named(pair: dict[bool, Histogram]) -> dict[str, Histogram]:
    return {"true": pair[True], "false": pair[False]}


def _by_streaming(value: Any) -> dict[str, float]:
    return {"true": value.streaming, "false": value.other}


def _with_pid(variant: dict[str, str]) -> dict[str, str]:
    return {name: str(os.getpid()) if value == "$pid" else value for name, value in variant.items()}


def _http_lines(full: str, name: str, runtime: Runtime) -> list[str]:
    http = runtime.telemetry.http
    if name == "http_responses_total":
        return [
            f"{full}{_labels({'endpoint': endpoint, 'method': method, 'status_code': str(status)})} {_number(count)}"
            for (endpoint, method, status), count in http.responses.items()
        ]
    counts = http.requests if name == "http_requests_total" else http.active
    return [
        f"{full}{_labels({'endpoint': endpoint, 'method': method})} {_number(count)}"
        for (endpoint, method), count in counts.items()
    ]


def _histogram_lines(full: str, labels: dict[str, str], histogram: Histogram) -> list[str]:
    lines, below = [], 0
    for bound, count in zip(histogram.bounds, histogram.counts, strict=False):
        below += count
        lines.append(f"{full}_bucket{_labels(labels | {'le': _number(bound)})} {_number(below)}")
    lines.append(f"{full}_bucket{_labels(labels | {'le': '+Inf'})} {_number(histogram.count)}")
    lines.append(f"{full}_sum{_labels(labels)} {_number(histogram.total)}")
    lines.append(f"{full}_count{_labels(labels)} {_number(histogram.count)}")
    return lines


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items())) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return "NaN" if value != value else str(float(value))
