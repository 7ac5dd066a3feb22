"""The whole run: engines, then for each load a fresh router, its CPU, its profile; then tables and pictures.

    make bench-hot-path            # docs/benchmarks/hot-path.{json,md} and hot-path-*.svg, about 3 minutes
    make bench-hot-path QUICK=1    # short profiles into build/bench/hot-path, under a minute

The first run on a state of the router's sources compiles it (1.5 minutes).
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from shoal_bench import processes, results, tables
from shoal_bench.hotpath import flame, frames, record, report
from shoal_bench.peers import install, launch
from shoal_bench.router import bench, bodies, load, measure, wrk

COMMAND: Final = "make bench-hot-path"
FULL: Final = record.Span(warm_s=2, plain_s=8, record_s=20)
QUICK: Final = record.Span(warm_s=1, plain_s=2, record_s=4)
_NEW_DOCUMENT: Final = "# Hot path\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short profiles, into build/bench/hot-path")
    parser.add_argument("--only", default=",".join(report.HEADS), help="profiles, comma separated (%(default)s)")
    chosen = parser.parse_args()
    failures = (install.InstallError, processes.NotReadyError, record.ProfilerError, load.LoadError, wrk.WrkError)
    try:
        names = report.selected(chosen.only)
        run(names, QUICK if chosen.quick else FULL, publish=not chosen.quick and names == list(report.HEADS))
    except (*failures, frames.UnreadableError, ValueError) as error:
        print(f"bench-hot-path: {error}", file=sys.stderr)
        return 1
    return 0


def run(names: Sequence[str], span: record.Span, *, publish: bool) -> None:
    scratch = results.SCRATCH / "hot-path"
    place = measure.place(os.sched_getaffinity(0))
    install.ensure("wrk")
    install.compiled_router()  # before the clock of what is left runs
    processes.raise_file_limit()
    facts = results.machine()
    modules = router_modules()
    found: dict[str, report.Taken] = {}
    with bench.pinned(place.generator), bench.engines(place, scratch) as urls:
        for done, name in enumerate(names):
            left_s = (len(names) - done) * (span.warm_s + span.plain_s + span.record_s + record.ATTACH_S + 2)
            print(f"[{done + 1}/{len(names)}] {report.HEADS[name]}  about {left_s / 60:.1f} min left", flush=True)
            found[name] = _profile(name, span, urls, place, scratch, modules)
            print(f"    {found[name].cpu_us:.1f} us of CPU, {found[name].samples} samples", flush=True)
    _finish(found, facts, place, span, scratch, publish=publish)


def router_modules() -> frozenset[str]:
    """Of this checkout, without the package's name."""
    package = install.ROUTER_SOURCES / "shoal_router"
    return frozenset(
        ".".join(path.relative_to(package).with_suffix("").parts)
        for path in package.rglob("*.py")
        if path.name != "__init__.py"
    )


def _profile(
    name: str,
    span: record.Span,
    urls: Sequence[str],
    place: measure.Place,
    scratch: Path,
    modules: frozenset[str],
) -> report.Taken:
    program = "shoal-interpreted" if name.endswith("-interpreted") else "shoal"
    folder = scratch / name
    router = launch.start(program, "cache_aware", urls, processes.free_port(), folder, place.router)
    try:
        with _load(name, router.url, place.generator, scratch) as work:
            taken = record.take(router, work, span, folder / "stacks.txt")
    finally:
        router.stop()
    return report.Taken(frames.fold(taken.lines, modules), taken.cpu_us, taken.per_s, taken.busy)


@contextlib.contextmanager
def _load(name: str, url: str, core: int, scratch: Path) -> Iterator[record.Load]:
    if name == "chunk":
        with record.chunks(url) as streams:
            yield streams
        return
    templates = bodies.long() if name == "prompt350k" else bodies.small()
    yield record.Requests(wrk.prepare(templates, scratch / name / "requests"), url, core)


def _finish(
    found: dict[str, report.Taken],
    facts: dict[str, str],
    place: measure.Place,
    span: record.Span,
    scratch: Path,
    *,
    publish: bool,
) -> None:
    folder = results.PUBLISHED if publish else scratch
    results.write(folder / "hot-path.json", report.rows(found))
    where = (
        f"`{COMMAND}`: CPU over {span.plain_s:.0f} s without the profiler, then "
        f"{span.record_s:.0f} s of samples at {record.RATE_HZ} Hz. Router on core {place.router}, engines on "
        f"{', '.join(map(str, sorted(set(place.engines))))}, load generator on {place.generator}; "
        f"{record.CONNECTIONS} connections, or {record.STREAMS:,} streams."
    )
    text = report.block(found, facts, where, pictures=publish)
    tables.write_generated(folder / "hot-path.md", text, COMMAND, _NEW_DOCUMENT)
    for name in found:
        if name in report.PICTURES or not publish:
            drawn = flame.render(report.title(name, found[name]), found[name].stacks)
            (folder / f"hot-path-{name}.svg").write_text(drawn)
    print(f"\n{text}\n\nwritten to {folder}: hot-path.json, hot-path.md and hot-path-*.svg")
    if not publish:
        print("This was no full run: docs/benchmarks is as it was.")
