"""`shoal plan` and `shoal fit`: the operator's own pure functions on files, without a cluster.

Resolution, checks, fit and engine command line are the operator's code, unchanged: what is shown is what it would do.
GPUPools and DraftModels that a ModelService refers to must be in the files as well.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from shoal_api import modelservice
from shoal_cli import manifests
from shoal_operator.domain import fit as fitting
from shoal_operator.domain import resolve, values
from shoal_operator.sglang import launch

GIB = 1 << 30

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
def plan(files: tuple[Path, ...]) -> None:
    """Show engine command lines and fit of the ModelServices in FILES. Exits 1 where the operator would refuse one."""
    console = Console()
    refused = False
    for name, service, problems in _resolved(files):
        console.print(name, style="bold")
        for problem in problems:
            refused = True
            console.print(f"  {problem.field}: {problem.reason}: {problem.message}", highlight=False, soft_wrap=True)
        if service is None or problems:
            continue
        console.print(fit_table(service))
        for profile in service.profiles:
            started = launch.render_launch(service, profile)
            console.print(f"  {profile.gpu} x {profile.gpus}:", highlight=False)
            line = shlex.join((*started.command, *started.argv))
            console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
            for variable, value in started.env:
                console.print(f"    {variable}={value}", highlight=False, markup=False, soft_wrap=True)
    if refused:
        raise SystemExit(1)


@click.command()
@_files
def fit(files: tuple[Path, ...]) -> None:
    """Say whether the ModelServices in FILES fit their GPUs. Exits 1 where one does not."""
    console = Console()
    failed = False
    for name, service, problems in _resolved(files):
        console.print(name, style="bold")
        if service is None:
            failed = True
            for problem in problems:
                console.print(f"  {problem.field}: {problem.message}", highlight=False, soft_wrap=True)
            continue
        console.print(fit_table(service))
        for profile, found in _fits(service):
            if found is not None and not found.fits:
                failed = True
                console.print(f"  {profile.gpu}: does not fit; {found.remedy}", highlight=False, soft_wrap=True)
    if failed:
        raise SystemExit(1)


def fit_table(service: values.Service) -> Table:
    """One row a hardware profile: memory of one GPU, KV of one replica."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = ("GPU", "GPUS", "WEIGHTS/GPU", "RESERVE/GPU", "KV/GPU", "KV TOKENS", "CONTEXT", "FULL SESSIONS", "FITS")
    for column in columns:
        table.add_column(column)
    for profile, found in _fits(service):
        if found is None:
            table.add_row(profile.gpu, str(profile.gpus), *["-"] * 6, "shape unknown")
            continue
        table.add_row(
            profile.gpu,
            str(profile.gpus),
            _gib(found.weight_bytes),
            _gib(found.reserve_bytes),
            _gib(found.kv_bytes),
            f"{found.kv_tokens:,}",
            f"{found.context_tokens:,}",
            str(found.sessions_full),
            "yes" if found.fits else "no",
        )
    return table


def _fits(service: values.Service) -> Iterator[tuple[values.Profile, fitting.Fit | None]]:
    for profile in service.profiles:
        yield profile, fitting.fit_profile(service, profile, launch.merged_flags(service, profile))


def _resolved(files: tuple[Path, ...]) -> Iterator[tuple[str, values.Service | None, tuple[values.Problem, ...]]]:
    try:
        found = manifests.read(files)
    except (manifests.ManifestError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if not found.services:
        raise click.ClickException("no ModelService in the files")
    for name, item in found.services.items():
        yield name, *_resolve(found, name, item)


def _resolve(
    found: manifests.Manifests, name: str, item: modelservice.ModelService
) -> tuple[values.Service | None, tuple[values.Problem, ...]]:
    resolution = resolve.resolve_service(
        name, item.metadata.namespace or "default", item.spec, found.pools, found.drafts
    )
    if resolution.service is None:
        return None, resolution.problems
    return resolution.service, launch.arg_problems(resolution.service)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.1f} GiB"
