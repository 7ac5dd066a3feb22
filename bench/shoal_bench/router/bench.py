"""The whole run: peers installed, engines started, routers measured in turn, round by round; then the document.

    make bench-router            # docs/benchmarks/router.{json,md} and plots, about 20 minutes
    make bench-router QUICK=1    # one short round into build/bench/router, under 5 minutes

Rounds are interleaved: each measures every router once before the next begins, so that a machine that is slow for a
while is slow for all.
"""

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from shoal_bench import processes, results, tables
from shoal_bench.peers import install
from shoal_bench.router import bodies, measure, report, wrk

COMMAND: Final = "make bench-router"
QUICK_ROUTERS: Final = ("shoal", "sglang-router", "smg", "vllm-router", "vllm-router:round_robin", "dynamo", "nginx")
ROUTERS: Final = (*QUICK_ROUTERS, "shoal-interpreted")
ENGINES: Final = 2
ENGINE_DEADLINE_S: Final = 20.0
_NEW_DOCUMENT: Final = "# Routers: the data path\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round, into build/bench/router")
    parser.add_argument("--rounds", type=int, help="so many rounds instead")
    parser.add_argument("--routers", help=f"name or name:policy, comma separated ({','.join(ROUTERS)})")
    chosen = parser.parse_args()
    plan = measure.QUICK if chosen.quick else measure.FULL
    names = chosen.routers.split(",") if chosen.routers else [*(QUICK_ROUTERS if chosen.quick else ROUTERS)]
    whole = not chosen.quick and names == list(ROUTERS)
    try:
        run(plan, [measure.entry(one) for one in names], chosen.rounds or plan.rounds, publish=whole)
    except (install.InstallError, processes.NotReadyError, ValueError) as error:
        print(f"bench-router: {error}", file=sys.stderr)
        return 1
    return 0


def run(plan: measure.Plan, chosen: Sequence[measure.Entry], rounds: int, *, publish: bool) -> None:
    scratch = results.SCRATCH / "router"
    place = measure.place(os.sched_getaffinity(0))
    for name in (*(one.name for one in chosen), "wrk"):
        install.ensure(name)
    if any(one.name == report.OURS for one in chosen):
        install.compiled_router()
    processes.raise_file_limit()
    facts = results.machine()
    collected = report.Collected()
    with pinned(place.generator), engines(place, scratch) as urls:
        stage = measure.Stage(
            plan=plan,
            place=place,
            engine_urls=urls,
            folder=scratch,
            small=wrk.prepare(bodies.small(), scratch / "small"),
            long=wrk.prepare(bodies.long(), scratch / "long"),
        )
        began_s = time.monotonic()
        steps = [(number, one) for number in range(rounds) for one in (*chosen, None)]
        for done, (number, one) in enumerate(steps):
            label = one.label if one else measure.DIRECT
            _say(done, len(steps), began_s, f"round {number + 1} of {rounds}: {label}")
            many = label == report.OURS and number == 0
            taken = measure.router(one, stage, number, many=many) if one else measure.direct(stage, number)
            collected.add(label, one.policy if one else "", number, taken)
            _show(taken)
    _finish(collected, facts, chosen, place, scratch, publish=publish, rounds=rounds)


@contextlib.contextmanager
def engines(place: measure.Place, folder: Path) -> Iterator[tuple[str, ...]]:
    """Light engines that answer."""
    with contextlib.ExitStack() as stack:
        urls = []
        for number in range(ENGINES):
            port = processes.free_port()
            url = f"http://127.0.0.1:{port}"
            argv = [sys.executable, "-m", "shoal_bench.router.engine", "--port", str(port)]
            core = place.engines[number % len(place.engines)]
            one = processes.start(f"engine-{number}", argv, folder, core=core, url=url)
            stack.callback(one.stop)
            processes.wait_http(one, f"{url}/health", ENGINE_DEADLINE_S)
            urls.append(url)
        yield tuple(urls)


@contextlib.contextmanager
def pinned(core: int) -> Iterator[None]:
    """This process, which is a load generator too, on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _finish(
    collected: report.Collected,
    facts: dict[str, str],
    chosen: Sequence[measure.Entry],
    place: measure.Place,
    scratch: Path,
    *,
    publish: bool,
    rounds: int,
) -> None:
    found = report.rows(collected)
    folder = results.PUBLISHED if publish else scratch
    results.write(folder / "router.json", found)
    names = dict.fromkeys((*(one.name for one in chosen), "wrk"))
    versions = ", ".join(f"{name} {install.version(name)}" for name in names)
    where = (
        f"`{COMMAND}`, {rounds} {'round' if rounds == 1 else 'rounds'}. {versions}. Router on core {place.router}, "
        f"engines on {', '.join(map(str, sorted(set(place.engines))))}, load generator on {place.generator}."
    )
    text = report.block(found, collected.failures, facts, where, pictures=publish)
    tables.write_generated(folder / "router.md", text, COMMAND, _NEW_DOCUMENT)
    report.draw(found, folder)
    print(f"\n{text}\n\nwritten to {folder}/router.json, router.md and router-*.svg")
    if not publish:
        print("This was no full run: docs/benchmarks is as it was.")


def _say(done: int, total: int, began_s: float, what: str) -> None:
    left = f"about {(time.monotonic() - began_s) / done * (total - done) / 60:.1f} min left" if done else ""
    print(f"[{done + 1}/{total}] {what}  {left}", flush=True)


def _show(taken: measure.Taken) -> None:
    print("    " + "  ".join(f"{name}={value:.4g}" for name, value in taken.samples.items()), flush=True)
    for name, why in taken.failures.items():
        print(f"    {name} failed: {why}", flush=True)
