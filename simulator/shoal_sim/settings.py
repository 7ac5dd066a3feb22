"""The command line and environment of one simulated engine, resolved to what the parts of it need."""

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from shoal_sim import profiles, speculation
from shoal_sim.flags import CommandLine, CommandLineError
from shoal_sim.policy import Policy
from shoal_sim.profiles import Profile
from shoal_sim.speculation import Speculation

PAGE_TOKENS_MIN = 64
"""Smaller pages than this are modelled in blocks of it: cached_tokens is then rounded down to a multiple of 64."""
KV_BYTES_RATIO = {"fp8_e5m2": 0.5, "fp8_e4m3": 0.5, "mxfp8": 0.516, "nvfp4": 0.281, "fp4_mx_block16": 0.281}
SPECULATIVE_MAX_RUNNING = 48
WITHOUT_EFFECT = (
    *("kv_events_config", "load_publish_endpoint", "enable_hierarchical_cache", "enable_lora", "lora_paths"),
    *("dp_size", "attn_dp_size", "pp_size", "radix_eviction_policy", "allow_auto_truncate"),
)
"""Arguments that change what a real engine does and are not simulated: said in the log when they are given."""
INPUT_RESERVE_TOKENS = 5


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything resolved; `server_args` is what /server_info shows."""

    server_args: dict[str, Any]
    argv: tuple[str, ...]
    host: str
    port: int
    model_path: str
    served_model_name: str
    profile: Profile
    speedup: float
    load_s: float
    warmup_s: float
    policy: Policy
    speculation: Speculation | None
    context_length: int
    kv_tokens: int
    cache_report: bool
    metrics: bool
    stream_usage_default: bool
    stream_interval: int
    overlap: bool
    """A step is prepared while the one before runs."""
    keep_alive_s: int
    generating_health: bool
    api_key: str | None
    admin_api_key: str | None
    without_effect: tuple[str, ...]

    @property
    def capacity_pages(self) -> int:
        return self.kv_tokens // self.policy.page_tokens

    @property
    def request_tokens_max(self) -> int:
        """Prompt and output together."""
        return min(self.context_length - 1, self.kv_tokens - 1)

    @property
    def input_tokens_max(self) -> int:
        return self.request_tokens_max - INPUT_RESERVE_TOKENS


def resolve(line: CommandLine, env: Mapping[str, str] = os.environ) -> Settings:
    """Raises CommandLineError where the combination makes no engine."""
    args = dict(line.fields)
    if args["disaggregation_mode"] != "null" or args["is_embedding"]:
        raise CommandLineError("the simulator has no --disaggregation-mode and no --is-embedding")
    profile = _profile(args, line, env)
    page = _page_tokens(args)
    args["page_size"] = args["page_size"] or 1
    context_length = _context_length(args["context_length"], profile)
    kv_tokens = _kv_tokens(args, profile, page)
    spec = _speculation(args, env)
    args["served_model_name"] = args["served_model_name"] or args["model_path"]
    args["tokenizer_path"] = args["tokenizer_path"] or args["model_path"]
    args["context_length"] = context_length
    args["random_seed"] = args["random_seed"] or random.randrange(1 << 30)
    if args["chunked_prefill_size"] is None:
        args["chunked_prefill_size"] = profile.chunked_prefill_size
    policy = _policy(args, page, kv_tokens, context_length, spec)
    args["max_running_requests"] = policy.max_running
    if ":" in args["served_model_name"]:
        raise CommandLineError("served_model_name cannot contain a colon (':') character")
    return Settings(
        server_args=args,
        argv=line.argv,
        host=args["host"],
        port=args["port"],
        model_path=args["model_path"],
        served_model_name=args["served_model_name"],
        profile=profile,
        speedup=_number(line, env, "speedup", "SHOAL_SIM_SPEEDUP", 1.0),
        load_s=_number(line, env, "load-seconds", "SHOAL_SIM_LOAD_SECONDS", profile.load_s),
        warmup_s=0.0 if args["skip_server_warmup"] else profile.warmup_s,
        policy=policy,
        speculation=spec,
        context_length=context_length,
        kv_tokens=kv_tokens,
        cache_report=args["enable_cache_report"],
        metrics=args["enable_metrics"],
        stream_usage_default=args["stream_response_default_include_usage"],
        stream_interval=max(1, args["stream_interval"]),
        overlap=not args["disable_overlap_schedule"],
        keep_alive_s=int(env.get("SGLANG_TIMEOUT_KEEP_ALIVE", "5")),
        generating_health=env.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "1").lower() not in ("0", "false"),
        api_key=args["api_key"],
        admin_api_key=args["admin_api_key"],
        without_effect=tuple(name for name in WITHOUT_EFFECT if name in line.given),
    )


def _profile(args: dict[str, Any], line: CommandLine, env: Mapping[str, str]) -> Profile:
    known = profiles.load_profiles()
    name = line.simulator.get("profile") or env.get("SHOAL_SIM_PROFILE")
    if name:
        if name not in known:
            raise CommandLineError(f"argument --profile: invalid choice: {name!r} (choose from {', '.join(known)})")
        return known[name]
    gpu = env.get("SHOAL_SIM_GPU", profiles.GPU_DEFAULT).lower()
    return profiles.choose(known, args["model_path"], gpu, args["tp_size"])


def _page_tokens(args: dict[str, Any]) -> int:
    page = args["page_size"] or 1
    if not isinstance(page, int) or page < 1:
        raise CommandLineError(f"argument --page-size: invalid int value: {page!r}")
    return max(page, PAGE_TOKENS_MIN)


def _context_length(value: Any, profile: Profile) -> int:
    if value is None:
        return profile.context_length
    text = str(value).lower()
    factor = {"k": 1024, "m": 1024 * 1024}.get(text[-1], 1)
    digits = text[:-1] if factor > 1 else text
    if not digits.isdigit() or int(digits) == 0:
        raise CommandLineError(f"argument --context-length: invalid value: {value!r}")
    return int(digits) * factor


def _kv_tokens(args: dict[str, Any], profile: Profile, page: int) -> int:
    ratio = KV_BYTES_RATIO.get(args["kv_cache_dtype"], 1.0)
    tokens = profile.memory.kv_tokens(args["mem_fraction_static"], ratio)
    if args["max_total_tokens"] is not None:
        tokens = min(tokens, int(args["max_total_tokens"]))
    tokens = tokens // page * page
    if tokens < 2 * page:
        raise CommandLineError("Not enough memory. Please try to increase --mem-fraction-static.")
    return tokens


def _speculation(args: dict[str, Any], env: Mapping[str, str]) -> Speculation | None:
    mean = env.get("SGLANG_SIMULATE_ACC_LEN")
    return speculation.from_flags(
        args["speculative_algorithm"],
        args["speculative_num_steps"],
        args["speculative_num_draft_tokens"],
        float(mean) if mean else None,
    )


def _policy(args: dict[str, Any], page: int, kv_tokens: int, context: int, spec: Speculation | None) -> Policy:
    running = args["max_running_requests"]
    if running is None:
        running = SPECULATIVE_MAX_RUNNING if spec else max(2048, min(4096, kv_tokens * 512 // context))
        running = max(1, min(running, kv_tokens // 2))
    chunk = args["chunked_prefill_size"]
    if chunk > 0 and chunk % page:
        raise CommandLineError("chunked_prefill_size must be divisible by page_size")
    if args["enable_priority_scheduling"] and args["schedule_policy"] not in ("fcfs", "lof"):
        raise CommandLineError("priority scheduling needs --schedule-policy fcfs or lof")
    policy = Policy(
        page_tokens=page,
        max_running=int(running),
        max_queued=args["max_queued_requests"],
        chunk_tokens=chunk if chunk > 0 else None,
        max_prefill_tokens=args["max_prefill_tokens"],
        prefill_max_requests=args["prefill_max_requests"],
        mixed_chunk=args["enable_mixed_chunk"],
        order=args["schedule_policy"],
        conservativeness=args["schedule_conservativeness"],
        radix=not args["disable_radix_cache"],
    )
    return replace(
        policy,
        priority=args["enable_priority_scheduling"],
        low_values_first=args["schedule_low_priority_values_first"],
        preemption=not args["disable_priority_preemption"],
        preemption_threshold=args["priority_scheduling_preemption_threshold"],
    )


def _number(line: CommandLine, env: Mapping[str, str], flag: str, variable: str, default: float) -> float:
    text = line.simulator.get(flag) or env.get(variable)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError as error:
        raise CommandLineError(f"argument --{flag}: invalid float value: {text!r}") from error
    if value < 0 or (flag == "speedup" and value == 0):
        raise CommandLineError(f"argument --{flag}: must be positive, got {text}")
    return value
