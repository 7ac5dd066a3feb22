"""From a ModelService and what it refers to, to one resolved value with every default filled in, or problems.

The only module of the pure half that reads the kinds' pydantic models. Called by the reconciler on every pass and by
`shoal plan` and `shoal fit` offline. It decides nothing about hardware limits: that is `checks`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shoal_api import draftmodel, gpupool, modelservice, quantities, routes
from shoal_operator.domain import shapes, timing, values

ENGINE_IMAGE = "lmsysorg/sglang:v{version}"
RUNNING_MAX = 256
"""`--max-running-requests` where `engine.args` has none: left out, SGLang's speculation would make it 48."""
QUEUED_MAX = 64
"""`--max-queued-requests`: the engine counts every arrival between two scheduler steps, so it is sized for bursts."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """Either a service, or the problems that stand in the way."""

    service: values.Service | None
    problems: tuple[values.Problem, ...] = ()


def resolve_service(
    name: str,
    namespace: str,
    spec: modelservice.ModelServiceSpec,
    pools: Mapping[str, gpupool.GPUPoolSpec],
    drafts: Mapping[str, draftmodel.DraftModelSpec],
) -> Resolution:
    """Resolve by object name: `pools` of the cluster, `drafts` of the service's namespace."""
    problems: list[values.Problem] = []
    shape = _shape(spec.model)
    profiles = _profiles(spec, shape, pools, problems)
    draft = _draft(spec, drafts, problems)
    if problems:
        return Resolution(None, tuple(problems))
    rollout, queue = spec.rollout, spec.routing.queue
    service = values.Service(
        name=name,
        namespace=namespace,
        router=spec.router,
        served_name=spec.model.served_name,
        aliases=spec.model.aliases,
        source=spec.model.source,
        model_revision=spec.model.revision,
        quantization=spec.model.quantization,
        kv_cache_dtype=spec.model.kv_cache_dtype,
        context_tokens=spec.model.context_length,
        shape=shape,
        engine=_engine(spec.engine),
        profiles=profiles,
        draft=draft,
        running_max=_running_max(spec),
        replicas=_replicas(spec),
        scaling=_scaling(spec.scaling),
        affinity=spec.routing.affinity,
        slicing=spec.routing.slicing,
        queue=routes.Queue(
            requests_max=queue.max_requests,
            bytes_max=quantities.quantity_bytes(queue.max_bytes),
            ttl_s=quantities.duration_s(queue.ttl),
            no_replica_ttl_s=quantities.duration_s(queue.no_replica_ttl),
        ),
        rollout=values.Rollout(
            max_surge=rollout.max_surge,
            max_unavailable=rollout.max_unavailable,
            drain_timeout_s=quantities.duration_s(rollout.drain_timeout),
            paused=rollout.paused,
        ),
    )
    return Resolution(service)


def resolve_pool(name: str, spec: gpupool.GPUPoolSpec) -> values.Pool:
    """A GPUPool as a plain value."""
    given = spec.timing
    return values.Pool(
        name=name,
        gpu=spec.gpu,
        sm=int(spec.architecture.removeprefix("sm")),
        memory_bytes=quantities.quantity_bytes(spec.memory),
        resource_name=spec.resource_name,
        gpus_per_node=spec.gpus_per_node,
        node_selector=tuple(sorted(spec.node_selector.items())),
        tolerations=tuple(tuple(sorted(one.as_object().items())) for one in spec.tolerations),
        cost_per_hour=spec.cost_per_hour,
        timing=None
        if given is None
        else routes.Timing(
            a_s=given.a, b_s=given.b, c_s=given.c, alpha_s=given.alpha, beta_s=given.beta, gamma_s=given.gamma
        ),
    )


def _profiles(
    spec: modelservice.ModelServiceSpec,
    shape: values.Shape | None,
    pools: Mapping[str, gpupool.GPUPoolSpec],
    problems: list[values.Problem],
) -> tuple[values.Profile, ...]:
    """Hardware in order of preference, each with its pool. A GPU type without a pool is a problem only when none has
    one: a fleet may name GPUs that it hopes to get."""
    known = ", ".join(sorted({pool.gpu for pool in pools.values()})) or "none"
    profiles: list[values.Profile] = []
    missing: list[values.Problem] = []
    for index, entry in enumerate(spec.hardware):
        named = sorted(name for name, pool in pools.items() if pool.gpu == entry.gpu)
        if not named:
            message = f"no GPUPool has gpu {entry.gpu!r} (pools have: {known}); create one, or name another GPU"
            missing.append(values.Problem(f"spec.hardware[{index}].gpu", "GPUPoolMissing", message))
            continue
        tensor = spec.parallelism.tensor or entry.gpus_per_replica // spec.parallelism.pipeline
        parallelism = values.Parallelism(
            tensor, spec.parallelism.pipeline, spec.parallelism.expert, spec.parallelism.attention_data
        )
        pool = resolve_pool(named[0], pools[named[0]])
        if pool.timing is None:
            pool = replace(pool, timing=timing.builtin(shape, pool.gpu, entry.gpus_per_replica))
        profiles.append(values.Profile(pool, entry.gpus_per_replica, parallelism, _args(entry.args)))
    if not profiles:
        problems.extend(missing)
    return tuple(profiles)


