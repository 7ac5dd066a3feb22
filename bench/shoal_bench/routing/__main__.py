"""`make bench-routing`: makes the runs that are missing, then rows, tables and plots of all that there are.

    python -m shoal_bench.routing [--quick] [--only mooncake-x1.0/shoal ...] [--budget-min 45] [--report]

Every run leaves a record in build/bench/routing/runs; a stopped benchmark goes on where it was, and runs whose code or
workload has changed since are made again. A full run writes docs/benchmarks/routing.{json,md} and its plots, a quick
one (one short slice, few routers) writes the same files to build/bench/routing-quick.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from shoal_bench import processes, results, tables
from shoal_bench.peers import install, launch
from shoal_bench.routing import pictures, plan, report, routers, runs, workloads
from shoal_bench.routing.workloads import Workload

_PAIR: Final = {"shoal": 3, "sglang-router": 3}
_PEERS: Final = {"smg": 2, "vllm-router": 1, "least-loaded": 1, "round-robin": 1}
_ONCE: Final = {"shoal": 1, "sglang-router": 1}
_NEAR: Final = f"mooncake-x{workloads.NEAR_SATURATION:.1f}"
FULL: Final[Mapping[str, Mapping[str, int]]] = {
    "mooncake-x1.0": _PAIR | _PEERS,
    _NEAR: _PAIR | _PEERS,
    "agents-80": _PAIR | {"vllm-router-sticky": 2} | _PEERS,
    "agents-20": _ONCE,
    "agents-40": _ONCE,
    "agents-120": _ONCE,
    f"{_NEAR}-slow": _ONCE,
}
"""Runs by workload and router: three where a target is decided, the others as far as the time goes."""
QUICK_WORKLOADS: Final = {
    one.name: one for one in (workloads.mooncake(workloads.NEAR_SATURATION, 10.0, "-quick", duration_s=240.0),)
}
QUICK: Final[Mapping[str, Mapping[str, int]]] = {
    name: {"shoal": 1, "sglang-router": 1, "smg": 1, "round-robin": 1} for name in QUICK_WORKLOADS
}
BUDGET_MIN: Final = 45.0
NEW_DOCUMENT: Final = "# Routing\n"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="shoal_bench.routing", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short slice, few routers; nothing is published")
    parser.add_argument("--only", nargs="*", default=[], help="workload, workload/router or workload/router/run")
    parser.add_argument("--budget-min", type=float, default=BUDGET_MIN, help="start no run that would end later")
    parser.add_argument("--report", action="store_true", help="make no runs, only the tables of those there are")
    arguments = parser.parse_args(argv)
    known = QUICK_WORKLOADS if arguments.quick else workloads.FULL
    repeats = QUICK if arguments.quick else FULL
    folder = results.SCRATCH / ("routing-quick" if arguments.quick else "routing")
    wanted = plan.jobs(repeats, arguments.only)
    if not wanted:
        parser.error(f"nothing is called {' '.join(arguments.only)}")
    processes.raise_file_limit()
    if not arguments.report:
        _run(wanted, known, folder, arguments.budget_min * 60.0)
    records = _records(plan.jobs(repeats), known, folder)
    if not records:
        print("no records")
        return 1
    _publish(records, known, folder if arguments.quick else results.PUBLISHED, full=not arguments.quick)
    missing = [job.name for job in wanted if not any(_is(record, job) for record in records)]
    if missing:
        print(f"not run: {', '.join(missing)}; the same command goes on with them")
    return 1 if missing else 0


def _run(wanted: Sequence[plan.Job], known: Mapping[str, Workload], folder: Path, budget_s: float) -> None:
    end_s = time.monotonic() + budget_s
    took_s: dict[str, list[float]] = {}
    todo = []
    for job in wanted:
        found = _record(job, known, folder)
        if found is None:
            todo.append(job)
        else:
            took_s.setdefault(job.workload, []).append(found.wall_s)
    print(f"{len(wanted) - len(todo)} of {len(wanted)} runs are there")
    todo = _installed(todo)
    while todo:
        job = todo[0]
        left_s = plan.left_s(todo, known, took_s)
        if time.monotonic() + plan.left_s(todo[:1], known, took_s) > end_s:
            print(f"the budget is used up with {len(todo)} runs left")
            return
        print(f"{job.name}: {len(todo)} runs to make, about {left_s / 60:.0f} min", flush=True)
        try:
            record = runs.make(known[job.workload], routers.ROUTERS[job.router], job.run, folder)
        except (processes.NotReadyError, launch.UnsupportedError) as error:
            print(f"  {job.name} could not be run: {error}", file=sys.stderr)
        else:
            runs.write(_path(job, known, folder), record)
            took_s.setdefault(job.workload, []).append(record.wall_s)
            print(f"  {_line(record)}", flush=True)
        todo.pop(0)


def _installed(todo: Sequence[plan.Job]) -> list[plan.Job]:
    """Those whose program can be had; the others are said and left out."""
    missing = set()
    for program in sorted({routers.ROUTERS[job.router].program for job in todo}):
        try:
            install.ensure(program)
        except install.InstallError as error:
            missing.add(program)
            print(f"  {program} cannot be installed: {error}", file=sys.stderr)
    return [job for job in todo if routers.ROUTERS[job.router].program not in missing]


def _line(record: runs.Record) -> str:
    found = record.figures.measures
    parts = [f"{name} {tables.number(found.get(name))}" for name in ("ttft_s_mean", "ttft_s_p99", "hit_rate", "failed")]
    parts += [f"{part} {share:.0%}" for part, share in record.cpu.items()]
    errors = ", ".join(f"{kind}: {count}" for kind, count in record.figures.errors.items())
    return "  ".join(parts) + (f"  errors: {errors}" if errors else "")


def _publish(records: Sequence[runs.Record], known: Mapping[str, Workload], folder: Path, full: bool) -> None:
    machine = results.machine()
    block = report.text(records, known, machine)
    results.write(folder / "routing.json", report.rows(records))
    titles = {name: one.title for name, one in known.items() if not name.endswith("-slow")}
    made = pictures.write(folder, records, titles)
    tables.write_generated(folder / "routing.md", block, report.COMMAND, NEW_DOCUMENT)
    print(block)
    print(f"\nwritten to {folder}: routing.json, routing.md, {', '.join(path.name for path in made)}")
    if not full:
        print("a quick run: nothing in docs/benchmarks was changed")


def _records(jobs: Sequence[plan.Job], known: Mapping[str, Workload], folder: Path) -> list[runs.Record]:
    found = [_record(job, known, folder) for job in jobs]
    return [one for one in found if one is not None]


def _record(job: plan.Job, known: Mapping[str, Workload], folder: Path) -> runs.Record | None:
    """The record of a job, unless what it depends on has changed."""
    found = runs.read(_path(job, known, folder))
    current = runs.key(known[job.workload], routers.ROUTERS[job.router])
    return found if found is not None and found.key == current else None


def _path(job: plan.Job, known: Mapping[str, Workload], folder: Path) -> Path:
    return runs.path_of(folder, known[job.workload], routers.ROUTERS[job.router], job.run)


def _is(record: runs.Record, job: plan.Job) -> bool:
    return (record.workload, record.router, record.run) == (job.workload, job.router, job.run)


if __name__ == "__main__":
    sys.exit(main())
