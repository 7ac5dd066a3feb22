"""From a resolved service and one hardware profile to the engine's command line and environment. Pure.

Everything whose default would change behaviour behind the operator's back is explicit. Merged in this order, the later
wins: what the operator renders, `engine.args`, the profile's `args`; flags that the operator owns are refused there
(see `OWNED`), so a merge never changes who is right. KV events and the load feed are not asked for: no router of this
version reads them, and the engine's sockets for them know no authentication.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shoal_api import keys
from shoal_operator.domain import values
from shoal_operator.sglang import flags

COMMAND: Final = ("python3", "-m", "sglang.launch_server")
CACHE_PATH: Final = "/cache"
"""Where the cache volume is mounted: weights, and kernels compiled at start."""
MODELS_PATH: Final = "/models"
"""Where a claim of a `pvc://` source is mounted."""
DRAFT_PATH: Final = "/draft"
PAGE_TOKENS: Final = 64
QUANTIZATION_FLAG: Final[Mapping[str, str]] = {"nvfp4": "modelopt_fp4", "fp8": "fp8", "mxfp4": "mxfp4"}
"""SGLang's name of a weight format. The int4 formats are several, told apart by the checkpoint alone."""

_TOPOLOGY = "spec.parallelism and spec.hardware"
OWNED: Final[Mapping[str, str]] = {
    "host": "the Pod's address",
    "port": f"always {keys.ENGINE_PORT}",
    "model-path": "spec.model.source",
    "revision": "spec.model.revision",
    "served-model-name": "spec.model.servedName",
    "context-length": "spec.model.contextLength",
    "kv-cache-dtype": "spec.model.kvCacheDtype",
    "tp-size": _TOPOLOGY,
    "pp-size": _TOPOLOGY,
    "ep-size": _TOPOLOGY,
    "attn-dp-size": _TOPOLOGY,
    "dp-size": "spec.replicas: routers balance between replicas better than one engine process does",
    "nnodes": "one node a replica",
    "node-rank": "one node a replica",
    "dist-init-addr": "one node a replica",
    "page-size": "the routers' mirror of the cache",
    "enable-metrics": "always on",
    "enable-cache-report": "always on: routers calibrate by it",
    "speculative-algorithm": "spec.speculative",
    "speculative-draft-model-path": "spec.speculative",
    "speculative-draft-model-revision": "spec.speculative",
    "speculative-num-steps": "the DraftModel's config",
    "speculative-eagle-topk": "the DraftModel's config",
    "speculative-num-draft-tokens": "the DraftModel's config",
    "speculative-dflash-block-size": "the DraftModel's config",
    "disaggregation-mode": "prefill and decode run in one engine in this version",
    "api-key": "routers reach engines without a key",
    "admin-api-key": "routers reach engines without a key",
    "ssl-keyfile": "routers reach engines without TLS",
    "ssl-certfile": "routers reach engines without TLS",
    "smg-grpc-mode": "routers speak HTTP to engines",
    "config": "a file could contradict the spec: put its entries into engine.args",
}
"""Flags that `args` may not set, each with what decides it."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Container command, arguments and environment. `$(POD_IP)` in argv is expanded by the kubelet."""

    command: tuple[str, ...]
    argv: tuple[str, ...]
    env: tuple[tuple[str, values.EnvValue], ...]


def merged_flags(service: values.Service, profile: values.Profile) -> dict[str, values.ArgValue]:
    """Flags by name after the merge, in the order in which they are rendered. Deprecated and unknown ones in `args` are
    `arg_problems`' business; here they are left out, or passed on verbatim under `engine.unchecked`."""
    found = flags.table(service.engine.version)
    merged = _intent(service, profile)
    for name, value in (*service.engine.args, *profile.args):
        flag = None if found is None else found.flags.get(name)
        merged.pop(flag.name if flag else name, None)
        merged[flag.name if flag else name] = value
    return merged


def render_launch(service: values.Service, profile: values.Profile) -> Launch:
    """The engine's command line on this profile. Assumes that `arg_problems` and the checks found nothing."""
    known = flags.table(service.engine.version)
    argv: list[str] = []
    for name, value in merged_flags(service, profile).items():
        flag = known.flags.get(name) if known is not None else None
        argv += flags.as_argv(flag or flags.Flag(name, "value", "str"), value)
    return Launch(COMMAND, tuple(argv), _env(service, profile))


def arg_problems(service: values.Service) -> tuple[values.Problem, ...]:
    """What is wrong with `engine.version`, `engine.args` and the profiles' `args`."""
    if service.engine.unchecked:
        return ()
    known = flags.table(service.engine.version)
    if known is None:
        message = (
            f"no flag table for SGLang {service.engine.version}; supported: {', '.join(flags.SUPPORTED_VERSIONS)}. "
            "Choose one of them, or set engine.unchecked: true to pass engine.args verbatim"
        )
        return (values.Problem("spec.engine.version", "EngineVersionUnsupported", message),)
    fields = [("spec.engine.args", service.engine.args)]
    fields += [(f"spec.hardware[{profile.gpu}].args", profile.args) for profile in service.profiles]
    problems: list[values.Problem] = []
    for field, args in fields:
        seen: dict[str, str] = {}
        for name, value in args:
            problem = _arg_problem(known, name, value, seen)
            if problem is not None:
                problems.append(values.Problem(f"{field}[{name}]", "EngineArgsInvalid", problem))
    return tuple(problems)


