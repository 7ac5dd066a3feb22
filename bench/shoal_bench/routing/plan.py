"""Which runs are made, in what order, and what a budget of time leaves of them. Pure.

Rounds are interleaved: every pair of workload and router has its first run before any has its second, and within a
round the routers of a workload follow each other, so that a slow hour of the machine meets all of them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from shoal_bench.routing.workloads import Workload


@dataclass(frozen=True, slots=True)
class Job:
    workload: str
    router: str
    run: int

    @property
    def name(self) -> str:
        return f"{self.workload}/{self.router}/{self.run}"


def jobs(repeats: Mapping[str, Mapping[str, int]], only: Collection[str] = ()) -> list[Job]:
    """From the number of runs by workload and router. `only` keeps jobs whose name begins with one of them, by parts:
    `mooncake-x1.0`, `mooncake-x1.0/smg`, `mooncake-x1.0/smg/2`."""
    most = max((count for counts in repeats.values() for count in counts.values()), default=0)
    made = [
        Job(workload, router, run)
        for run in range(1, most + 1)
        for workload, counts in repeats.items()
        for router, count in counts.items()
        if run <= count
    ]
    return [job for job in made if not only or any(_within(job, one) for one in only)]


def _within(job: Job, words: str) -> bool:
    parts = words.split("/")
    return [job.workload, job.router, str(job.run)][: len(parts)] == parts


def left_s(todo: Sequence[Job], workloads: Mapping[str, Workload], took_s: Mapping[str, Sequence[float]]) -> float:
    """How long these will take: as long as runs of the same workload took so far, else as its estimate says."""
    total = 0.0
    for job in todo:
        known = took_s.get(job.workload)
        total += sum(known) / len(known) if known else workloads[job.workload].wall_s
    return total
