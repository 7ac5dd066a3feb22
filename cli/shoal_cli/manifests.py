"""Reads Shoal's own kinds from YAML files, for the commands that work offline.

Whatever the models refuse is refused here with file, object and field; kinds of others are passed over.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pydantic
import yaml
from pydantic_core import ErrorDetails

from shoal_api import draftmodel, gpupool, keys, modelservice

Model = TypeVar("Model", bound=pydantic.BaseModel)


class ManifestError(ValueError):
    """A file is not YAML, or an object is not valid; the message says which and why."""


@dataclass(slots=True)
class Manifests:
    services: dict[str, modelservice.ModelService] = field(default_factory=dict)
    pools: dict[str, gpupool.GPUPoolSpec] = field(default_factory=dict)
    drafts: dict[str, draftmodel.DraftModelSpec] = field(default_factory=dict)


def read(paths: tuple[Path, ...]) -> Manifests:
    """All objects of the files, and of the YAML files in the folders, by name. Raises ManifestError, OSError."""
    found = Manifests()
    for path in _files(paths):
        for document in _documents(path):
            if document.get("apiVersion") != keys.API_VERSION:
                continue
            _take(found, path, document)
    return found


def _take(found: Manifests, path: Path, document: dict[str, Any]) -> None:
    kind = document.get("kind")
    if kind == "ModelService":
        service = _valid(modelservice.ModelService, path, document)
        found.services[service.metadata.name] = service
    elif kind == "GPUPool":
        pool = _valid(gpupool.GPUPool, path, document)
        found.pools[pool.metadata.name] = pool.spec
    elif kind == "DraftModel":
        draft = _valid(draftmodel.DraftModel, path, document)
        found.drafts[draft.metadata.name] = draft.spec


def _valid(model: type[Model], path: Path, document: dict[str, Any]) -> Model:
    try:
        return model.model_validate(document)
    except pydantic.ValidationError as error:
        name = (document.get("metadata") or {}).get("name", "?")
        lines = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}{_hint(one)}" for one in error.errors()]
        raise ManifestError(f"{path}: {document['kind']} {name}: " + "; ".join(lines)) from error


def _hint(error: ErrorDetails) -> str:
    """`Off` is a word of some fields, and YAML's word for false."""
    if error["type"] == "literal_error" and error["input"] is False:
        return ' (YAML takes a bare Off for false: write "Off")'
    return ""


def _files(paths: tuple[Path, ...]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(one for one in path.iterdir() if one.suffix in {".yaml", ".yml"})
        else:
            yield path


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    try:
        documents = list(yaml.safe_load_all(path.read_text()))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ManifestError(f"{path}: {error}") from error
    yield from (document for document in documents if isinstance(document, dict))
