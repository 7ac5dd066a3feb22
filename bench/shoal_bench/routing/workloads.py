"""What is replayed, on what fleet, and how far time is compressed.

The fleet is that of the routing study: eight engines with a prefill of 8,000 tokens a second and caches of a million
tokens for Mooncake, 15,000 and two million for coding agents (profiles `study-8k` and `study-15k` of the simulator).
`compression` divides every second of a workload alike: of the engines, of arrivals and think times, and of the
router's clock. It is as high as two cores allow without being what is measured: `runs` records how busy they were, and
the workload `mooncake-x1.0-slow` repeats one at half the compression.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shoal_bench import results

TRACES: Final = results.ROOT / "examples" / "traces"
MOONCAKE: Final = TRACES / "mooncake-conversation-10min.jsonl.gz"
AGENTS: Final = TRACES / "coding-agents-starts.jsonl.gz"


@dataclass(frozen=True, slots=True)
class Engines:
    """One kind of simulated engine, and how many."""

    profile: str
    kv_tokens: int
    count: int = 8
    running_max: int = 256
    stream_interval: int = 8
    """Tokens in one event, as SGLang's flag of that name: fewer events, or they would be most of what is measured."""


@dataclass(frozen=True, slots=True)
class Workload:
    """All seconds are of the model."""

    name: str
    title: str
    trace: Path
    engines: Engines
    compression: float
    arrivals_factor: float = 1.0
    """Open loop: how much faster than recorded requests arrive."""
    sessions: int | None = None
    """Closed loop: conversations at once."""
    think_max_s: float = 60.0
    duration_s: float | None = None
    """No turn starts later."""
    grace_s: float = 900.0
    """For what is in flight then."""
    ramp_s: float = 0.0
    wall_s: float = 60.0
    """Estimate of a run on this machine, for the budget."""


STUDY_8K: Final = Engines("study-8k", 1_000_000)
STUDY_15K: Final = Engines("study-15k", 2_000_000)


def mooncake(factor: float, compression: float, suffix: str = "", **more: float) -> Workload:
    return Workload(
        f"mooncake-x{factor:.1f}{suffix}",
        f"Mooncake conversations, ten minutes at {factor:g} times the recorded rate",
        MOONCAKE,
        STUDY_8K,
        compression,
        arrivals_factor=factor,
        wall_s=more.get("duration_s", 600.0) / factor / compression + 8.0,
        duration_s=more.get("duration_s"),
    )


def agents(sessions: int, compression: float, duration_s: float) -> Workload:
    return Workload(
        f"agents-{sessions}",
        f"coding agents, {sessions} sessions at once",
        AGENTS,
        STUDY_15K,
        compression,
        sessions=sessions,
        duration_s=duration_s,
        ramp_s=30.0,
        wall_s=(duration_s + 80.0) / compression + 6.0,
    )


NEAR_SATURATION: Final = 1.5
"""Factor of Mooncake's arrivals at which these engines are nearly, and not quite, overrun; docs/benchmarks/routing.md
says how it was found."""
FULL: Final = {
    one.name: one
    for one in (
        mooncake(1.0, 14.0),
        mooncake(NEAR_SATURATION, 12.0),
        agents(80, 16.0, 1000.0),
        agents(20, 16.0, 600.0),
        agents(40, 16.0, 600.0),
        agents(120, 12.0, 700.0),
        mooncake(NEAR_SATURATION, 6.0, "-slow"),
    )
}
