"""One run: a fresh fleet, one router, one replay; and its record as a file, so that a stopped benchmark goes on later.

A record's key is a hash of all that could change its figures: the workload, the trace, the code of router, simulator
and replay, the lock of a peer. A record with another key is not used, and its run is made again.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from shoal_bench import processes, results
from shoal_bench.peers import install
from shoal_bench.routing import fleet, measures, play, routers, samples
from shoal_bench.routing.workloads import Workload
from shoal_cli import loops
from shoal_cli.replay import trace

_COMMON: Final = ("simulator/shoal_sim", "cli/shoal_cli/replay", "bench/shoal_bench/routing")
_OURS: Final = ("router/shoal_router", "crds/shoal_api")
_NOT_MEASURED: Final = ("report.py", "pictures.py", "targets.py", "plan.py", "__main__.py")


@dataclass(frozen=True, slots=True)
class Record:
    """Of one run. Shares of CPU are of one core, while the replay ran."""

    key: str
    workload: str
    router: str
    run: int
    figures: measures.Figures
    cpu: dict[str, float]
    """`router`, `engines` (all of them), `client`, and `machine`: the share of all cores that was busy, whoever used
    them."""
    wall_s: float
    """Start and stop included."""
    spread_at_s: list[float]
    spread_requests: list[float]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def path_of(folder: Path, workload: Workload, router: routers.Router, run: int) -> Path:
    return folder / "runs" / f"{workload.name}--{router.name}--{run}.json"


def read(path: Path) -> Record | None:
    """None where there is no record."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return Record(**{**found, "figures": measures.Figures(**found["figures"])})


def key(workload: Workload, router: routers.Router) -> str:
    parts = [repr(workload), workload.trace.name, _digest((workload.trace,)), router.name]
    parts.append(_tree_digest(_COMMON))
    if router.program == routers.OURS:
        parts.append(_tree_digest(_OURS))
    else:
        parts.append(_digest((install.LOCKS / f"{router.program}.txt",)))
        parts.append(" ".join(router.words(workload.compression)) + router.policy)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@cache
def trace_of(path: Path) -> trace.Trace:
    return trace.read(path)


def make(workload: Workload, router: routers.Router, run: int, folder: Path) -> Record:
    """Raises NotReadyError where a process does not start, InstallError where the peer cannot be had."""
    began_s = time.monotonic()
    logs = folder / "logs" / f"{workload.name}--{router.name}--{run}"
    for old in logs.glob("*.log"):
        old.unlink()
    read_trace = trace_of(workload.trace)
    with fleet.running(workload.engines, workload.compression, logs) as engines:
        urls = [one.url for one in engines]
        process = routers.start(router, urls, logs, workload.compression)
        try:
            before = _cpu(process, engines)
            played = loops.run(play.play(workload, read_trace, process.url, fleet.MODEL, urls))
            after = _cpu(process, engines)
        finally:
            process.stop(fleet.STOP_GRACE_S)
    cpu = {name: (after[name] - before[name]) / played.wall_s for name in after}
    cpu["client"] = played.cpu_s / played.wall_s
    cpu["machine"] = cpu.pop("busy") / (os.cpu_count() or 1)
    sent_s = max((one.started_s for one in played.outcomes), default=0.0) * workload.compression
    found = measures.figures(
        played.outcomes,
        played.samples,
        compression=workload.compression,
        engines=workload.engines.count,
        until_s=sent_s,
    )
    return Record(
        key=key(workload, router),
        workload=workload.name,
        router=router.name,
        run=run,
        figures=found,
        cpu={name: results.rounded(value, 3) for name, value in cpu.items()},
        wall_s=round(time.monotonic() - began_s, 1),
        spread_at_s=[round(one.at_s, 1) for one in played.samples],
        spread_requests=[_range(one) for one in played.samples],
    )


def write(path: Path, record: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(record.to_json()))
    fresh.replace(path)


def _range(one: samples.Sample) -> float:
    requests = [load.requests for load in one.loads]
    return float(max(requests) - min(requests))


def _cpu(router: processes.Process, engines: Iterable[processes.Process]) -> dict[str, float]:
    return {"router": router.cpu_s(), "engines": sum(one.cpu_s() for one in engines), "busy": _busy_s()}


def _busy_s() -> float:
    """Seconds of CPU that the machine has used since it started, over all cores; idle and waiting for disks apart."""
    words = Path("/proc/stat").read_text().splitlines()[0].split()
    # user, nice, system, idle, iowait, irq, softirq, steal: proc(5).
    ticks = [int(word) for word in words[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


@cache
def _digest(paths: tuple[Path, ...]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@cache
def _tree_digest(folders: tuple[str, ...]) -> str:
    found = [
        path
        for folder in folders
        for path in sorted((results.ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".json") and path.name not in _NOT_MEASURED
    ]
    return _digest(tuple(found))
