"""Resolving ModelServices against pools and drafts, remembered while nothing that goes into it has changed.

Both the ModelService's and the Router's reconcilers need every accepted service of a namespace; parsing and checking
three hundred of them on each event would hold up the loop.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pydantic

from shoal_api import draftmodel, gpupool, modelservice
from shoal_api.conditions import Reason
from shoal_operator.domain import checks, resolve, values
from shoal_operator.kube.resources import Object
from shoal_operator.sglang import accept

REMEMBERED_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Catalog:
    """What ModelServices of one namespace may refer to, by name. `version` changes when any of it does."""

    pools: Mapping[str, gpupool.GPUPoolSpec]
    drafts: Mapping[str, draftmodel.DraftModelSpec]
    version: Hashable


@dataclass(frozen=True, slots=True)
class Resolved:
    """A service with what was found out about it; `service` is None only where refusals say why."""

    service: values.Service | None
    findings: checks.Findings

    @property
    def accepted(self) -> bool:
        return self.service is not None and self.findings.accepted


class Resolver:
    def __init__(self) -> None:
        self._known: dict[str, tuple[Hashable, Resolved]] = {}

    def resolve(self, item: Object, catalog: Catalog) -> Resolved:
        meta = item["metadata"]
        version = (meta.get("generation"), catalog.version)
        known = self._known.get(meta["uid"])
        if known is not None and known[0] == version:
            return known[1]
        resolved = _resolve(item, catalog)
        if len(self._known) >= REMEMBERED_MAX:
            self._known.clear()
        self._known[meta["uid"]] = (version, resolved)
        return resolved


def catalog_of(pools: Iterable[Object], drafts: Iterable[Object]) -> Catalog:
    """Objects that cannot be read are left out: whoever refers to them is told that they are missing."""
    versions: list[tuple[str, int]] = []
    read_pools: dict[str, gpupool.GPUPoolSpec] = {}
    read_drafts: dict[str, draftmodel.DraftModelSpec] = {}
    for item in pools:
        versions.append(_version(item))
        try:
            read_pools[item["metadata"]["name"]] = gpupool.GPUPoolSpec.model_validate(item.get("spec") or {})
        except pydantic.ValidationError:
            continue
    for item in drafts:
        versions.append(_version(item))
        try:
            read_drafts[item["metadata"]["name"]] = draftmodel.DraftModelSpec.model_validate(item.get("spec") or {})
        except pydantic.ValidationError:
            continue
    return Catalog(read_pools, read_drafts, tuple(sorted(versions)))


def first_error(error: pydantic.ValidationError) -> tuple[str, str]:
    """The first thing wrong: which field, and what."""
    one = error.errors(include_url=False, include_input=False)[0]
    return ".".join(str(part) for part in one["loc"]), str(one["msg"])


def _version(item: Object) -> tuple[str, int]:
    return item["metadata"]["uid"], int(item["metadata"].get("generation") or 0)


def _resolve(item: Object, catalog: Catalog) -> Resolved:
    meta = item["metadata"]
    try:
        spec = modelservice.ModelServiceSpec.model_validate(item.get("spec") or {})
    except pydantic.ValidationError as error:
        field, message = first_error(error)
        problem = values.Problem(f"spec.{field}", Reason.INVALID_SPEC, f"spec.{field}: {message}")
        return Resolved(None, checks.Findings(refusals=(problem,)))
    resolution = resolve.resolve_service(meta["name"], meta["namespace"], spec, catalog.pools, catalog.drafts)
    if resolution.service is None:
        return Resolved(None, checks.Findings(refusals=resolution.problems))
    return Resolved(resolution.service, accept.accept(resolution.service))
