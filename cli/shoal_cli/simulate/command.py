"""`shoal simulate`: options in, scenarios out, one run a policy, a table and a file. No network, no waiting."""

import time
from dataclasses import replace
from pathlib import Path

import click
import orjson

from shoal_api import routes
from shoal_cli import screen
from shoal_cli.replay import trace
from shoal_cli.simulate import jobs, show
from shoal_fleet import autoscale, model, run
from shoal_fleet.clients import Pace
from shoal_fleet.policies import registry
from shoal_fleet.workload import Workload
from shoal_operator.domain import values
from shoal_sim import profiles


def _policies(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    """Names apart by commas, each once; `all` for all of them."""
    names = registry.NAMES if value == "all" else tuple(dict.fromkeys(value.split(",")))
    for name in names:
        if name not in registry.NAMES:
            raise click.BadParameter(f"{name!r} is none of {', '.join(registry.NAMES)}", ctx, param)
    return names


def _bounds(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """MIN:MAX replicas."""
    if value is None:
        return None
    low, _, high = value.partition(":")
    if not (low.isdecimal() and high.isdecimal() and 1 <= int(low) <= int(high)):
        raise click.BadParameter(f"{value!r} is not MIN:MAX, such as 2:16", ctx, param)
    return int(low), int(high)


@click.command()
@click.option(
    "--trace",
    "trace_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="JSON lines, plain or gzip: coding-agent conversations (WEKA) or Mooncake requests.",
)
@click.option(
    "--policy",
    "policies",
    callback=_policies,
    default=registry.PRODUCTION,
    show_default=True,
    metavar="P[,P...]",
    help=f"Who routes: {', '.join(registry.NAMES)}; or all. The first is the router's own code, the second the same "
    "with slicing Off; the others are models.",
)
@click.option("--replicas", type=click.IntRange(1, 1024), default=8, show_default=True, help="Engines.")
@click.option(
    "--scale",
    callback=_bounds,
    metavar="MIN:MAX",
    help="Let the operator's scaler decide how many engines there are. For policy price_and_hold.",
)
@click.option("--ttft-slo", "ttft_slo_s", type=click.FloatRange(0, min_open=True), default=5.0, show_default=True)
@click.option(
    "--cold-start", "cold_start_s", type=click.FloatRange(0), help="Seconds until a new engine serves. [profile's]"
)
@click.option("--profile", help="Timing and memory of an engine: a profile of the engine simulator. [kimi-k2.5-b200]")
@click.option(
    "--timing",
    "study_tokens_per_s",
    type=click.FloatRange(0, min_open=True),
    metavar="TOKENS_PER_S",
    help="Instead of a profile: the routing study's engine, at so many prompt tokens a second. Needs --kv-tokens.",
)
@click.option("--kv-tokens", type=click.IntRange(1024), help="KV cache of an engine, in tokens. [profile's]")
@click.option(
    "--page-tokens",
    type=click.IntRange(16),
    default=model.PAGE_TOKENS,
    show_default=True,
    help="Cache page of an engine; larger ones simulate faster.",
)
@click.option(
    "--speed",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Divides gaps between arrivals and think times.",
)
@click.option("--sessions", type=click.IntRange(1), help="Conversations at once. Default: all of the trace.")
@click.option("--turns", "turns_max", type=click.IntRange(1), help="Use the first turns of each conversation only.")
@click.option("--limit", type=click.IntRange(1), help="Use the first N lines of the trace only.")
@click.option("--think-max", "think_max_s", type=click.FloatRange(0), help="Longest think time, before the speed.")
@click.option("--ramp", "ramp_s", type=click.FloatRange(0), default=0.0, help="Seconds over which sessions start.")
@click.option(
    "--duration",
    "duration_s",
    type=click.FloatRange(0, min_open=True),
    help="Start no request after this many seconds.",
)
@click.option(
    "--queue-ttl",
    "queue_ttl_s",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    help="The router refuses what has waited so long; clients come back as told, five times.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Order of conversations, and equal choices.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write all figures here.")
def simulate(
    trace_file: Path,
    policies: tuple[str, ...],
    replicas: int,
    scale: tuple[int, int] | None,
    ttft_slo_s: float,
    cold_start_s: float | None,
    profile: str | None,
    study_tokens_per_s: float | None,
    kv_tokens: int | None,
    page_tokens: int,
    speed: float,
    sessions: int | None,
    turns_max: int | None,
    limit: int | None,
    think_max_s: float | None,
    ramp_s: float,
    duration_s: float | None,
    queue_ttl_s: float,
    seed: int,
    json_file: Path | None,
) -> None:
    """Send a recorded trace through a fleet of engines in virtual time and compare routing policies.

    An hour of eight engines takes seconds. Engines are the engine simulator's scheduler and cache; policy
    price_and_hold is the router's production code, and --scale the operator's. The same seed gives the same figures.
    """
    if scale is not None and policies != (registry.PRODUCTION,):
        raise click.UsageError(f"--scale reads the router's state: it is for --policy {registry.PRODUCTION} alone")
    engine = _engine(profile, study_tokens_per_s, kv_tokens, page_tokens)
    if cold_start_s is not None:
        engine = replace(engine, load_s=cold_start_s)
    workload = _workload(trace_file, limit, turns_max, sessions)
    first = run.Scenario(
        workload=workload,
        model=engine,
        policy=policies[0],
        replicas=replicas,
        scaling=None if scale is None else autoscale.Scaling(values.Scaling(*scale, ttft_slo_s=ttft_slo_s)),
        pace=Pace(speed, sessions, think_max_s, ramp_s, duration_s, shuffle_seed=seed),
        queue=routes.Queue(ttl_s=queue_ttl_s),
        seed=seed,
    )
    console = screen.console()
    made: dict[str, run.Run] = {}
    for policy in policies:
        began_s = time.monotonic()
        with show.Progress(policy, workload.requests) as progress:
            made[policy] = run.run(replace(first, policy=policy), progress.update)
        progress.done(made[policy].summary, time.monotonic() - began_s)
    console.print(show.report(made))
    for line in show.notes(made):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if json_file is not None:
        json_file.write_bytes(orjson.dumps(_document(first, made), option=orjson.OPT_INDENT_2) + b"\n")


def _engine(
    profile: str | None, study_tokens_per_s: float | None, kv_tokens: int | None, page_tokens: int
) -> model.EngineModel:
    if study_tokens_per_s is not None:
        if profile is not None:
            raise click.UsageError("--timing and --profile exclude each other")
        if kv_tokens is None:
            raise click.UsageError("--timing needs --kv-tokens")
        return model.study(study_tokens_per_s, kv_tokens, page_tokens)
    known = profiles.load_profiles()
    name = profile or "kimi-k2.5-b200"
    if name not in known:
        raise click.UsageError(f"--profile {name!r} is none of {', '.join(known)}")
    return model.simulated(name, kv_tokens, page_tokens)


def _workload(trace_file: Path, limit: int | None, turns_max: int | None, sessions: int | None) -> Workload:
    try:
        read = trace.read(trace_file, limit=limit)
    except trace.TraceError as error:
        raise click.ClickException(str(error)) from error
    if read.kind == "mooncake" and (sessions or turns_max):
        raise click.UsageError("--sessions and --turns are for conversations; this trace has arrival times")
    return jobs.of_trace(read, turns_max=turns_max)


def _document(scenario: run.Scenario, made: dict[str, run.Run]) -> dict[str, object]:
    engine = scenario.model
    return {
        "requests": scenario.workload.requests,
        "replicas": scenario.replicas if scenario.scaling is None else None,
        "profile": engine.profile.name,
        "kv_tokens": engine.kv_tokens,
        "page_tokens": engine.page_tokens,
        "speed": scenario.pace.speed,
        "seed": scenario.seed,
        "runs": {name: one.summary.to_json() for name, one in made.items()},
        "scaling": [
            {"at_s": tick.at_s, "wanted": tick.wanted, "ready": tick.ready, "reason": tick.reason}
            for one in made.values()
            for tick in one.ticks
        ],
    }
