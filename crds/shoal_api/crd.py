"""The CustomResourceDefinitions of Shoal's kinds, made from the pydantic models, and the files that hold them.

`shoal crds` calls `main`: it writes crds/*.yaml, the chart's copy and the field tables of docs/kinds, and with
`--check` tells what differs from the models. Nothing else may edit those.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel

from shoal_api import draftmodel, gpupool, keys, modelservice, reference, router, structural

HEADER: Final = "# Written by `shoal crds` from crds/shoal_api. Edit the models, not this file.\n"
SCHEMA_HASH: Final = "shoal.dev/schema-hash"
"""Annotation with a hash of the definition. The chart compares it, so that an upgrade with old CRDs is refused."""
CATEGORY: Final = "shoal"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`; priority 1 shows with `-o wide` only."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0

    def as_column(self) -> dict[str, Any]:
        """As an entry of `additionalPrinterColumns`."""
        return {"name": self.name, "type": self.type, "jsonPath": self.path, "priority": self.priority}


@dataclass(frozen=True, slots=True)
class Scale:
    """Where the scale subresource finds its figures."""

    spec_path: str
    status_path: str
    selector_path: str


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind: its models and what `kubectl` shows of it."""

    kind: str
    plural: str
    short: str
    namespaced: bool
    root: type[BaseModel]
    spec: type[BaseModel]
    status: type[BaseModel]
    columns: tuple[Column, ...]
    scale: Scale | None = None

    @property
    def name(self) -> str:
        """Name of the CustomResourceDefinition."""
        return f"{self.plural}.{keys.GROUP}"

    @property
    def file(self) -> str:
        return f"{self.plural}.yaml"


def _condition(type_: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{type_}")].{field}'


def _ready(condition: str = "Ready") -> Column:
    return Column(condition, _condition(condition, "status"))


def _reason(condition: str = "Ready") -> tuple[Column, ...]:
    return (
        Column("Reason", _condition(condition, "reason")),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Message", _condition(condition, "message"), priority=1),
    )


_SCALE: Final = Scale(".spec.replicas", ".status.replicas.ready", ".status.selector")

KINDS: Final = (
    Kind(
        "ModelService",
        "modelservices",
        "msvc",
        True,
        modelservice.ModelService,
        modelservice.ModelServiceSpec,
        modelservice.ModelServiceStatus,
        (
            _ready(),
            Column("Revision", ".status.currentRevision"),
            Column("Replicas", ".status.replicas.summary"),
            *_reason(),
            Column("Model", ".spec.model.servedName", priority=1),
            Column("URL", ".status.url", priority=1),
        ),
        _SCALE,
    ),
    Kind(
        "GPUPool",
        "gpupools",
        "gpup",
        False,
        gpupool.GPUPool,
        gpupool.GPUPoolSpec,
        gpupool.GPUPoolStatus,
        (
            _ready(),
            Column("GPU", ".spec.gpu"),
            Column("Nodes", ".status.nodes", "integer"),
            Column("Free", ".status.gpus.summary"),
            Column("Block", ".status.largestFreeBlock", "integer"),
            *_reason(),
        ),
    ),
    Kind(
        "Router",
        "routers",
        "shr",
        True,
        router.Router,
        router.RouterSpec,
        router.RouterStatus,
        (
            _ready(),
            Column("Replicas", ".status.replicas.summary"),
            Column("URL", ".status.url"),
            *_reason(),
        ),
        _SCALE,
    ),
    Kind(
        "DraftModel",
        "draftmodels",
        "draft",
        True,
        draftmodel.DraftModel,
        draftmodel.DraftModelSpec,
        draftmodel.DraftModelStatus,
        (
            _ready("Accepted"),
            Column("Algorithm", ".spec.algorithm"),
            Column("Target", ".spec.target.source"),
            *_reason("Accepted"),
        ),
    ),
)


def schema_of(kind: Kind) -> dict[str, Any]:
    """The whole schema of one kind, from apiVersion to status."""
    root = structural.of_model(kind.root, defaults=True)
    schema: dict[str, Any] = {
        "type": "object",
        "description": root["description"],
        "required": ["spec"] if kind.root.model_fields["spec"].is_required() else [],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": root["properties"]["spec"],
            "status": structural.of_model(kind.status, defaults=False),
        },
    }
    if not schema["required"]:
        del schema["required"]
    if "x-kubernetes-validations" in root:
        schema["x-kubernetes-validations"] = root["x-kubernetes-validations"]
    return schema


