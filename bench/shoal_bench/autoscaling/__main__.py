"""`make bench-autoscaling`: a step of load and a wave through the fleet simulator with the operator's scaler.

    python -m shoal_bench.autoscaling [--quick]

A full run (about a minute of one core) writes docs/benchmarks/autoscaling.{json,md} and a picture for each load, a
quick one the first quarter of the step to build/bench/autoscaling-quick.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from shoal_bench import plots, results, tables
from shoal_bench.autoscaling import figures, loads
from shoal_fleet import autoscale, model, run
from shoal_operator.domain import values

PROFILE: Final = "kimi-k2.5-h200"
SPEC: Final = values.Scaling(min=2, max=32)
"""Objectives and limits are a ModelService's defaults: 5 s to the first token, 70 % utilization, four starts at once,
a window of ten minutes."""
PAGE_TOKENS: Final = 512
COMMAND: Final = "make bench-autoscaling"
NEW_DOCUMENT: Final = "# Autoscaling\n"
VARIANTS: Final = {"": SPEC, ", 16 starts at once": replace(SPEC, starts_max=16)}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="shoal_bench.autoscaling", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the first quarter of the step; nothing is published")
    arguments = parser.parse_args(argv)
    folder = results.SCRATCH / "autoscaling-quick" if arguments.quick else results.PUBLISHED
    chosen = (loads.shortened(loads.STEP, 900.0),) if arguments.quick else loads.LOADS
    rows: list[results.Row] = []
    for load in chosen:
        for name, spec in VARIANTS.items():
            if name and load.name != loads.STEP.name:
                continue
            made = simulate(load, spec)
            rows += [
                results.row((value,), unit, load=load.name + name, measure=measure)
                for measure, (value, unit) in figures.measures(load, made, spec).items()
            ]
            if not name:
                picture(folder / f"autoscaling-{load.name}.svg", load, figures.curves(load, made, spec))
    results.write(folder / "autoscaling.json", rows)
    block = text(rows)
    tables.write_generated(folder / "autoscaling.md", block, COMMAND, NEW_DOCUMENT)
    print(block)
    print(f"\nwritten to {folder}: autoscaling.json, autoscaling.md and pictures")
    return 0


def simulate(load: loads.Load, spec: values.Scaling) -> run.Run:
    workload = loads.workload(load)
    engine = model.simulated(PROFILE, page_tokens=PAGE_TOKENS)
    print(f"{load.name}: {workload.requests:,} requests, {load.seconds:,.0f} s", file=sys.stderr, flush=True)
    began_s = time.monotonic()
    made = run.run(run.Scenario(workload, engine, scaling=autoscale.Scaling(spec), seed=loads.SEED))
    print(f"{load.name}: took {time.monotonic() - began_s:.0f} s", file=sys.stderr, flush=True)
    return made


def text(rows: Sequence[results.Row]) -> str:
    """The generated part of the document."""
    names = list(dict.fromkeys(str(one["load"]) for one in rows))
    measures = list(dict.fromkeys(str(one["measure"]) for one in rows))
    lines = [
        (
            f"{measure} ({next(str(one['unit']) for one in rows if one['measure'] == measure)})",
            *(tables.number(results.value(rows, load=name, measure=measure)) for name in names),
        )
        for measure in measures
    ]
    return "\n\n".join(
        (f"Machine: {results.describe(results.machine())}", tables.table(("measure", *names), lines)),
    )


def picture(path: Path, load: loads.Load, drawn: figures.Curves) -> None:
    """Replicas, what waits, and time to first token, over time."""
    made, (counts, queued, ttft) = plots.figure(rows=3, height=1.9)
    at_s = drawn.at_s
    replicas = {"ready": drawn.ready, "wanted": drawn.wanted, "needed at 70 %": drawn.needed}
    plots.draw_lines(
        counts, load.title, {name: (at_s, line) for name, line in replicas.items()}, y_label="replicas", step=True
    )
    plots.draw_lines(queued, "", {"queued": (at_s, drawn.queued_s)}, y_label="prefill queued, s")
    waits = {"p90": drawn.ttft_p90_s, "p50": drawn.ttft_p50_s}
    plots.draw_lines(
        ttft,
        "",
        {name: (drawn.window_s, line) for name, line in waits.items()},
        x_label="seconds",
        y_label="TTFT, s",
    )
    ttft.axhline(SPEC.ttft_slo_s, color="#999999", linewidth=0.8, linestyle="--")
    plots.save(made, path)


if __name__ == "__main__":
    sys.exit(main())
