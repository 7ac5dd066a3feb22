"""The routers that are compared: program, policy, and what each must be told for compressed time.

Only rules that hold seconds are touched. Shoal's clock runs at the compression (`fastclock`), for which its sources
run interpreted: its choices are the same, and it is far from busy here. Of the peers' rules only
smg's look at the engines' loads every ten seconds matters in these runs; it is made as often by the model's clock as
by default, but not more than once a real second. Trees are pruned by size, which no run here reaches.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shoal_bench import processes
from shoal_bench.peers import install, launch

SMG_LOADS_EVERY_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Router:
    """`name` is what rows and tables call it."""

    name: str
    program: str
    policy: str
    words: Callable[[float], Sequence[str]] = lambda compression: ()
    """Further words of its command line, by compression."""

    def title(self) -> str:
        own = launch.POLICIES[self.program][self.policy]
        return f"{self.program} {install.version(self.program)}" + (f", {own}" if own else "")


def _smg_words(compression: float) -> Sequence[str]:
    return ("--load-monitor-interval", str(max(1, round(SMG_LOADS_EVERY_S / compression))))


ROUTERS: Final = {
    one.name: one
    for one in (
        Router("shoal", "shoal", "cache_aware"),
        Router("sglang-router", "sglang-router", "cache_aware"),
        Router("smg", "smg", "cache_aware", _smg_words),
        Router("vllm-router", "vllm-router", "cache_aware"),
        Router("vllm-router-sticky", "vllm-router", "sticky_sessions"),
        Router("least-loaded", "smg", "least_loaded", _smg_words),
        Router("round-robin", "sglang-router", "round_robin"),
    )
}
OURS: Final = "shoal"


def start(router: Router, engine_urls: Sequence[str], folder: Path, compression: float) -> processes.Process:
    """Running, with all engines usable; the caller stops it."""
    return launch.start(
        router.program,
        router.policy,
        engine_urls,
        processes.free_port(),
        folder,
        words=router.words(compression),
        module=("shoal_bench.routing.fastclock", f"{compression:g}", "shoal_router"),
        router_folder=install.ROUTER_SOURCES,
    )
