"""The simulator's engine and H200 profile, in virtual time, against requests measured on a real engine.

Same arrivals, prompts and outputs.
"""

import json
import statistics
from array import array
from collections.abc import Callable
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

import pytest

from shoal_fleet import model
from shoal_fleet.clock import Clock
from shoal_fleet.engine import Engine
from shoal_fleet.workload import Job

MEASURED = json.loads((Path(__file__).parent / "engine_h200_0_5_17" / "poisson.json").read_text())
ENGINE = replace(model.simulated("llama-8b-h200"), running_max=128)
BLOCK_TOKENS = 64


class Row(NamedTuple):
    at_s: float
    prompt: int
    output: int
    ttft_s: float
    whole_s: float


class Caller:
    """One request that is timed."""

    def __init__(self, engine: Engine, clock: Clock, job: Job) -> None:
        self._clock = clock
        self._sent_s = clock.now_s
        self.ttft_s = self.whole_s = 0.0
        engine.submit(job, self)

    def first_token(self) -> None:
        self.ttft_s = self._clock.now_s - self._sent_s

    def tokens(self, count: int) -> None:
        """Counted by nobody."""

    def ended(self, cached_tokens: int) -> None:
        self.whole_s = self._clock.now_s - self._sent_s

    def failed(self, reason: str) -> None:
        raise AssertionError(reason)


def simulate(rows: list[Row]) -> list[Row]:
    clock = Clock()
    engine = Engine("engine", ENGINE, clock)
    blocks = count(1)
    callers: list[Caller] = []

    def sending(row: Row) -> Callable[[], None]:
        text = array("Q", islice(blocks, -(-row.prompt // BLOCK_TOKENS)))
        job = Job(text, BLOCK_TOKENS, row.prompt, row.output)
        return lambda: callers.append(Caller(engine, clock, job))

    for row in rows:
        clock.at(row.at_s, sending(row))
    while clock.step():
        pass
    return [
        row._replace(ttft_s=caller.ttft_s, whole_s=caller.whole_s) for row, caller in zip(rows, callers, strict=True)
    ]


@pytest.mark.parametrize(
    ("rate", "ttft_share", "whole_share"), [("4", 0.08, 0.05), ("12", 0.08, 0.05), ("24", 0.10, 0.10)]
)
def test_poisson_arrivals_take_as_long_as_measured(rate: str, ttft_share: float, whole_share: float) -> None:
    measured = [Row(*row) for row in MEASURED[rate]]
    simulated = simulate(measured)
    for name, share in (("ttft_s", ttft_share), ("whole_s", whole_share)):
        want = statistics.mean(getattr(row, name) for row in measured)
        got = statistics.mean(getattr(row, name) for row in simulated)
        assert got == pytest.approx(want, rel=share), name
    median = statistics.median(row.ttft_s for row in simulated)
    assert median == pytest.approx(statistics.median(row.ttft_s for row in measured), rel=0.15)
