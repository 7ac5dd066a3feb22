"""`shoal local`: the command line of the local cluster. `shoal_cli` mounts the group `local`."""

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from shoal_local import binaries, cluster, default_images, faults, gobuild, overview
from shoal_local.cluster import ClusterError
from shoal_local.yamlfile import InvalidFileError

_PROBLEMS = (
    ClusterError,
    gobuild.BuildError,
    InvalidFileError,
    default_images.EngineEnvironmentError,
    faults.FaultError,
)


class _Group(click.Group):
    """Turns what can go wrong for the user into a message instead of a traceback."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except _PROBLEMS as error:
            raise click.ClickException(str(error)) from error


_Function = TypeVar("_Function", bound=Callable[..., Any])


def _folder_option(function: _Function) -> _Function:
    return click.option(
        "--folder",
        type=click.Path(path_type=Path, file_okay=False),
        default=cluster.default_folder,
        show_default="~/.local/state/shoal/local",
        help="Where the cluster keeps everything; one folder, one cluster.",
    )(function)


def _file_option(flag: str, name: str, explanation: str) -> Callable[[_Function], _Function]:
    return click.option(flag, name, type=click.Path(exists=True, path_type=Path, dir_okay=False), help=explanation)


def _say(line: str) -> None:
    click.echo(line, err=True)


@click.group(cls=_Group)
def local() -> None:
    """A real Kubernetes on this machine whose Pods are local processes."""


@local.command()
def build() -> None:
    """Build the control plane if that has not been done yet (about 7 minutes on two cores, once)."""
    click.echo(binaries.ensure(_say))


@local.command()
@_folder_option
@_file_option("--nodes", "nodes_file", "YAML with the nodes; four GPU nodes and two CPU nodes by default.")
@_file_option("--images", "images_file", "YAML with more image entries.")
@click.option("--engine", type=click.Choice(["sim", "sglang-cpu"]), default="sim", show_default=True)
@click.option(
    "--engine-env",
    type=click.Path(exists=True, path_type=Path, file_okay=False),
    help="Prepared environment of a CPU engine, for --engine sglang-cpu.",
)
@click.option("--speedup", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True)
@click.option("--profile", help="Timing profile of simulated engines.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=8080, show_default=True, help="First port for the router."
)
def up(
    folder: Path,
    nodes_file: Path | None,
    images_file: Path | None,
    engine: str,
    engine_env: Path | None,
    speedup: float,
    profile: str | None,
    port: int,
) -> None:
    """Start the cluster; returns when its nodes are Ready."""
    began = time.monotonic()
    settings = cluster.build_settings(
        _say,
        engine=engine,
        engine_env=None if engine_env is None else engine_env.resolve(),
        speedup=speedup,
        profile=profile,
        port=port,
        nodes=None if nodes_file is None else nodes_file.resolve(),
        images=None if images_file is None else images_file.resolve(),
    )
    folder = folder.resolve()
    cluster.up(folder, settings, _say)
    _say(f"Ready after {gobuild.duration(time.monotonic() - began)}")
    click.echo(overview.exports(folder, settings.binaries))


@local.command()
@_folder_option
def status(folder: Path) -> None:
    """Components, nodes and endpoints."""
    for line in overview.describe(folder.resolve()):
        click.echo(line)


@local.command()
@_folder_option
def env(folder: Path) -> None:
    """Shell lines that put kubectl and helm on PATH and point them here: eval "$(shoal local env)"."""
    folder = folder.resolve()
    if cluster.read_state(folder) is None:
        raise ClusterError(f"no local cluster in {folder}; start one with `shoal local up`")
    settings = cluster.ClusterSettings.model_validate_json(cluster.settings_path(folder).read_text())
    click.echo(overview.exports(folder, settings.binaries))


@local.command()
@_folder_option
@click.option("--keep", is_flag=True, help="Keep the objects: the next `up` goes on with them.")
def down(folder: Path, keep: bool) -> None:
    """Stop everything and delete the cluster's data; logs stay."""
    if not cluster.down(folder.resolve(), keep, _say):
        _say(f"No local cluster in {folder}")


@local.command()
@_folder_option
@click.argument("name", required=False)
@click.option("-f", "--follow", is_flag=True)
@click.option("-n", "--lines", type=click.IntRange(min=0), default=50, show_default=True)
def logs(folder: Path, name: str | None, follow: bool, lines: int) -> None:
    """Log of a component, or of a Pod (also one that has gone); without NAME, what there is."""
    found = overview.log_files(folder.resolve())
    if name is None:
        for each in found:
            click.echo(each)
        return
    paths = overview.find_logs(found, name)
    if not paths:
        raise ClusterError(f"no log called {name}; `shoal local logs` lists them")
    path = paths[-1]
    click.echo(overview.last_lines(path, lines), nl=False)
    if follow:
        try:
            for text in overview.follow(path):
                click.echo(text, nl=False)
        except KeyboardInterrupt:
            sys.exit(130)


@local.group()
def fault() -> None:
    """Break something on purpose."""


def _fault_options(function: _Function) -> _Function:
    function = click.option("-n", "--namespace")(function)
    function = click.option("-c", "--container")(function)
    return click.argument("pod")(_folder_option(function))


def _send(folder: Path, pod: str, namespace: str | None, container: str | None, number: signal.Signals) -> None:
    target = faults.find_container(folder.resolve(), pod, namespace, container)
    faults.send(target, number)
    click.echo(f"{number.name} to process {target.pid} of {target.namespace}/{target.pod}/{target.container}")


@fault.command()
@_fault_options
@click.option("--signal", "name", default="SIGKILL", show_default=True)
def kill(folder: Path, pod: str, namespace: str | None, container: str | None, name: str) -> None:
    """Send a signal to a container."""
    wanted = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
    if wanted not in signal.Signals.__members__:
        raise click.BadParameter(f"{name} is no signal", param_hint="--signal")
    _send(folder, pod, namespace, container, signal.Signals[wanted])


@fault.command()
@_fault_options
def stop(folder: Path, pod: str, namespace: str | None, container: str | None) -> None:
    """Freeze a container: it keeps its connections and answers nothing."""
    _send(folder, pod, namespace, container, signal.SIGSTOP)


@fault.command()
@_fault_options
def cont(folder: Path, pod: str, namespace: str | None, container: str | None) -> None:
    """Let a frozen container go on."""
    _send(folder, pod, namespace, container, signal.SIGCONT)
