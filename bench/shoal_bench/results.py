"""Rows of measured figures: medians and spread of repeated samples, read from and written to JSON, and the machine.

A row is one figure: `{"router": "shoal", "measure": "small_rps", "value": 1.0, "unit": "1/s", ...}`. A figure that
could not be taken has no row: missing is not zero. Files are JSON lists, one row a line, so that two runs differ
line by line. Used by all benchmarks.
"""

import json
import math
import os
import platform
import statistics
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from shoal_fleet.percentiles import rank

Row = dict[str, Any]

ROOT: Final = Path(__file__).resolve().parents[2]
PUBLISHED: Final = ROOT / "docs" / "benchmarks"
"""Where full runs write."""
SCRATCH: Final = ROOT / "build" / "bench"
"""Where quick runs write, and logs go; not in git."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Of samples of one figure."""

    median: float
    low: float
    high: float
    count: int


def summarise(samples: Collection[float]) -> Summary:
    """Raises ValueError without samples, or for one that is no number."""
    if not samples or not all(math.isfinite(one) for one in samples):
        raise ValueError(f"not samples: {samples!r}")
    return Summary(statistics.median(samples), min(samples), max(samples), len(samples))


def percentile(values: Iterable[float], share: float) -> float:
    """Nearest rank: the smallest value that at least `share` of all are not above. Raises ValueError without values."""
    found = rank(sorted(values), share)
    if found is None:
        raise ValueError("no values")
    return found


def rounded(value: float, digits: int = 4) -> float:
    """To so many significant digits: what is beyond them is noise and would make every diff long."""
    if value == 0 or not math.isfinite(value):
        return value
    return round(value, digits - 1 - math.floor(math.log10(abs(value))))


def row(samples: Collection[float], unit: str, **key: Any) -> Row:
    """A row with the median as value, and the lowest and highest sample where there are several."""
    found = summarise(samples)
    made: Row = {**key, "value": rounded(found.median), "unit": unit}
    if found.count > 1:
        made |= {"min": rounded(found.low), "max": rounded(found.high), "rounds": found.count}
    return made


def select(rows: Iterable[Row], **key: Any) -> list[Row]:
    return [one for one in rows if all(one.get(name) == value for name, value in key.items())]


def value(rows: Iterable[Row], **key: Any) -> float | None:
    """The value of the one row with this key; None where there is none. Raises ValueError where there are several."""
    found = select(rows, **key)
    if len(found) > 1:
        raise ValueError(f"{len(found)} rows have {key}")
    return float(found[0]["value"]) if found else None


def read(path: Path) -> list[Row]:
    """Empty where there is no file."""
    if not path.exists():
        return []
    rows: list[Row] = json.loads(path.read_text())
    return rows


def write(path: Path, rows: Sequence[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    body = ",\n".join(f"  {json.dumps(one)}" for one in rows)
    fresh = path.with_suffix(".new")
    fresh.write_text(f"[\n{body}\n]\n" if rows else "[]\n")
    fresh.replace(path)


def merge(old: Iterable[Row], new: Sequence[Row], key: Sequence[str]) -> list[Row]:
    """`old` without the rows whose key `new` has, then `new`."""
    taken = {tuple(one.get(name) for name in key) for one in new}
    return [one for one in old if tuple(one.get(name) for name in key) not in taken] + list(new)


def machine() -> dict[str, str]:
    """What a reader must know of where figures were taken; nothing that names the machine."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "CPU": _cpu_model(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "kernel": platform.release().partition("-")[0],
        "Python": platform.python_version(),
        "commit": _commit(),
    }


def describe(facts: Mapping[str, str]) -> str:
    """One line of Markdown."""
    return " · ".join(f"{name} {text}" for name, text in facts.items())


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=20)
    except FileNotFoundError:
        return "unknown"
    return found.stdout.strip() or "unknown"
