"""Ordered, named checks of a resolved service. Hard ones refuse it (`Accepted=False`), soft ones warn. Pure.

A check reads as a fact, looks at one profile or at the service, and returns a Problem with the fix in its message, or
None. Nothing is created for a service that a hard check refuses, so no GPU is taken for what cannot run. With several
hardware profiles, one that cannot run the model is a refusal too: the fleet could grow there.
"""

from collections.abc import Callable
from dataclasses import dataclass

from shoal_api.conditions import Reason
from shoal_operator.domain import fit, values

BLACKWELL_SM = 100
FP8_SM = 89


@dataclass(frozen=True, slots=True)
class Findings:
    """What the checks found, in their order. `fits` is aligned with the service's profiles."""

    refusals: tuple[values.Problem, ...] = ()
    warnings: tuple[values.Problem, ...] = ()
    fits: tuple[fit.Fit | None, ...] = ()

    @property
    def accepted(self) -> bool:
        return not self.refusals


ServiceCheck = Callable[[values.Service], values.Problem | None]
ProfileCheck = Callable[[values.Service, values.Profile], values.Problem | None]


def run_checks(service: values.Service) -> Findings:
    """Refusals and warnings that need no knowledge of the engine's flags; `sglang.accept` adds those that do."""
    refusals = [problem for problem in (check(service) for check in SERVICE_REFUSALS) if problem]
    warnings = [problem for problem in (check(service) for check in SERVICE_WARNINGS) if problem]
    refusals += over_profiles(service, PROFILE_REFUSALS)
    warnings += over_profiles(service, PROFILE_WARNINGS)
    return Findings(tuple(refusals), tuple(warnings))


def over_profiles(service: values.Service, checks: tuple[ProfileCheck, ...]) -> list[values.Problem]:
    """The problems that the checks find, profile by profile."""
    found = (check(service, profile) for profile in service.profiles for check in checks)
    return [problem for problem in found if problem]


def draft_for_another_target(service: values.Service) -> values.Problem | None:
    draft = service.draft
    if draft is None or draft.target_source == service.source:
        return None
    message = (
        f"DraftModel {draft.name} was made for {draft.target_source}, not {service.source}; "
        "choose another, or correct its spec.target.source"
    )
    return values.Problem("spec.speculative.draftModel", Reason.DRAFT_MODEL_MISMATCH, message)


def draft_for_another_revision(service: values.Service) -> values.Problem | None:
    draft = service.draft
    if draft is None or draft.target_revision is None or draft.target_revision == service.model_revision:
        return None
    message = (
        f"DraftModel {draft.name} was made for revision {draft.target_revision}, the model is at "
        f"{service.model_revision or 'no fixed revision'}; set spec.model.revision to it"
    )
    return values.Problem("spec.model.revision", Reason.DRAFT_MODEL_MISMATCH, message)


def draft_for_another_engine(service: values.Service) -> values.Problem | None:
    draft = service.draft
    if draft is None or not draft.engine_versions or service.engine.version in draft.engine_versions:
        return None
    message = f"DraftModel {draft.name} runs with engine {', '.join(draft.engine_versions)}: set spec.engine.version"
    return values.Problem("spec.engine.version", Reason.DRAFT_MODEL_MISMATCH, message)


def shape_unknown(service: values.Service) -> values.Problem | None:
    if service.shape is not None:
        return None
    message = f"no built-in shape for {service.source}: capacity is not checked; give spec.model.shape"
    return values.Problem("spec.model.shape", Reason.CAPACITY_UNKNOWN, message)


def nextn_layer_missing(service: values.Service) -> values.Problem | None:
    """NEXTN decodes with the target's own extra layer, which Kimi K2 checkpoints do not have."""
    draft = service.draft
    if draft is None or draft.algorithm != "NEXTN" or service.shape is None:
        return None
    if not service.shape.name.startswith(("kimi-k2", "llama", "tiny-llama")):
        return None
    message = f"{service.shape.name} has no NEXTN layer: use a DraftModel with algorithm EAGLE3 or DFLASH"
    return values.Problem("spec.speculative.draftModel", Reason.DRAFT_MODEL_MISMATCH, message)


def gpus_not_parallelism(service: values.Service, profile: values.Profile) -> values.Problem | None:
    spread = profile.parallelism
    if profile.gpus == spread.gpus:
        return None
    message = (
        f"{profile.gpu}: gpusPerReplica {profile.gpus} is not tensor {spread.tensor} x pipeline {spread.pipeline}; "
        "leave parallelism.tensor out to follow gpusPerReplica"
    )
    return values.Problem("spec.parallelism.tensor", Reason.INVALID_SPEC, message)