def definition_of(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition of one kind."""
    subresources: dict[str, Any] = {"status": {}}
    if kind.scale is not None:
        subresources["scale"] = {
            "specReplicasPath": kind.scale.spec_path,
            "statusReplicasPath": kind.scale.status_path,
            "labelSelectorPath": kind.scale.selector_path,
        }
    spec = {
        "group": keys.GROUP,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "names": {
            "kind": kind.kind,
            "listKind": f"{kind.kind}List",
            "plural": kind.plural,
            "singular": kind.kind.lower(),
            "shortNames": [kind.short],
            "categories": [CATEGORY],
        },
        "versions": [
            {
                "name": keys.VERSION,
                "served": True,
                "storage": True,
                "subresources": subresources,
                "additionalPrinterColumns": [column.as_column() for column in kind.columns],
                "schema": {"openAPIV3Schema": schema_of(kind)},
            }
        ],
    }
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.name, "annotations": {SCHEMA_HASH: digest}},
        "spec": spec,
    }


class _Dumper(yaml.SafeDumper):
    """Writes equal parts twice instead of as YAML anchors, which `kubectl` reads but people do not."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def yaml_of(kind: Kind) -> str:
    """The file of one kind."""
    return HEADER + yaml.dump(definition_of(kind), Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)


def files(checkout: Path) -> dict[Path, str]:
    """Every generated file of a checkout and what it should hold. Pages of docs/kinds are read for their prose."""
    wanted: dict[Path, str] = {}
    for kind in KINDS:
        text = yaml_of(kind)
        wanted[checkout / "crds" / kind.file] = text
        wanted[checkout / "charts" / "shoal" / "crds" / kind.file] = text
        page = checkout / "docs" / "kinds" / f"{kind.kind.lower()}.md"
        if page.is_file():
            wanted[page] = reference.with_tables(page.read_text(), schema_of(kind))
    return wanted


def drift(checkout: Path) -> list[str]:
    """What differs from the models, one line a file; empty when nothing does."""
    wanted = files(checkout)
    found = [
        f"{path.relative_to(checkout)}: {'differs from' if path.is_file() else 'missing, made from'} the models"
        for path, text in wanted.items()
        if not path.is_file() or path.read_text() != text
    ]
    for folder in (checkout / "crds", checkout / "charts" / "shoal" / "crds"):
        found += [
            f"{path.relative_to(checkout)}: no kind has this file"
            for path in sorted(folder.glob("*.yaml"))
            if path not in wanted
        ]
    found += [
        f"docs/kinds/{kind.kind.lower()}.md: missing"
        for kind in KINDS
        if not (checkout / "docs" / "kinds" / f"{kind.kind.lower()}.md").is_file()
    ]
    return found


def write(checkout: Path) -> list[Path]:
    """Bring the generated files of a checkout up to date; returns those that changed."""
    changed = []
    for path, text in files(checkout).items():
        if not path.is_file() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            changed.append(path)
    return changed


def write_definitions(folder: Path) -> list[Path]:
    """Write the definitions alone into any folder; returns all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for kind in KINDS:
        path = folder / kind.file
        path.write_text(yaml_of(kind))
        written.append(path)
    return written


def _checkout() -> Path:
    """The checkout that this package runs from."""
    root = Path(__file__).resolve().parents[2]
    if not (root / "crds" / "shoal_api").is_dir():
        raise SystemExit("Not in a checkout of the project: name a folder with --out, or --out - to print.")
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry of `shoal crds`; returns the exit status."""
    parser = argparse.ArgumentParser(prog="shoal crds", description="Write the CustomResourceDefinitions.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where files differ from the models")
    parser.add_argument("--out", metavar="DIR", help="write the definitions there instead; - prints them")
    options = parser.parse_args(arguments)
    if options.check:
        problems = drift(_checkout())
        for line in problems:
            sys.stderr.write(f"{line}\n")
        if problems:
            sys.stderr.write("Run `shoal crds` and commit the result.\n")
        return 1 if problems else 0
    if options.out == "-":
        sys.stdout.write("---\n".join(yaml_of(kind) for kind in KINDS))
        return 0
    written = write_definitions(Path(options.out)) if options.out else write(_checkout())
    for path in written:
        sys.stdout.write(f"{path}\n")
    return 0
