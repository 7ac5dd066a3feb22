"""What is simulated: the workloads of `shoal_bench.routing`, one definition for processes and for virtual time; and the
routing study's own, for which the whole public traces are needed.
"""

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from shoal_api import routes
from shoal_bench.routing import play
from shoal_bench.routing.workloads import Workload as Routing
from shoal_cli.replay import trace
from shoal_cli.simulate import jobs
from shoal_fleet import model, run
from shoal_fleet.clients import Pace
from shoal_fleet.workload import Workload

FAST_PAGE_TOKENS: Final = 512
"""Coarser than the engines with processes have: an eighth of the pages to look at, and figures within the noise."""
UNBOUNDED: Final = routes.Queue(requests_max=1 << 20, ttl_s=1e6)
"""The study's router never refuses."""


@dataclass(frozen=True, slots=True)
class Study:
    """One line of the routing study's table."""

    name: str
    title: str
    trace: str
    """Its file name, as it is published."""
    prefill_tokens_per_s: float
    kv_tokens: int
    speed: float = 1.0
    sessions: int | None = None
    turns_max: int | None = None


STUDIES: Final = (
    Study("study-mooncake-x1.0", "Mooncake conversation, x1.0", "mooncake-conversation.jsonl", 8000, 1_000_000),
    Study("study-mooncake-x1.6", "Mooncake conversation, x1.6", "mooncake-conversation.jsonl", 8000, 1_000_000, 1.6),
    Study(
        "study-agents-80",
        "coding agents, 80 sessions",
        "weka-claude-code-sample.jsonl.gz",
        15_000,
        2_000_000,
        sessions=80,
        turns_max=60,
    ),
)


@functools.cache
def read(path: Path, turns_max: int | None = None, subagents: bool = True) -> Workload:
    return jobs.of_trace(trace.read(path), turns_max=turns_max, subagents=subagents)


def of_routing(workload: Routing, policy: str, *, seed: int = play.SEED, page_tokens: int = 64) -> run.Scenario:
    """The same trace, engines, pace and seed as `shoal_bench.routing` has, in seconds of the model."""
    engines = workload.engines
    engine = model.simulated(engines.profile, engines.kv_tokens, page_tokens)
    return run.Scenario(
        workload=read(workload.trace),
        model=replace(engine, running_max=engines.running_max),
        policy=policy,
        replicas=engines.count,
        pace=Pace(
            speed=workload.arrivals_factor,
            sessions=workload.sessions,
            think_max_s=workload.think_max_s,
            ramp_s=workload.ramp_s,
            duration_s=workload.duration_s,
            shuffle_seed=seed,
        ),
        timing=routes.Timing(),  # as there: the router starts from its defaults and learns
        seed=seed,
    )


def of_study(study: Study, policy: str, folder: Path, *, seed: int = 1) -> run.Scenario:
    """The study's engines: prefill and decode do not disturb each other."""
    return run.Scenario(
        workload=read(folder / study.trace, study.turns_max, False),
        model=model.study(study.prefill_tokens_per_s, study.kv_tokens, FAST_PAGE_TOKENS),
        policy=policy,
        replicas=8,
        pace=Pace(speed=study.speed, sessions=study.sessions, think_max_s=60.0, ramp_s=2.0),
        queue=UNBOUNDED,
        seed=seed,
    )
