"""What a reader must know of runs beside their rows: machine, versions, load, quantiles, CPU, errors; by engine.

Kept in slicing-detail.json beside slicing.json, so that tables and plots can be drawn later and elsewhere: a run on a
GPU's machine replaces only its own engine's part. Called by `__main__`, read by `report` and `pictures`.
"""

import json
import re
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from shoal_bench import results
from shoal_bench.peers import install
from shoal_bench.slicing import measures, routers
from shoal_bench.slicing.load import Load
from shoal_bench.slicing.runs import Run

Detail = dict[str, Any]
"""Of one engine: `machine`, `engine`, `versions` by router, and `loads` by kind, each with its `load` and what is known
of its `routers`."""
VERSION_DEADLINE_S: Final = 20.0


def read(path: Path) -> dict[str, Detail]:
    """By engine; empty where there is no file."""
    if not path.exists():
        return {}
    found: dict[str, Detail] = json.loads(path.read_text())
    return found


def write(path: Path, found: Mapping[str, Detail]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(found, indent=1) + "\n")
    fresh.replace(path)


def of_runs(
    load: Load,
    made: Collection[Run],
    machine: Mapping[str, str],
    engine: Mapping[str, str],
    versions: Mapping[str, str],
) -> Detail:
    """One engine's part: these runs of one load."""
    found = {one.router: _of_router([other for other in made if other.router == one.router]) for one in made}
    return {
        "machine": dict(machine),
        "engine": dict(engine),
        "versions": dict(versions),
        "loads": {load.kind: {"load": asdict(load), "routers": found}},
    }


def merged(old: Mapping[str, Detail], new: Mapping[str, Detail]) -> dict[str, Detail]:
    """By engine: `old` with `new` put in; routers and loads that were not run again keep what they had."""
    return {**old, **{engine: _merged(old[engine], one) if engine in old else one for engine, one in new.items()}}


def _merged(old: Detail, new: Detail) -> Detail:
    loads = dict(old["loads"])
    for kind, one in new["loads"].items():
        before = loads.get(kind, {"routers": {}})
        loads[kind] = {"load": one["load"], "routers": {**before["routers"], **one["routers"]}}
    return {**new, "versions": {**old["versions"], **new["versions"]}, "loads": loads}


def _of_router(made: Collection[Run]) -> dict[str, Any]:
    errors: dict[str, int] = {}
    for one in made:
        for error, count in one.errors.items():
            errors[error] = errors.get(error, 0) + count
    parts = dict.fromkeys(part for one in made for part in one.cpu)
    return {
        "rounds": len(made),
        "warm_curve": measures.curve(sorted(value for one in made for value in one.warm_ttft_s)),
        "cold_curve": measures.curve(sorted(value for one in made for value in one.cold_ttft_s)),
        "cpu_max": {part: results.rounded(max(one.cpu.get(part, 0.0) for one in made), 3) for part in parts},
        "errors": errors,
    }


def version(router: str, programs: routers.Programs) -> str:
    """Of a router's program, as far as it can be told here."""
    program = routers.ROUTERS[router].program
    if program in install.OURS:
        folder = programs.shoal_folder
        build = ", interpreted" if folder is not None and not any(folder.glob("shoal_router/**/*.so")) else ""
        try:
            return install.version(program) + build
        except metadata.PackageNotFoundError:
            return "from the sources" + build
    if programs.peers_folder is None:
        return install.version(program)
    command = [str(programs.peers_folder / program), "--version"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=VERSION_DEADLINE_S)
    match = re.search(r"\d+(\.\d+)+", found.stdout + found.stderr)
    return match.group() if match else "unknown"