def replica_wider_than_node(service: values.Service, profile: values.Profile) -> values.Problem | None:
    if profile.gpus <= profile.pool.gpus_per_node:
        return None
    message = (
        f"{profile.gpu}: a replica of {profile.gpus} GPUs does not fit on one node of GPUPool {profile.pool.name} with "
        f"{profile.pool.gpus_per_node}; set gpusPerReplica to {profile.pool.gpus_per_node} or less"
    )
    return values.Problem("spec.hardware", Reason.HARDWARE_UNSUPPORTED, message)


def tensor_not_divided(service: values.Service, profile: values.Profile) -> values.Problem | None:
    spread = profile.parallelism
    for name, size in (("attentionData", spread.attention_data), ("expert", spread.expert)):
        if spread.tensor % size:
            message = f"{profile.gpu}: parallelism.{name} {size} does not divide tensor {spread.tensor}"
            return values.Problem(f"spec.parallelism.{name}", Reason.INVALID_SPEC, message)
    return None


def nvfp4_kv_below_blackwell(service: values.Service, profile: values.Profile) -> values.Problem | None:
    if service.kv_cache_dtype != "nvfp4" or profile.pool.sm >= BLACKWELL_SM:
        return None
    message = (
        f"{profile.gpu} (sm{profile.pool.sm}) has no NVFP4 arithmetic for the KV cache; it needs sm{BLACKWELL_SM} or "
        "later: set model.kvCacheDtype to fp8_e4m3"
    )
    return values.Problem("spec.model.kvCacheDtype", Reason.HARDWARE_UNSUPPORTED, message)


def nvfp4_kv_for_latents(service: values.Service, profile: values.Profile) -> values.Problem | None:
    """SGLang's MLA backends on Blackwell keep the latent at 16 or 8 bits only."""
    if service.kv_cache_dtype not in ("nvfp4", "fp8_e5m2") or service.shape is None or service.shape.attention != "mla":
        return None
    message = f"MLA models keep their KV cache as bf16 or fp8_e4m3, not {service.kv_cache_dtype}: use fp8_e4m3"
    return values.Problem("spec.model.kvCacheDtype", Reason.HARDWARE_UNSUPPORTED, message)


def fp8_below_ada(service: values.Service, profile: values.Profile) -> values.Problem | None:
    if profile.pool.sm >= FP8_SM or not service.kv_cache_dtype.startswith("fp8"):
        return None
    message = f"{profile.gpu} (sm{profile.pool.sm}) has no FP8; set model.kvCacheDtype to bf16"
    return values.Problem("spec.model.kvCacheDtype", Reason.HARDWARE_UNSUPPORTED, message)


def nvfp4_weights_below_blackwell(service: values.Service, profile: values.Profile) -> values.Problem | None:
    if service.quantization not in ("nvfp4", "mxfp4") or profile.pool.sm >= BLACKWELL_SM:
        return None
    message = (
        f"{profile.gpu} (sm{profile.pool.sm}) has no 4-bit arithmetic: {service.quantization} weights are unpacked for "
        "every multiplication and save memory only; fp8 is faster there"
    )
    return values.Problem("spec.model.quantization", Reason.WEIGHT_ONLY_QUANTIZATION, message)


def does_not_fit(found: fit.Fit) -> values.Problem:
    """The problem that a failed fit is: a refusal where the spec states the weight format, else a warning."""
    gib = fit.GIB
    message = (
        f"{found.gpus} x {found.gpu}: {found.weight_bytes / gib:.1f} GiB of {found.weight_format} weights and "
        f"{found.context_tokens * found.kv_bytes_per_token / gib:.1f} GiB of KV for one context of "
        f"{found.context_tokens} tokens do not fit into {found.memory_bytes / gib:.1f} GiB a GPU with "
        f"{found.reserve_bytes / gib:.1f} GiB reserved; {found.remedy}"
    )
    reason = Reason.MAY_NOT_FIT if found.assumed else Reason.DOES_NOT_FIT
    return values.Problem("spec.hardware", reason, message)


SERVICE_REFUSALS: tuple[ServiceCheck, ...] = (
    draft_for_another_target,
    draft_for_another_revision,
    draft_for_another_engine,
    nextn_layer_missing,
)
PROFILE_REFUSALS: tuple[ProfileCheck, ...] = (
    gpus_not_parallelism,
    replica_wider_than_node,
    tensor_not_divided,
    nvfp4_kv_below_blackwell,
    nvfp4_kv_for_latents,
    fp8_below_ada,
)
SERVICE_WARNINGS: tuple[ServiceCheck, ...] = (shape_unknown,)
PROFILE_WARNINGS: tuple[ProfileCheck, ...] = (nvfp4_weights_below_blackwell,)
