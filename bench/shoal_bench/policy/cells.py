"""The runs of the benchmark: which there are, made in two processes, and the row that each gives.

A cell is one run. Cells of one key with several seeds become one row with the median, the least and the greatest.
"""

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shoal_bench import results
from shoal_bench.policy import bound, constants, scenarios, slicing
from shoal_bench.routing import workloads
from shoal_fleet import run
from shoal_fleet.fleet import Outcome
from shoal_fleet.results import Summary

MEASURES: Final[dict[str, tuple[str, Callable[[Summary], float | None]]]] = {
    "ttft_s_mean": ("s", lambda one: one.ttft_s.mean),
    "ttft_s_p50": ("s", lambda one: one.ttft_s.p50),
    "ttft_s_p90": ("s", lambda one: one.ttft_s.p90),
    "ttft_s_p99": ("s", lambda one: one.ttft_s.p99),
    "e2e_s_mean": ("s", lambda one: one.e2e_s.mean),
    "hit_rate": ("share", lambda one: one.hit_rate),
    "decode_tokens_per_s_per_user": ("1/s", lambda one: one.decode_tokens_per_s_per_user.p50),
    "tokens_per_gpu_minute": ("1/min", lambda one: one.tokens_per_replica_minute),
    "spread_prefill_cv": ("ratio", lambda one: one.spread_prefill_cv),
    "spread_requests": ("requests", lambda one: one.spread_requests),
    "spread_waiting_tokens": ("tokens", lambda one: one.spread_waiting_tokens),
    "prefill_share": ("share", lambda one: one.prefill_share),
    "requests": ("count", lambda one: one.requests),
    "failed": ("count", lambda one: one.failed),
    "cached_error": ("share", lambda one: one.cached_error),
    "ttft_ratio_p50": ("ratio", lambda one: one.ttft_ratio.p50),
}
"""Names as in docs/benchmarks/routing.json where both have them."""
UNITS: Final = {name: unit for name, (unit, _) in MEASURES.items()} | {
    name: unit for name, (unit, _) in slicing.MEASURES.items()
}


@dataclass(frozen=True, slots=True)
class Cell:
    part: str
    """`study`, `sweep`, `check` or `slices`."""
    workload: str
    policy: str
    constant: str = ""
    setting: float | None = None
    seed: int = 1

    @property
    def key(self) -> dict[str, Any]:
        made: dict[str, Any] = {"part": self.part, "workload": self.workload, "policy": self.policy}
        return made | ({"constant": self.constant, "setting": self.setting} if self.constant else {})


def made(cell: Cell, traces: Path | None) -> dict[str, float]:
    """Runs one cell; its measures, without those that there are not."""
    constant = constants.by_name(cell.constant) if cell.constant else None
    with constants.set_to(constant, cell.setting):
        scenario = _scenario(cell, traces)
        outcomes, summary = _played(scenario)
    found = {name: read(summary) for name, (_, read) in MEASURES.items()}
    if cell.part == slicing.PART:
        found |= slicing.measured(scenario, outcomes)
    return {name: value for name, value in found.items() if value is not None}


def _played(scenario: run.Scenario) -> tuple[Sequence[Outcome], Summary]:
    """What became of the requests, and its summary."""
    if scenario.policy in bound.NAMES:
        outcomes = bound.played(scenario)
        return outcomes, bound.summary(scenario, outcomes)
    made = run.run(scenario)
    return made.outcomes, made.summary


def _scenario(cell: Cell, traces: Path | None) -> run.Scenario:
    for study in scenarios.STUDIES:
        if study.name == cell.workload:
            assert traces is not None
            return scenarios.of_study(study, cell.policy, traces, seed=cell.seed)
    if cell.part == slicing.PART:
        return slicing.scenario(cell.workload, cell.policy, cell.seed)
    page = 64 if cell.part == "check" else scenarios.FAST_PAGE_TOKENS
    return scenarios.of_routing(workloads.FULL[cell.workload], cell.policy, seed=cell.seed, page_tokens=page)


def rows(cells: Sequence[Cell], traces: Path | None, processes: int) -> list[results.Row]:
    """Runs them all, says how far it is, and sums up over seeds."""
    began_s = time.monotonic()
    samples: dict[tuple[tuple[str, Any], ...], dict[str, list[float]]] = {}
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        done = pool.imap(_Worker(traces), cells)
        for number, (cell, found) in enumerate(zip(cells, done, strict=True), start=1):
            known = samples.setdefault(tuple(cell.key.items()), {})
            for name, value in found.items():
                known.setdefault(name, []).append(value)
            _say(number, len(cells), time.monotonic() - began_s, cell, found)
    return [
        results.row(values, UNITS[name], measure=name, **dict(key))
        for key, known in samples.items()
        for name, values in known.items()
    ]


@dataclass(frozen=True, slots=True)
class _Worker:
    traces: Path | None

    def __call__(self, cell: Cell) -> dict[str, float]:
        return made(cell, self.traces)


def _say(number: int, total: int, elapsed_s: float, cell: Cell, found: dict[str, float]) -> None:
    left_s = elapsed_s / number * (total - number)
    what = f"{cell.constant} = {cell.setting:g}" if cell.setting is not None else cell.policy
    print(
        f"[{number}/{total}, {left_s:.0f} s left] {cell.workload}, {what}, seed {cell.seed}: "
        f"TTFT {found.get('ttft_s_mean', float('nan')):.2f} s",
        file=sys.stderr,
        flush=True,
    )


def study(policies: Iterable[str]) -> list[Cell]:
    return [Cell("study", one.name, policy) for one in scenarios.STUDIES for policy in policies]


def sweep(names: Iterable[tuple[str, Sequence[int]]], policy: str) -> list[Cell]:
    """The defaults once a workload and seed, then every other value of every constant. `names`: workload, seeds."""
    found = []
    for workload, seeds in names:
        found += [Cell("sweep", workload, policy, seed=seed) for seed in seeds]
        found += [
            Cell("sweep", workload, policy, one.name, value, seed)
            for one in constants.CONSTANTS
            for value in one.values
            if value != one.default
            for seed in seeds
        ]
    return found


def check(names: Iterable[str], policies: Iterable[str]) -> list[Cell]:
    return [Cell("check", workload, policy) for workload in names for policy in policies]


def slices(names: Mapping[str, Sequence[int]]) -> list[Cell]:
    """`names`: seeds by workload."""
    return [
        Cell(slicing.PART, workload, policy, seed=seed)
        for workload, seeds in names.items()
        for policy in slicing.ROUTERS
        for seed in seeds
    ]
