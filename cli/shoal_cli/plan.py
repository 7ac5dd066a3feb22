"""`shoal plan` and `shoal fit`: the operator's own pure functions on files, without a cluster.

Resolution, checks, fit, rollout planner and rendering are the operator's code, unchanged: what is shown is what it
would do. GPUPools and DraftModels that a ModelService refers to must be in the files as well.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import yaml

from shoal_cli import manifests
from shoal_operator.domain import checks, fleet, resolve, revision, values
from shoal_operator.render import bundle, text
from shoal_operator.sglang import accept


@dataclass(frozen=True, slots=True)
class Subject:
    """One ModelService of the files; `service` is None where it could not be resolved."""

    name: str
    service: values.Service | None
    findings: checks.Findings


_files = click.option(
    "-f",
    "--file",
    "files",
    type=click.Path(exists=True, path_type=Path),
    multiple=True,
    required=True,
    help="YAML file or folder; may be given more than once.",
)


@click.command()
@_files
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "yaml"]),
    default="text",
    show_default=True,
    help="yaml: all manifests.",
)
def plan(files: tuple[Path, ...], output: str) -> None:
    """Show command lines, rollout steps or manifests of the ModelServices in FILES.

    Exits 1 where the operator would refuse one.
    """
    refused = False
    for subject in _subjects(files):
        if subject.service is None or not subject.findings.accepted:
            refused = True
            click.echo(f"{subject.name}: refused:\n{text.problems_text(subject.findings.refusals)}", err=True)
        elif output == "yaml":
            click.echo(_manifests(subject.service))
        else:
            click.echo(f"{subject.name}: {_steps(subject.service)}")
    if refused:
        raise SystemExit(1)


@click.command()
@_files
def fit(files: tuple[Path, ...]) -> None:
    """Say whether the ModelServices in FILES fit their GPUs, and how much KV cache is left.

    Exits 1 where one is refused.
    """
    refused = False
    for subject in _subjects(files):
        refused = refused or not subject.findings.accepted
        if subject.service is None:
            click.echo(f"{subject.name}: refused:\n{text.problems_text(subject.findings.refusals)}")
        else:
            click.echo(text.fit_text(subject.service, subject.findings))
    if refused:
        raise SystemExit(1)


def _steps(service: values.Service) -> str:
    """From an empty fleet to the wanted one, with room for everything."""
    current = revision.current(service, None, None)
    world = fleet.Fleet(
        target=current.short,
        desired=_desired(service),
        replicas=(),
        room=dict.fromkeys(profile.gpu for profile in service.profiles),
        creatable=frozenset({current.short}),
    )
    return text.plan_text(service, current, world)


def _manifests(service: values.Service) -> str:
    """As if every replica found room on the preferred GPU."""
    replicas = [(number, service.profiles[0]) for number in range(_desired(service))]
    made = bundle.render_all(service, revision.current(service, None, None), replicas)
    return yaml.safe_dump_all(made, sort_keys=False)


def _desired(service: values.Service) -> int:
    """The count before anything is measured."""
    return service.scaling.min if service.scaling else service.replicas or 0


def _subjects(files: tuple[Path, ...]) -> Iterator[Subject]:
    try:
        found = manifests.read(files)
    except (manifests.ManifestError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if not found.services:
        raise click.ClickException("no ModelService in the files")
    for name, item in found.services.items():
        namespace = item.metadata.namespace or "default"
        resolution = resolve.resolve_service(name, namespace, item.spec, found.pools, found.drafts)
        if resolution.service is None:
            yield Subject(name, None, checks.Findings(refusals=resolution.problems))
        else:
            yield Subject(name, resolution.service, accept.accept(resolution.service))
