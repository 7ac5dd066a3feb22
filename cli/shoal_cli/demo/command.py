"""`shoal demo`: starts and stops what the story plays in, shows it, writes the result, and sets the exit status."""

import asyncio
import contextlib
import logging
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import click
import orjson
from rich.console import Console
from rich.table import Table

from shoal_cli import loops
from shoal_cli import screen as screens
from shoal_cli.demo import cluster, environment, install, picture, result, stage, story
from shoal_cli.replay import show

DIAGNOSIS = "diagnosis.txt"
INTERRUPTED = "interrupted"
Value = TypeVar("Value")


@click.command()
@click.option("--keep", is_flag=True, help="Leave everything running at the end.")
@click.option("--sessions", type=click.IntRange(2), default=20, show_default=True, help="Sessions before the doubling.")
@click.option(
    "--speedup",
    type=click.FloatRange(0, min_open=True),
    default=4.0,
    show_default=True,
    help="Of the simulated engines and of think times alike.",
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    default="demo-result.json",
    show_default=True,
)
@click.option("--plain", is_flag=True, help="Lines instead of a live picture; so by itself where there is no terminal.")
def demo(keep: bool, sessions: int, speedup: float, seed: int, json_file: Path, plain: bool) -> None:
    """Show the whole path on this machine: cluster, chart, ModelService, traffic, a killed replica, scaling.

    Exits 0 only if no request failed but those whose stream had begun on the killed replica, and the fleet was seen to
    scale out and in.
    """
    console = Console(force_terminal=False, width=screens.WIDTH_WITHOUT_TERMINAL) if plain else screens.console()
    folder = Path(tempfile.mkdtemp(prefix="shoal-demo-"))
    gaps = environment.gaps(folder)
    if gaps:
        folder.rmdir()
        raise click.ClickException("; ".join(gaps))
    # Its warnings are about watches that come back by themselves; they would break the picture.
    logging.getLogger("shoal_local.kube").setLevel(logging.ERROR)
    checkout = environment.checkout()
    assert checkout is not None  # one of the gaps
    options = story.Options(checkout=checkout, folder=folder, sessions=sessions, speedup=speedup, seed=seed, keep=keep)
    found = loops.run(_play(options, console))
    json_file.write_bytes(orjson.dumps(found.to_json(), option=orjson.OPT_INDENT_2) + b"\n")
    raise SystemExit(0 if found.succeeded else 1)


async def _play(options: story.Options, console: Console) -> result.Result:
    scene = stage.Stage(_sayer(console))
    for warning in environment.warnings():
        scene.tell(warning)
    shown = picture.Picture(scene)
    told = story.Story(options, scene, shown)
    drawing = asyncio.create_task(shown.draw(console))
    problem = ""
    try:
        with _cancelled_by_signals():
            await _with_cluster(options, scene, told)
    except asyncio.CancelledError:
        problem = INTERRUPTED
    except (story.DemoError, install.InstallError, cluster.LocalError) as error:
        problem = str(error)
    finally:
        drawing.cancel()
        await asyncio.wait({drawing})
    found = told.result()
    if problem:
        found = result.stopped(found, problem)
    console.print(report(found))
    kept = options.keep and not problem
    _say_place(options, told, console, keep=kept, failed=not found.succeeded and problem != INTERRUPTED)
    return found


async def _with_cluster(options: story.Options, scene: stage.Stage, told: story.Story) -> None:
    """Plays the story in a cluster that is stopped at the end, whatever happens, unless it is to be kept."""
    with scene.phase("control plane programs"):
        settings = await asyncio.to_thread(cluster.prepare, options.folder, scene.tell, options.speedup)
    played = False
    try:
        with scene.phase("local cluster"):
            local = await _whole(cluster.start, options.folder, settings, scene.tell)
        try:
            await told.play(local)
            played = True
        finally:
            # Pods' logs go with the cluster: what explains a failure is kept first.
            if not told.result().succeeded:
                await _whole(_keep_diagnosis, local, options.folder / "logs" / DIAGNOSIS)
    finally:
        if not (played and options.keep):
            with scene.phase("stop"):
                await _whole(cluster.stop, options.folder, scene.tell)


async def _whole(function: Callable[..., Value], *arguments: object) -> Value:
    """Runs a blocking function to its end also when we are cancelled meanwhile: half a start could not be stopped, and
    half a stop would leave processes behind."""
    task = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def _keep_diagnosis(local: cluster.Cluster, path: Path) -> None:
    path.write_text(install.diagnose(install.Tools(local.binaries, local.kubeconfig)))


def report(found: result.Result) -> Table:
    table = Table(title="shoal demo", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    spread, speed = found.ttft_s, found.decode_tokens_per_s_per_user
    marks = found.marks
    rows = [
        ("requests", str(found.requests)),
        ("failed", str(found.failed)),
        ("retried", str(found.retried)),
        ("cancelled (hung)", str(found.cancelled)),
        (f"ended with an error event (killed: {marks.killed_replica or '-'})", str(found.ended_with_error_event)),
        ("in flight on the killed replica", "-" if marks.streams_on_killed is None else str(marks.streams_on_killed)),
        ("hit rate / bound of the trace", f"{show.share(found.hit_rate)} / {show.share(found.hit_rate_bound)}"),
        ("TTFT p50 / p90 / p99", " / ".join(map(show.seconds, (spread.p50, spread.p90, spread.p99)))),
        ("decode tokens/s per user p50 / p90", f"{show.number(speed.p50)} / {show.number(speed.p90)}"),
        ("scaled out to / in to", f"{found.scaled_out_to or '-'} / {found.scaled_in_to or '-'}"),
    ]
    rows += [(f"seconds: {name}", f"{seconds:.1f}") for name, seconds in found.seconds_per_phase.items()]
    rows += [(f"error: {kind}", str(count)) for kind, count in found.errors.items()]
    for name, value in rows:
        table.add_row(name, value)
    table.add_row("result", "success" if found.succeeded else "; ".join(found.problems))
    return table


def _say_place(options: story.Options, told: story.Story, console: Console, *, keep: bool, failed: bool) -> None:
    """Where to look, or how to go on; the folder goes when nobody needs it."""
    if not keep:
        if failed:
            logs = options.folder / "logs"
            first = f"; begin with {DIAGNOSIS}" if (logs / DIAGNOSIS).exists() else ""
            console.print(f"Logs are in {logs}{first}", highlight=False, soft_wrap=True)
        else:
            shutil.rmtree(options.folder, ignore_errors=True)
        return
    assert told.place is not None
    body = f'{{"model": "{told.place.model}", "messages": [{{"role": "user", "content": "Hello"}}], "max_tokens": 32}}'
    program = Path(sys.executable).with_name("shoal")
    console.print(
        f"Still running. Stop it with: {program} local down --folder {options.folder}\n"
        f'For kubectl and helm: eval "$({program} local env --folder {options.folder})"\n'
        f"export KUBECONFIG={told.place.kubeconfig}\n"
        f"endpoint: {told.place.endpoint}\n"
        f"curl {told.place.endpoint}/v1/chat/completions -H 'content-type: application/json' -d '{body}'",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _sayer(console: Console) -> Callable[[str], None]:
    """Lines where there is no live picture; the picture shows events itself."""

    def say(text: str) -> None:
        if not console.is_terminal:
            console.print(text, highlight=False, markup=False, soft_wrap=True)

    return say


@contextlib.contextmanager
def _cancelled_by_signals() -> Iterator[None]:
    loop = asyncio.get_running_loop()
    current = asyncio.current_task()
    assert current is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, current.cancel)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
