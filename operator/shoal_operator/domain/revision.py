"""Revisions: the hash of what makes two replicas different, and the rendering version that it is pinned to. Pure.

The hash is over an explicit struct (`content`), versioned, not over rendered manifests: a new operator that renders
something differently computes the same hash for the same spec, so an upgrade moves no Pod. Replicas, scaling, routing,
rollout, placement (selectors, tolerations, price) and the order of hardware are not in it; the number of the struct's
version is. A golden test holds the hashes of all fixtures.

`snapshot` and `restore` turn a service into JSON and back, for a ControllerRevision: with it a revision that is no
longer in the spec can be rendered again, as long as its render version is known.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final

import pydantic

from shoal_operator.domain import values

CONTENT_VERSION: Final = 1
"""Version of the hashed struct. A new field gets a new version, and old hashes go on being computed by the old one."""
RENDER_VERSIONS: Final = ("1",)
"""Renderings that this operator knows, oldest first. One is dropped only after a release that warned of it."""
LATEST_RENDER_VERSION: Final = RENDER_VERSIONS[-1]
SHORT_CHARS: Final = 8


@dataclass(frozen=True, slots=True)
class Revision:
    """`hash` goes into an annotation, `short` into names, labels and status."""

    hash: str
    render_version: str

    @property
    def short(self) -> str:
        return self.hash[:SHORT_CHARS]


def current(service: values.Service, pinned_hash: str | None, pinned_version: str | None) -> Revision:
    """The service's revision. While the spec is the one that `pinned_hash` (whole, or its first eight digits) was made
    of, it keeps the rendering that it was pinned to; any other spec gets the latest."""
    digest = content_hash(service)
    unchanged = pinned_hash is not None and pinned_hash != "" and digest.startswith(pinned_hash)
    if unchanged and pinned_version in RENDER_VERSIONS:
        return Revision(digest, str(pinned_version))
    return Revision(digest, LATEST_RENDER_VERSION)


def content_hash(service: values.Service) -> str:
    """Hexadecimal SHA-256 of the canonical JSON of `content`."""
    text = json.dumps(content(service), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def content(service: values.Service) -> dict[str, Any]:
    """What makes Pods differ, as JSON. Adding a key here changes every hash: see CONTENT_VERSION."""
    draft = service.draft
    return {
        "version": CONTENT_VERSION,
        "model": {
            "source": service.source,
            "revision": service.model_revision,
            "servedName": service.served_name,
            "quantization": service.quantization,
            "kvCacheDtype": service.kv_cache_dtype,
            "contextTokens": service.context_tokens,
        },
        "engine": {
            "version": service.engine.version,
            "image": service.engine.image,
            "args": _args(service.engine.args),
            "env": [[name, _env_value(value)] for name, value in service.engine.env],
            "unchecked": service.engine.unchecked,
        },
        "limits": {"running": service.running_max, "queued": service.queued_max},
        "draft": None
        if draft is None
        else {
            "algorithm": draft.algorithm,
            "source": draft.source,
            "revision": draft.revision,
            "steps": draft.steps,
            "topk": draft.topk,
            "draftTokens": draft.draft_tokens,
            "blockSize": draft.block_size,
        },
        "hardware": sorted((_profile(profile) for profile in service.profiles), key=lambda one: str(one["gpu"])),
    }


def _env_value(value: values.EnvValue) -> str | dict[str, str]:
    return value if isinstance(value, str) else {"secret": value.name, "key": value.key}


def _profile(profile: values.Profile) -> dict[str, Any]:
    spread = profile.parallelism
    return {
        "gpu": profile.gpu,
        "gpus": profile.gpus,
        "resource": profile.pool.resource_name,
        "parallelism": [spread.tensor, spread.pipeline, spread.expert, spread.attention_data],
        "args": _args(profile.args),
    }


def _args(args: values.Args) -> list[list[Any]]:
    return [[name, list(value) if isinstance(value, tuple) else value] for name, value in args]


_SERVICE = pydantic.TypeAdapter(values.Service)


def snapshot(service: values.Service) -> dict[str, Any]:
    """The service as JSON: the `data` of a ControllerRevision."""
    data: dict[str, Any] = _SERVICE.dump_python(service, mode="json")
    return data


def restore(data: dict[str, Any]) -> values.Service:
    """The service that `snapshot` made this from; `pydantic.ValidationError` where it is something else."""
    return _SERVICE.validate_python(data)
