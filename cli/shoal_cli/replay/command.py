"""`shoal replay`: options in, a plan out, the report printed and written. Decides the exit status, nothing else."""

from pathlib import Path

import click
import orjson

from shoal_cli import kubectl, loops, screen
from shoal_cli.replay import check, client, drive, gpus, run, show, trace


@click.command()
@click.option(
    "--trace",
    "trace_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="JSON lines, plain or gzip: coding-agent conversations (WEKA) or Mooncake requests.",
)
@click.option("--url", required=True, help="Endpoint, without /v1: http://host:port.")
@click.option("--model", help="Model to ask for. Default: the one that the endpoint lists.")
@click.option("--api-key", envvar="OPENAI_API_KEY", help="Sent as a bearer token. [env: OPENAI_API_KEY]")
@click.option("--sessions", type=click.IntRange(1), help="Conversations at once. Default: all of the trace.")
@click.option("--loop", is_flag=True, help="Begin again, as new sessions, when the trace is done.")
@click.option("--limit", type=click.IntRange(1), help="Use the first N lines of the trace only.")
@click.option(
    "--speedup",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Divides think times and the gaps between arrivals. Engines keep their own speed.",
)
@click.option(
    "--think-max", "think_max_s", type=click.FloatRange(0), help="Longest think time in seconds, before the speed-up."
)
@click.option("--ramp", "ramp_s", type=click.FloatRange(0), default=0.0, help="Seconds over which sessions start.")
@click.option(
    "--duration", "duration_s", type=click.FloatRange(0, min_open=True), help="Start no turn after this many seconds."
)
@click.option("--turns", "turns_max", type=click.IntRange(1), help="Start at most this many turns.")
@click.option(
    "--grace",
    "grace_s",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    help="Seconds for turns in flight at the end; then they are cancelled.",
)
@click.option(
    "--concurrency",
    "concurrency_max",
    type=click.IntRange(1),
    default=1024,
    show_default=True,
    help="Most requests in flight.",
)
@click.option(
    "--retries",
    "retries_max",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="How often to honour Retry-After after a 429 or 503.",
)
@click.option(
    "--timeout",
    "total_s",
    type=click.FloatRange(0, min_open=True),
    default=900.0,
    show_default=True,
    help="Seconds for one request with its retries.",
)
@click.option("--gpus", "gpu_count", type=click.FloatRange(0, min_open=True), help="GPUs behind the endpoint.")
@click.option("--service", help="ModelService to read the number of GPUs from, with kubectl.")
@click.option("-n", "--namespace", default="", help="Its namespace.")
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--verify", is_flag=True, help="Compare every answer with what the engine simulator must say.")
@click.option("--seed", type=int, default=0, show_default=True, help="Order of conversations, and their names.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the report here.")
def replay(
    trace_file: Path,
    url: str,
    model: str | None,
    api_key: str | None,
    sessions: int | None,
    loop: bool,
    limit: int | None,
    speedup: float,
    think_max_s: float | None,
    ramp_s: float,
    duration_s: float | None,
    turns_max: int | None,
    grace_s: float,
    concurrency_max: int,
    retries_max: int,
    total_s: float,
    gpu_count: float | None,
    service: str | None,
    namespace: str,
    kubeconfig: Path | None,
    verify: bool,
    seed: int,
    json_file: Path | None,
) -> None:
    """Send a recorded trace to an OpenAI-compatible endpoint and report what users saw.

    Coding-agent conversations run closed-loop: a turn starts when the one before has ended plus its think time.
    Mooncake requests start at their timestamps. Exits 1 if a request failed.
    """
    if loop and duration_s is None and turns_max is None:
        raise click.UsageError("--loop needs --duration or --turns")
    if gpu_count is not None and service:
        raise click.UsageError("--gpus and --service exclude each other")
    try:
        read = trace.read(trace_file, limit=limit)
    except trace.TraceError as error:
        raise click.ClickException(str(error)) from error
    if read.kind == "mooncake" and (sessions or loop):
        raise click.UsageError("--sessions and --loop are for conversations; this trace has arrival times")
    source = None
    if gpu_count is not None:
        source = gpus.Source(count=gpu_count)
    elif service:
        source = gpus.Source(service=service, target=kubectl.Target(kubeconfig=kubeconfig, namespace=namespace))
    plan = run.Plan(
        trace=read,
        settings=client.Settings(
            url=url,
            headers={"authorization": f"Bearer {api_key}"} if api_key else {},
            retries_max=retries_max,
            total_s=total_s,
            expected=check.expectation() if verify else None,
        ),
        pace=drive.Pace(
            speedup=speedup,
            think_max_s=think_max_s,
            concurrency_max=concurrency_max,
            turns_max=turns_max,
            grace_s=grace_s,
            seed=seed,
        ),
        model=model,
        sessions=sessions,
        loop=loop,
        ramp_s=ramp_s,
        duration_s=duration_s,
        gpu_source=source,
    )
    console = screen.console()
    try:
        summary = loops.run(run.run(plan, console))
    except run.ReplayError as error:
        raise click.ClickException(str(error)) from error
    console.print(show.report(summary))
    for kind, example in summary.error_examples.items():
        console.print(f"{kind}: {example}", highlight=False, markup=False, soft_wrap=True)
    if json_file is not None:
        json_file.write_bytes(orjson.dumps(summary.to_json(), option=orjson.OPT_INDENT_2) + b"\n")
    if summary.failed:
        raise SystemExit(1)
