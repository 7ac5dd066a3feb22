"""GET /server_info, /model_info, /v1/models, /v1/models/{id}, /."""

import shlex
from typing import Any

from shoal_sim.http.asgi import Exchange
from shoal_sim.http.errors import ApiError
from shoal_sim.http.usage import WEIGHT_VERSION
from shoal_sim.runtime import Runtime

VERSION = "0.5.23"
_GRAPHS = dict.fromkeys(("prefill", "decode", "target_verify", "draft_prefill", "draft_decode", "draft_extend"), 0.0)


async def root(runtime: Runtime, exchange: Exchange) -> None:
    await exchange.reply_json("SGLang is running")


async def models(runtime: Runtime, exchange: Exchange) -> None:
    await exchange.reply_json({"object": "list", "data": [_model(runtime)]})


async def model(runtime: Runtime, exchange: Exchange) -> None:
    name = exchange.path.removeprefix("/v1/models/")
    if name != runtime.settings.served_model_name:
        message = f"The model '{name}' does not exist"
        error = {"message": message, "type": "invalid_request_error", "param": "model", "code": "model_not_found"}
        raise ApiError(404, {"error": error})
    await exchange.reply_json(_model(runtime))


def _model(runtime: Runtime) -> dict[str, Any]:
    settings = runtime.settings
    return {
        "id": settings.served_model_name,
        "object": "model",
        "created": runtime.created,
        "owned_by": "sglang",
        "root": settings.served_model_name,
        "parent": None,
        "max_model_len": settings.context_length,
    }


async def model_info(runtime: Runtime, exchange: Exchange) -> None:
    settings, args = runtime.settings, runtime.settings.server_args
    await exchange.reply_json(
        {
            "model_path": settings.model_path,
            "served_model_name": settings.served_model_name,
            "tokenizer_path": args["tokenizer_path"],
            "is_generation": True,
            "preferred_sampling_params": args["preferred_sampling_params"],
            "weight_version": WEIGHT_VERSION,
            "load_format": args["load_format"],
            "reasoning_parser": args["reasoning_parser"],
            "tool_call_parser": args["tool_call_parser"],
            "disaggregation_mode": args["disaggregation_mode"],
            "has_image_understanding": False,
            "has_audio_understanding": False,
            "model_type": settings.profile.model_type,
            "architectures": [settings.profile.architecture],
        }
    )


async def server_info(runtime: Runtime, exchange: Exchange) -> None:
    settings = runtime.settings
    startup = {
        "load_weight": settings.load_s,
        "kv_cache_allocation": 0.0,
        "scheduler_e2e": settings.load_s,
        "cuda_graph": _GRAPHS,
    }
    await exchange.reply_json(
        {
            **settings.server_args,
            "launch_command": shlex.join(settings.argv),
            "status": "ready" if runtime.ready else "starting",
            "max_total_num_tokens": settings.kv_tokens,
            "max_req_input_len": settings.input_tokens_max,
            "startup_time": {**startup, "tokenizer_e2e": settings.load_s + settings.warmup_s},
            "hicache_object_layout": {
                "enabled": False,
                "backend": None,
                "page_size": settings.server_args["page_size"],
                "hicache_object_layout": {"pools": []},
                "reason": "Hierarchical cache is disabled",
            },
            "kv_events": None,
            "internal_states": [_internal_state(runtime, startup)],
            "version": VERSION,
            "frontend": "python",
        }
    )


def _internal_state(runtime: Runtime, startup: dict[str, Any]) -> dict[str, Any]:
    settings = runtime.settings
    memory = settings.profile.memory
    return {
        **settings.server_args,
        "world_size": settings.server_args["tp_size"] * settings.server_args["pp_size"],
        "startup_time": startup,
        "effective_max_running_requests_per_dp": settings.policy.max_running,
        "last_gen_throughput": runtime.telemetry.gen_throughput,
        "memory_usage": {
            "weight": round(memory.weight_bytes / 2**30, 3),
            "kvcache": round(settings.kv_tokens * memory.kv_token_bytes / 2**30, 3),
            "startup_available": round(memory.gpu_bytes / 2**30, 3),
            "token_capacity": settings.kv_tokens,
            "token_capacity_swa": None,
            "graph": _GRAPHS,
        },
        "decode_cuda_graph_bs": [],
        "decode_cuda_graph_memory_gb": 0.0,
    }