def _draft(
    spec: modelservice.ModelServiceSpec,
    drafts: Mapping[str, draftmodel.DraftModelSpec],
    problems: list[values.Problem],
) -> values.Draft | None:
    if spec.speculative is None:
        return None
    name = spec.speculative.draft_model
    found = drafts.get(name)
    if found is None:
        message = f"no DraftModel {name!r} in this namespace; create it, or remove spec.speculative"
        problems.append(values.Problem("spec.speculative.draftModel", "DraftModelMissing", message))
        return None
    return values.Draft(
        name=name,
        algorithm=found.algorithm,
        target_source=found.target.source,
        target_revision=found.target.revision,
        source=found.source or "",
        revision=found.revision,
        steps=found.config.steps,
        topk=found.config.topk,
        draft_tokens=found.config.draft_tokens,
        block_size=found.config.block_size,
        engine_versions=tuple(sorted(found.compatibility.engine_versions)),
    )


def _shape(model: modelservice.Model) -> values.Shape | None:
    """The spec's own shape before a built-in one: its author knows what they serve."""
    own = model.shape
    if own is None:
        return shapes.builtin(model.source)
    return shapes.derive(
        shapes.Config(
            name="spec.model.shape",
            layers=own.layers,
            hidden=own.hidden_size,
            vocab=own.vocab_size,
            heads=own.heads,
            kv_heads=own.kv_heads,
            head_dim=own.head_dim,
            intermediate=own.intermediate_size,
            experts=own.experts,
            shared_experts=own.shared_experts,
            moe_intermediate=own.moe_intermediate_size,
            dense_layers=own.dense_layers,
            q_lora_rank=own.q_lora_rank,
            kv_lora_rank=own.kv_lora_rank,
            qk_nope_head_dim=own.qk_nope_head_dim,
            qk_rope_head_dim=own.qk_rope_head_dim,
            v_head_dim=own.v_head_dim,
            tied=own.tied_embeddings,
        )
    )


def _engine(engine: modelservice.Engine) -> values.Engine:
    return values.Engine(
        version=engine.version,
        image=engine.image or ENGINE_IMAGE.format(version=engine.version),
        args=_args(engine.args),
        env=tuple((one.name, _env_value(one)) for one in sorted(engine.env, key=lambda one: one.name)),
        unchecked=engine.unchecked,
    )


def _args(args: Mapping[str, values.ArgValue]) -> values.Args:
    """Flags by name without dashes; `_` and `-` are the same to a reader, so they are the same here."""
    return tuple(sorted((name.lstrip("-").replace("_", "-"), value) for name, value in args.items()))


def _running_max(spec: modelservice.ModelServiceSpec) -> int:
    """The user's own `max-running-requests` where there is one: fit and graphs are sized by it."""
    given = dict(_args(spec.engine.args)).get("max-running-requests")
    return given if isinstance(given, int) and not isinstance(given, bool) else RUNNING_MAX


def _replicas(spec: modelservice.ModelServiceSpec) -> int | None:
    """None where the scaler owns the count; 0 is a count."""
    if spec.scaling is not None:
        return None
    return 1 if spec.replicas is None else spec.replicas


def _scaling(scaling: modelservice.Scaling | None) -> values.Scaling | None:
    if scaling is None:
        return None
    itl = scaling.slo.itl
    return values.Scaling(
        min=scaling.min,
        max=scaling.max,
        ttft_slo_s=quantities.duration_s(scaling.slo.ttft),
        itl_slo_s=None if itl is None else quantities.duration_s(itl),
        target_utilization=scaling.target_utilization,
        window_s=quantities.duration_s(scaling.behavior.scale_down_window),
        starts_max=scaling.behavior.max_concurrent_starts,
    )


def _env_value(variable: modelservice.EnvVar) -> values.EnvValue:
    if variable.secret is None:
        return variable.value
    return values.SecretKey(variable.secret.name, variable.secret.key)