def _arg_problem(known: flags.Table, name: str, value: values.ArgValue, seen: dict[str, str]) -> str | None:
    flag = known.find(name)
    if isinstance(flag, str):
        return flag
    if flag.name in seen:
        return f"--{name} and --{seen[flag.name]} are the same flag: keep one"
    seen[flag.name] = name
    if flag.name in OWNED:
        return f"--{flag.name} belongs to the operator ({OWNED[flag.name]}): remove it"
    if flag.replacement is not None:
        return f"--{flag.name} is deprecated: use --{flag.replacement.removeprefix('--')}"
    return flags.value_problem(flag, value)


def page_tokens(service: values.Service) -> int:
    """Tokens of a cache page. NGRAM drafts a tree, which SGLang checks correctly on single-token pages only."""
    return 1 if service.draft is not None and service.draft.algorithm == "NGRAM" else PAGE_TOKENS


def model_path(source: str, mount: str = MODELS_PATH) -> str:
    """What SGLang is given for a source: hub name, object storage address, or a path that the Pod mounts."""
    scheme, _, rest = source.partition("://")
    if scheme == "hf":
        return rest
    if scheme == "pvc":
        _, _, path = rest.partition("/")
        return f"{mount}/{path}".rstrip("/")
    return rest if scheme == "file" else source


def _intent(service: values.Service, profile: values.Profile) -> dict[str, values.ArgValue]:
    """What the operator renders by itself."""
    spread = profile.parallelism
    wanted: dict[str, values.ArgValue | None] = {
        "model-path": model_path(service.source),
        "revision": service.model_revision,
        "served-model-name": service.served_name,
        "host": "$(POD_IP)",
        "port": keys.ENGINE_PORT,
        "tp-size": spread.tensor,
        "pp-size": spread.pipeline if spread.pipeline > 1 else None,
        "ep-size": spread.expert if spread.expert > 1 else None,
        "attn-dp-size": spread.attention_data if spread.attention_data > 1 else None,
        "context-length": service.context_tokens,
        "quantization": QUANTIZATION_FLAG.get(service.quantization),
        "dtype": "bfloat16" if service.quantization == "bf16" else None,
        "kv-cache-dtype": None if service.kv_cache_dtype == "auto" else service.kv_cache_dtype,
        "page-size": page_tokens(service),
        "max-running-requests": service.running_max,
        "max-queued-requests": service.queued_max,
        "enable-metrics": True,
        "enable-cache-report": True,
        **_speculation(service, profile),
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _speculation(service: values.Service, profile: values.Profile) -> dict[str, values.ArgValue | None]:
    draft = service.draft
    if draft is None:
        return {}
    quantized = service.quantization in QUANTIZATION_FLAG and bool(draft.source)
    lm_head = draft.algorithm == "DFLASH" and profile.parallelism.attention_data > 1
    return {
        "speculative-algorithm": draft.algorithm,
        "speculative-draft-model-path": model_path(draft.source, DRAFT_PATH) if draft.source else None,
        "speculative-draft-model-revision": draft.revision,
        # Without it a draft takes over the target's quantization; a quantized draft's own config still wins.
        "speculative-draft-model-quantization": "unquant" if quantized else None,
        "speculative-num-steps": draft.steps,
        "speculative-eagle-topk": draft.topk,
        "speculative-num-draft-tokens": draft.draft_tokens,
        "speculative-dflash-block-size": draft.block_size,
        "enable-dp-lm-head": True if lm_head else None,
    }


def _env(service: values.Service, profile: values.Profile) -> tuple[tuple[str, values.EnvValue], ...]:
    """Environment, the user's own last so that it wins."""
    env: dict[str, values.EnvValue] = {
        # Lets a router set the request id without touching the body.
        "SGLANG_ENABLE_REQUEST_HEADER_OVERRIDES": "1",
        # uvicorn's own 5 s would race the routers' pooled connections.
        "SGLANG_TIMEOUT_KEEP_ALIVE": "300",
        # /health answers from a flag: the liveness probe must not queue behind a long prefill.
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",
        "SGLANG_CACHE_DIR": f"{CACHE_PATH}/sglang",
        "HF_HOME": f"{CACHE_PATH}/huggingface",
    }
    draft = service.draft
    if draft is not None and draft.algorithm == "DFLASH" and profile.parallelism.attention_data > 1:
        env["SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION"] = "0"
    return tuple({**env, **dict(service.engine.env)}.items())
