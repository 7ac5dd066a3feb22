"""What slices must reach by this benchmark, and whether they do. Pure: rows in, verdicts out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shoal_bench import results
from shoal_bench.slicing import engine, routers


@dataclass(frozen=True, slots=True)
class Target:
    """Shoal's figure over that of `against`, at most. `simulated`: of the simulated engine, or of a GPU's."""

    simulated: bool
    measure: str
    against: str
    ratio_max: float


@dataclass(frozen=True, slots=True)
class Verdict:
    engine: str
    target: Target
    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    @property
    def hit(self) -> bool:
        return self.ours <= self.target.ratio_max * self.theirs


TARGETS: Final = (
    Target(True, "warm_ttft_s_mean", routers.WHOLE, 0.15),
    Target(True, "warm_ttft_s_p99", routers.WHOLE, 0.25),
    Target(True, "silence_s_max", routers.WHOLE, 0.3),
    Target(True, "cold_ttft_s_mean", routers.WHOLE, 1.25),
    Target(False, "warm_ttft_s_mean", routers.SGLANG, 0.2),
)


def judge(rows: Sequence[results.Row]) -> list[Verdict]:
    """Of every engine that has rows; targets without figures are left out."""
    found = []
    for name in dict.fromkeys(str(one["engine"]) for one in rows):
        for target in TARGETS:
            if target.simulated != (name == engine.SIMULATED):
                continue
            ours = results.value(rows, engine=name, router=routers.SHOAL, measure=target.measure)
            theirs = results.value(rows, engine=name, router=target.against, measure=target.measure)
            if ours is not None and theirs:
                found.append(Verdict(name, target, ours, theirs))
    return found
