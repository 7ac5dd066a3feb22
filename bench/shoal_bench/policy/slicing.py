"""Long cold prompts in slices or whole, and the bound, in virtual time: workloads, routers and measures of the part
`slices` of `make bench-policy`. Pure but for the traces that it reads.

A prompt is cold where at least COLD_TOKENS of it are in no earlier prompt of its trace: that does not depend on who
routes, as what a cache holds does.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from shoal_bench import results
from shoal_bench.policy import bound, scenarios
from shoal_bench.routing import workloads
from shoal_fleet import percentiles, prefix, run
from shoal_fleet.fleet import Outcome
from shoal_fleet.workload import Conversation, Job, Turn, Workload

PART: Final = "slices"
SLICED: Final = "price_and_hold"
WHOLE: Final = "price_and_hold_whole"
PEER: Final = "cache_aware"
ROUTERS: Final = (SLICED, WHOLE, PEER, *bound.NAMES)
COLD_TOKENS: Final = 16_384
"""Two chunks of the engines: less is no reason for slices."""
_BLOCK_TOKENS: Final = 512

OVERRUN: Final = workloads.mooncake(1.6, 12.0)
SATURATED_MOONCAKE: Final = "mooncake-always-160"
SATURATED_AGENTS: Final = "agents-120-no-think"
SATURATED: Final = (SATURATED_MOONCAKE, SATURATED_AGENTS)
"""Closed loops in which engines are never idle: only for throughput."""
_IN_FLIGHT: Final = 160
_AGENTS_S: Final = 400.0

COMPARED: Final[dict[str, Sequence[int]]] = {
    "agents-80": (1, 2, 3),
    "agents-40": (1, 2),
    "agents-120": (1, 2),
    "mooncake-x1.0": (1, 2),
    f"mooncake-x{workloads.NEAR_SATURATION:.1f}": (1, 2),
    OVERRUN.name: (1, 2),
    SATURATED_MOONCAKE: (1, 2),
    SATURATED_AGENTS: (1, 2),
}
"""Seeds by workload. Agents: the order of the conversations, too; Mooncake: only how ties fall."""
QUICK: Final[dict[str, Sequence[int]]] = {"agents-80": (1,), f"mooncake-x{workloads.NEAR_SATURATION:.1f}": (1,)}


def scenario(workload: str, policy: str, seed: int) -> run.Scenario:
    """Raises KeyError for an unknown workload."""
    if workload == OVERRUN.name:
        return _of(OVERRUN, policy, seed)
    if workload == SATURATED_MOONCAKE:
        made = _of(workloads.FULL["mooncake-x1.0"], policy, seed)
        pace = replace(made.pace, sessions=_IN_FLIGHT, shuffle_seed=None)
        return replace(made, workload=one_by_one(made.workload), pace=pace)
    if workload == SATURATED_AGENTS:
        made = _of(workloads.FULL["agents-120"], policy, seed)
        return replace(made, pace=replace(made.pace, think_max_s=0.0, duration_s=_AGENTS_S))
    return _of(workloads.FULL[workload], policy, seed)


def _of(workload: workloads.Workload, policy: str, seed: int) -> run.Scenario:
    return scenarios.of_routing(workload, policy, seed=seed, page_tokens=scenarios.FAST_PAGE_TOKENS)


def one_by_one(workload: Workload) -> Workload:
    """Arrivals as conversations of one turn: as many as are wanted are in flight at once, in the trace's order."""
    turns = [(Turn(one.job, 0.0),) for one in workload.arrivals]
    return Workload(conversations=tuple(Conversation(str(number), each) for number, each in enumerate(turns)))


def new_tokens(workload: Workload) -> dict[int, int]:
    """By `id` of each job, the tokens that no earlier one of the trace has at its beginning."""
    seen: set[int] = set()
    found = {}
    for job in _in_order(workload):
        hashes = prefix.page_hashes(job, _BLOCK_TOKENS)
        known = next((place for place, one in enumerate(hashes) if one not in seen), len(hashes))
        seen.update(hashes)
        found[id(job)] = job.input_tokens - known * _BLOCK_TOKENS
    return found


def _in_order(workload: Workload) -> Iterator[Job]:
    for arrival in workload.arrivals:
        yield arrival.job
    for one in workload.conversations:
        for place in range(-1, len(one.turns)):
            if place >= 0:
                yield one.turns[place].job
            for agent in one.subagents:
                if agent.after == place:
                    yield from (turn.job for turn in agent.turns)


MEASURES: Final[dict[str, tuple[str, Callable[[Sequence[Outcome], Sequence[Outcome]], float | None]]]] = {
    "warm_ttft_s_mean": ("s", lambda warm, _: _ttft(warm).mean),
    "warm_ttft_s_p99": ("s", lambda warm, _: _ttft(warm).p99),
    "cold_ttft_s_mean": ("s", lambda _, cold: _ttft(cold).mean),
    "cold_ttft_s_p99": ("s", lambda _, cold: _ttft(cold).p99),
    "cold_requests": ("count", lambda _, cold: float(len(cold))),
    "slices": ("count", lambda warm, cold: float(sum(one.slices for one in (*warm, *cold)))),
    "requests_per_s": ("1/s", lambda warm, cold: requests_per_s([*warm, *cold])),
}
"""Of the outcomes of warm and of cold prompts; beside those of `cells`."""


def measured(scenario: run.Scenario, outcomes: Sequence[Outcome]) -> dict[str, float]:
    new = new_tokens(scenario.workload)
    cold = [one for one in outcomes if new[id(one.job)] >= COLD_TOKENS]
    warm = [one for one in outcomes if new[id(one.job)] < COLD_TOKENS]
    found = {name: read(warm, cold) for name, (_, read) in MEASURES.items()}
    return {name: value for name, value in found.items() if value is not None}


def requests_per_s(outcomes: Sequence[Outcome]) -> float | None:
    """Completed until the last one started: later the fleet only empties."""
    last_s = max((one.arrived_s for one in outcomes), default=0.0)
    done = sum(1 for one in outcomes if not one.failure and one.ended_s <= last_s)
    return done / last_s if last_s else None


def _ttft(outcomes: Iterable[Outcome]) -> percentiles.Percentiles:
    return percentiles.percentiles(one.ttft_s for one in outcomes if one.ttft_s is not None)


# ---- the aims


def aims(rows: Sequence[results.Row]) -> list[tuple[str, float, float]]:
    """What the design asks for, as far as there are rows: what it is, the figure, the most or (throughput) least."""
    found = []
    for what, workload, measure, other, limit in (
        ("agents-80: mean TTFT / bound's", "agents-80", "ttft_s_mean", bound.WAITING, 1.25),
        ("agents-80: mean TTFT / preemptive bound's", "agents-80", "ttft_s_mean", bound.PREEMPTIVE, 1.25),
        ("agents-80: p99 / whole", "agents-80", "ttft_s_p99", WHOLE, 1.0),
        *(
            (f"{name}: {title} / whole", name, measure, WHOLE, limit)
            for name in (f"mooncake-x{workloads.NEAR_SATURATION:.1f}", OVERRUN.name)
            for title, measure, limit in (("mean TTFT", "ttft_s_mean", 1.0), ("p99", "ttft_s_p99", 1.1))
        ),
        *((f"{name}: throughput / whole", name, "requests_per_s", WHOLE, 0.97) for name in SATURATED),
    ):
        mine = results.value(rows, part=PART, workload=workload, policy=SLICED, measure=measure)
        theirs = results.value(rows, part=PART, workload=workload, policy=other, measure=measure)
        if mine is not None and theirs:
            found.append((what, mine / theirs, limit))
    return found
