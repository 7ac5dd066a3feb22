"""One run of one router; rounds of runs in rotated order; and the rows that they become.

A run: the engine's cache emptied, the router started afresh, contexts filled through it, then the measured time. A
router that cannot be had or does not start is said and left out. Called by `__main__` and by tests.
"""

import asyncio
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shoal_bench import processes, results
from shoal_bench.peers import install, launch
from shoal_bench.slicing import engine as engines
from shoal_bench.slicing import measures, play, routers
from shoal_bench.slicing.engine import Counters, Engine
from shoal_bench.slicing.load import Kind, Load
from shoal_bench.slicing.play import Played
from shoal_bench.slicing.routers import Router, SliceCounters

LEFT_OUT: Final = (
    processes.NotReadyError,
    launch.UnsupportedError,
    install.InstallError,
    play.LoadError,
    engines.EngineError,
)


@dataclass(frozen=True, slots=True)
class Run:
    router: str
    kind: Kind
    round: int
    figures: Mapping[str, float]
    warm_ttft_s: Sequence[float]
    cold_ttft_s: Sequence[float]
    errors: Mapping[str, int]
    cpu: Mapping[str, float]
    """Shares of one core: `router`, `client`, `engine` where it is ours; `machine`: of all cores, whoever used them."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """Of everything that counts, at one time."""

    engine: Counters
    slices: SliceCounters | None
    cpu_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Bench:
    engine: Engine
    folder: Path
    programs: routers.Programs

    def rounds(self, load: Load, names: Sequence[str], count: int) -> Iterator[Run]:
        """Every router in every round, the order moved on by one each time."""
        for number in range(1, count + 1):
            for name in rotated(names, number - 1):
                try:
                    made = self.make(routers.ROUTERS[name], load, number)
                except LEFT_OUT as error:
                    print(f"  {name}, round {number}: not measured: {error}", file=sys.stderr, flush=True)
                    continue
                print(f"  {line(made)}", flush=True)
                yield made

    def make(self, router: Router, load: Load, number: int) -> Run:
        """Raises one of LEFT_OUT."""
        played, before, after = self.played(router, load, number)
        sliced = after.slices.since(before.slices) if after.slices is not None and before.slices is not None else None
        elapsed_s = after.engine.at_s - before.engine.at_s
        cpu = {name: (after.cpu_s[name] - before.cpu_s[name]) / elapsed_s for name in after.cpu_s}
        cpu["client"] = played.cpu_s / played.wall_s
        cpu["machine"] /= os.cpu_count() or 1
        errors: dict[str, int] = {}
        for one in (*played.lead_in, *played.sent):
            if one.answer.error is not None:
                errors[one.answer.error] = errors.get(one.answer.error, 0) + 1
        return Run(
            router=router.name,
            kind=load.kind,
            round=number,
            figures=measures.figures(played, before.engine, after.engine, sliced, elapsed_s),
            warm_ttft_s=measures.ttfts([one for one in played.sent if not one.cold]),
            cold_ttft_s=measures.ttfts([one for one in played.sent if one.cold]),
            errors=errors,
            cpu=cpu,
        )

    def played(self, router: Router, load: Load, seed: int) -> tuple[Played, _Reading, _Reading]:
        """The run itself, and readings at the start of the measured time and after the last answer."""
        folder = self.folder / router.name
        for old in folder.glob("*.log"):
            old.unlink()
        engines.flush(self.engine)
        process = routers.start(router, [self.engine.url], folder, self.programs)
        try:
            return asyncio.run(self._play(process, load, seed))
        finally:
            process.stop(routers.STOP_GRACE_S)

    async def _play(self, process: processes.Process, load: Load, seed: int) -> tuple[Played, _Reading, _Reading]:
        first: list[asyncio.Task[_Reading]] = []

        def begin() -> None:
            first.append(asyncio.create_task(asyncio.to_thread(self._read, process)))

        made = await play.play(load, process.url, self.engine.model, seed, begin)
        return made, await first[0], await asyncio.to_thread(self._read, process)

    def _read(self, process: processes.Process) -> _Reading:
        cpu_s = {"router": process.cpu_s(), "machine": _busy_s()}
        if self.engine.process is not None:
            cpu_s["engine"] = self.engine.process.cpu_s()
        return _Reading(engines.counters(self.engine), routers.slice_counters(process), cpu_s)


def rotated(names: Sequence[str], by: int) -> list[str]:
    place = by % len(names)
    return [*names[place:], *names[:place]]


def rows(made: Collection[Run], engine: str) -> list[results.Row]:
    """Medians over rounds, with the least and the greatest where there are several."""
    found = []
    for kind, router in dict.fromkeys((one.kind, one.router) for one in made):
        mine = [one.figures for one in made if (one.kind, one.router) == (kind, router)]
        for measure, unit in measures.UNITS.items():
            values = [one[measure] for one in mine if measure in one]
            if values:
                found.append(results.row(values, unit, router=router, engine=engine, measure=named(kind, measure)))
    return found


def merged(old: Sequence[results.Row], new: Sequence[results.Row]) -> list[results.Row]:
    """`old` without what `new` measures anew: the same router and load on the same engine, whatever the measure."""

    def part(row: results.Row) -> tuple[str, str, bool]:
        return row["router"], row["engine"], row["measure"].startswith(measures.CHAT)

    taken = {part(one) for one in new}
    return [one for one in old if part(one) not in taken] + list(new)


def named(kind: Kind, measure: str) -> str:
    return measure if kind == "ids" else measures.CHAT + measure


def line(run: Run) -> str:
    shown = ("warm_ttft_s_mean", "warm_ttft_s_p99", "silence_s_max", "cold_ttft_s_mean", "turns", "failures", "slices")
    parts = [f"{name} {run.figures[name]:.4g}" for name in shown if name in run.figures]
    parts += [f"{name} {share:.0%}" for name, share in run.cpu.items()]
    parts += [f"{count} x {error}" for error, count in run.errors.items()]
    return f"{run.router}, {run.kind}, round {run.round}: " + "  ".join(parts)


def seconds(load: Load) -> float:
    """About what one run takes, for those who wait."""
    filled_s = load.sessions * 0.25
    return filled_s + load.lead_in_s + load.measured_s + 9.0


def _busy_s() -> float:
    """Seconds of CPU that the machine has used since it started, over all cores; idle and waiting for disks apart."""
    words = Path("/proc/stat").read_text().splitlines()[0].split()
    # user, nice, system, idle, iowait, irq, softirq, steal: proc(5).
    ticks = [int(word) for word in words[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
