"""The loads: real prompts (Mooncake's first ten minutes, again and again as other conversations) at a made-up rate.

Arrivals are a Poisson process whose rate is a function of time, drawn by thinning with a fixed seed.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from shoal_bench.policy import scenarios
from shoal_bench.routing import workloads
from shoal_fleet.workload import Arrival, Workload, key_of

BASE_PER_S: Final = 0.8
"""Requests a second that about two replicas carry."""
FACTOR: Final = 8.0
SEED: Final = 1


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    title: str
    seconds: float
    rate: Callable[[float], float]
    """Requests a second at a time."""
    marks: tuple[float, ...] = ()
    """Times at which the rate jumps."""


def _step(at_s: float) -> float:
    return BASE_PER_S * (FACTOR if 600.0 <= at_s < 1800.0 else 1.0)


def _wave(at_s: float) -> float:
    middle, swing = BASE_PER_S * (FACTOR + 1) / 2, BASE_PER_S * (FACTOR - 1) / 2
    return middle - swing * math.cos(2 * math.pi * at_s / 1800.0)


STEP: Final = Load("step", "a step to eight times the load, and back", 3600.0, _step, (600.0, 1800.0))
WAVE: Final = Load("wave", "a wave of half an hour, between the same two rates", 3600.0, _wave)
LOADS: Final = (STEP, WAVE)


def shortened(load: Load, seconds: float) -> Load:
    """Its beginning."""
    return replace(load, seconds=seconds, marks=tuple(one for one in load.marks if one < seconds))


def workload(load: Load) -> Workload:
    """Its requests."""
    source = [one.job for one in scenarios.read(workloads.MOONCAKE).arrivals]
    rng = random.Random(SEED)
    highest = max(load.rate(at_s) for at_s in range(int(load.seconds)))
    arrivals: list[Arrival] = []
    at_s = rng.expovariate(highest)
    while at_s < load.seconds:
        if rng.random() * highest < load.rate(at_s):
            around, place = divmod(len(arrivals), len(source))
            session = key_of(f"{load.name} {len(arrivals)}")
            arrivals.append(Arrival(at_s, replace(source[place], scope=key_of(f"{around}"), session=session)))
        at_s += rng.expovariate(highest)
    return Workload(arrivals=tuple(arrivals))
