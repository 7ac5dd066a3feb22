"""`make bench-policy`: the study's table, slices, the sweep of the constants and the cross-check, in virtual time.

    python -m shoal_bench.policy [--quick] [--part sweep ...] [--traces DIR] [--processes 2] [--report]

A full run writes docs/benchmarks/policy.{json,md} and policy-constants.svg, a quick one the same to
build/bench/policy-quick. The study's table needs the whole public traces (see examples/traces/NOTICE.md) in a folder:
--traces, or SHOAL_TRACES. Without them its rows stay as they were published. Parts that are not run keep their rows.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shoal_bench import results, tables
from shoal_bench.policy import bound, cells, report, scenarios, slicing
from shoal_bench.routing import workloads
from shoal_fleet.policies import registry

PARTS: Final = ("study", "slices", "sweep", "check")
NEAR: Final = f"mooncake-x{workloads.NEAR_SATURATION:.1f}"
SWEPT: Final = ((NEAR, (1, 2)), ("agents-80", (1, 2)), ("mooncake-x1.0", (1,)))
CHECKED: Final = ("mooncake-x1.0", NEAR, "agents-80")
NEW_DOCUMENT: Final = "# The policy in virtual time\n"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="shoal_bench.policy", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="one seed, one workload of each part; nothing is published"
    )
    parser.add_argument("--part", nargs="*", choices=PARTS, default=list(PARTS), help="only these parts")
    parser.add_argument(
        "--traces", type=Path, default=os.environ.get("SHOAL_TRACES"), help="folder of the whole traces"
    )
    parser.add_argument("--processes", type=int, default=2, help="runs at once")
    parser.add_argument("--report", action="store_true", help="make no runs, only the document of those there are")
    arguments = parser.parse_args(argv)
    traces = Path(arguments.traces) if arguments.traces else None
    folder = results.SCRATCH / "policy-quick" if arguments.quick else results.PUBLISHED
    old = results.read(folder / "policy.json")
    todo = [] if arguments.report else planned(arguments.part, traces, quick=arguments.quick)
    rows = cells.rows(todo, traces, arguments.processes) if todo else []
    done = {cell.part for cell in todo}
    rows = [one for one in old if one["part"] not in done] + rows
    if not rows:
        print("no rows")
        return 1
    rows.sort(key=lambda one: PARTS.index(one["part"]))
    results.write(folder / "policy.json", rows)
    if results.select(rows, part="sweep"):
        report.picture(folder / "policy-constants.svg", rows)
    block = report.text(rows, results.read(results.PUBLISHED / "routing.json"), results.machine())
    tables.write_generated(folder / "policy.md", block, report.COMMAND, NEW_DOCUMENT)
    print(block)
    print(f"\nwritten to {folder}: policy.json, policy.md, policy-constants.svg")
    return 0


def planned(parts: Sequence[str], traces: Path | None, *, quick: bool) -> list[cells.Cell]:
    """The runs. The study only where its traces are."""
    made: list[cells.Cell] = []
    there = traces is not None and all((traces / one.trace).is_file() for one in scenarios.STUDIES)
    if "study" in parts and there:
        made += cells.study((*(registry.NAMES if not quick else ("price_and_hold", "cache_aware")), *bound.NAMES))
    elif "study" in parts:
        print("the study's table needs the whole traces: --traces DIR or SHOAL_TRACES", file=sys.stderr)
    if slicing.PART in parts:
        made += cells.slices(slicing.QUICK if quick else slicing.COMPARED)
    if "sweep" in parts:
        made += cells.sweep(((NEAR, (1,)),) if quick else SWEPT, registry.PRODUCTION)
    if "check" in parts:
        made += cells.check(CHECKED[:1] if quick else CHECKED, tuple(report.ROUTERS))
    return made


if __name__ == "__main__":
    sys.exit(main())
