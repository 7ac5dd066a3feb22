"""Who is compared: Shoal as it comes, Shoal with slicing off, and its peers with their cache-aware policies.

`shoal` and `shoal-whole` are one program and differ in one word of the route table. Called by `runs`.
"""

import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shoal_bench import processes
from shoal_bench.peers import launch
from shoal_bench.slicing import engine

SHOAL: Final = "shoal"
WHOLE: Final = "shoal-whole"
SGLANG: Final = "sglang-router"
STOP_GRACE_S: Final = 1.0
POLICY: Final = "cache_aware"


@dataclass(frozen=True, slots=True)
class Router:
    """`name` in rows; `service`: fields of the service in Shoal's route table."""

    name: str
    program: str
    service: Mapping[str, str]
    title: str


ROUTERS: Final = {
    one.name: one
    for one in (
        Router(SHOAL, "shoal", {"slicing": "Auto"}, "slices where it thinks that they help: the default"),
        Router(WHOLE, "shoal", {"slicing": "Off"}, "the same program, prompts as they are"),
        Router(SGLANG, "sglang-router", {}, POLICY),
        Router("smg", "smg", {}, POLICY),
    )
}


@dataclass(frozen=True, slots=True)
class Programs:
    """Where routers come from when not from this checkout's own builds and locks."""

    shoal_folder: Path | None = None
    """With `shoal_router`, compiled or not."""
    peers_folder: Path | None = None
    """With programs that have the peers' names."""


@dataclass(frozen=True, slots=True)
class SliceCounters:
    """Of Shoal's /metrics, since its start; None for what it does not report."""

    slices: float | None
    sliced_prompts: float | None
    slice_failures: float | None
    slice_added_s: float | None
    slice_saved_s: float | None

    def figures(self) -> dict[str, float]:
        found = {name: getattr(self, name) for name in SliceCounters.__slots__}
        return {name: value for name, value in found.items() if value is not None}

    def since(self, before: "SliceCounters") -> "SliceCounters":
        def less(name: str) -> float | None:
            now, then = getattr(self, name), getattr(before, name)
            # A metric appears with its first count.
            return None if now is None else now - (then or 0.0)

        return SliceCounters(*(less(name) for name in SliceCounters.__slots__))


_METRICS: Final = (
    "shoal_router_slices_total",
    "shoal_router_sliced_requests_total",
    "shoal_router_slice_failures_total",
    "shoal_router_slice_added_seconds_total",
    "shoal_router_slice_saved_seconds_total",
)
"""In the order of SliceCounters."""


def start(router: Router, engine_urls: Sequence[str], folder: Path, programs: Programs) -> processes.Process:
    """Running, with all engines usable; the caller stops it. Raises as `launch.start` does."""
    return launch.start(
        router.program,
        POLICY,
        engine_urls,
        processes.free_port(),
        folder,
        service=router.service,
        router_folder=programs.shoal_folder,
        programs=programs.peers_folder,
    )


def slice_counters(process: processes.Process) -> SliceCounters | None:
    """None for a router that is not Shoal."""
    admin = process.facts.get("admin")
    if admin is None:
        return None
    with urllib.request.urlopen(f"{admin}/metrics", timeout=engine.TIMEOUT_S) as answer:
        page = answer.read().decode()
    return SliceCounters(*(engine.total(page, name) for name in _METRICS))
