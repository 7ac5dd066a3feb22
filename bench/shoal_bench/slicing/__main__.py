"""`make bench-slicing`: the load through every router, then rows, tables and plots.

    python -m shoal_bench.slicing [--quick] [--load ids chat] [--only shoal smg ...] [--rounds 3] [--measured-s 32]
    python -m shoal_bench.slicing --engine-url http://... --engine-name "NVIDIA H200" --no-render   on a GPU's machine
    python -m shoal_bench.slicing --merge FOLDER     figures that were taken elsewhere, put into those here, and drawn
    python -m shoal_bench.slicing --render           tables and plots of the figures at hand

A full run writes docs/benchmarks/slicing.json, its details and its timeline as JSON, slicing.md and plots; a quick one
the same files to build/bench/slicing-quick; --out names another folder. A run replaces the rows of its own engine,
routers and loads. Measuring needs the standard library (and Shoal's router what it needs); drawing needs matplotlib.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, get_args

from shoal_bench import processes, results, tables
from shoal_bench.peers import install
from shoal_bench.slicing import detail, drawing, engine, pictures, report, routers, runs, timeline
from shoal_bench.slicing.load import Kind, Load

ROUNDS: Final[dict[Kind, int]] = {"ids": 3, "chat": 2}
QUICK_MEASURED_S: Final[dict[Kind, float]] = {"ids": 12.0, "chat": 6.0}
QUICK_LEAD_IN_S: Final = 2.0
NEW_DOCUMENT: Final = "# Slices\n"


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    scratch = results.SCRATCH / ("slicing-quick" if arguments.quick else "slicing")
    folder = arguments.out or (scratch if arguments.quick else results.PUBLISHED)
    if arguments.merge:
        _put(
            folder, results.read(arguments.merge / "slicing.json"), detail.read(arguments.merge / "slicing-detail.json")
        )
    if arguments.render or arguments.merge:
        return _render(folder)
    processes.raise_file_limit()
    # A quick run does not wait for a compiler.
    sources = install.ROUTER_SOURCES if arguments.quick else None
    programs = routers.Programs(arguments.shoal_folder or sources, arguments.peers_folder)
    missing: list[str] = []
    with _engine(arguments, scratch) as behind:
        bench = runs.Bench(behind, scratch, programs)
        for kind in arguments.load:
            missing += _measure(bench, _load(arguments, kind, behind), arguments, folder)
    if arguments.timeline or not (arguments.engine_url or arguments.only or arguments.no_render):
        missing += _timeline(scratch, programs, folder)
    if missing:
        print(f"not measured: {', '.join(missing)}")
    if arguments.no_render:
        return 1 if missing else 0
    rendered = _render(folder)
    return rendered or (1 if missing else 0)


def _measure(bench: runs.Bench, load: Load, arguments: argparse.Namespace, folder: Path) -> list[str]:
    """Runs one load and puts its figures into the folder's files; returns the routers without figures."""
    count = arguments.rounds or (1 if arguments.quick else ROUNDS[load.kind])
    names = [name for name in routers.ROUTERS if not arguments.only or name in arguments.only]
    minutes = len(names) * count * runs.seconds(load) / 60.0
    print(f"{load.kind}: {len(names)} routers, {count} rounds, about {minutes:.0f} min", flush=True)
    made = list(bench.rounds(load, names, count))
    if made:
        versions = {one: detail.version(one, bench.programs) for one in dict.fromkeys(run.router for run in made)}
        mine = detail.of_runs(load, made, results.machine(), engine.about(bench.engine), versions)
        _put(folder, runs.rows(made, bench.engine.name), {bench.engine.name: mine})
    return [f"{name} ({load.kind})" for name in names if all(one.router != name for one in made)]


def _put(folder: Path, rows: Sequence[results.Row], details: Mapping[str, detail.Detail]) -> None:
    """Into the folder's figures, in place of those of the same engine, router and load."""
    path = folder / "slicing.json"
    results.write(path, runs.merged(results.read(path), rows))
    path = folder / "slicing-detail.json"
    detail.write(path, detail.merged(detail.read(path), details))


def _timeline(scratch: Path, programs: routers.Programs, folder: Path) -> list[str]:
    print("timeline: two runs, about 1 min", flush=True)
    try:
        made = timeline.take(scratch / "timeline", programs)
    except runs.LEFT_OUT as error:
        print(f"  timeline: {error}", file=sys.stderr)
        return ["timeline"]
    timeline.write(folder / "slicing-timeline.json", made)
    return []


def _load(arguments: argparse.Namespace, kind: Kind, behind: engine.Engine) -> Load:
    made = Load(kind=kind)
    if kind == "chat":
        made = replace(made, chars_per_token=engine.chars_per_token(behind))
    if arguments.quick:
        made = replace(made, measured_s=QUICK_MEASURED_S[kind], lead_in_s=QUICK_LEAD_IN_S)
    return replace(made, measured_s=arguments.measured_s) if arguments.measured_s else made


@contextmanager
def _engine(arguments: argparse.Namespace, scratch: Path) -> Iterator[engine.Engine]:
    if arguments.engine_url:
        yield engine.running(arguments.engine_name, arguments.engine_url)
        return
    with engine.simulated(scratch) as made:
        yield made


def _render(folder: Path) -> int:
    rows, details = results.read(folder / "slicing.json"), detail.read(folder / "slicing-detail.json")
    if not rows or not details:
        print(f"no figures in {folder}")
        return 1
    block = report.text(rows, details)
    made = pictures.write(folder, rows, details)
    drawn = timeline.read(folder / "slicing-timeline.json")
    if drawn:
        drawing.draw(folder / "slicing-timeline.svg", drawn)
        made.append(folder / "slicing-timeline.svg")
    tables.write_generated(folder / "slicing.md", block, report.COMMAND, NEW_DOCUMENT)
    print(block)
    print(f"\nwritten to {folder}: slicing.json, slicing.md, {', '.join(path.name for path in made)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="shoal_bench.slicing", description=(__doc__ or "").splitlines()[0])
    kinds = get_args(Kind)
    parser.add_argument("--quick", action="store_true", help="one short round; nothing is published")
    parser.add_argument("--load", nargs="+", choices=kinds, default=list(kinds), help="what is sent")
    parser.add_argument("--timeline", action="store_true", help="the timeline's runs too, whatever else is asked for")
    parser.add_argument("--only", nargs="+", choices=list(routers.ROUTERS), help="these routers")
    parser.add_argument("--rounds", type=int, help="of every router")
    parser.add_argument("--measured-s", type=float, help="of every run")
    parser.add_argument("--out", type=Path, help="folder of the figures")
    parser.add_argument("--engine-url", help="an engine that runs already, instead of a simulated one")
    parser.add_argument("--engine-name", default="unnamed engine", help="its name in rows, such as the GPU's")
    parser.add_argument("--shoal-folder", type=Path, help="with shoal_router, instead of compiling it")
    parser.add_argument("--peers-folder", type=Path, help="with the peers' programs, instead of installing them")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--render", action="store_true", help="measure nothing: tables and plots of what there is")
    modes.add_argument("--merge", type=Path, help="put the figures of that folder into this one's, and draw")
    modes.add_argument("--no-render", action="store_true", help="measure, and draw nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
