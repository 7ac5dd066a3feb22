"""What Shoal must reach in these runs, and whether it did. Pure.

Every comparison is of medians over the runs made. "best peer" is, for each measure by itself, the peer with the best
figure, which is harder to beat than any one peer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shoal_bench.routing import routers, workloads

BEST_PEER: Final = "best peer"
SGLANG: Final = "sglang-router"
_NEAR: Final = f"mooncake-x{workloads.NEAR_SATURATION:.1f}"


@dataclass(frozen=True, slots=True)
class Target:
    """`ratio_max`: ours over theirs at most; `below_max`: theirs minus ours at most. One of them is given."""

    workload: str
    measure: str
    against: str
    ratio_max: float | None = None
    below_max: float | None = None

    def text(self) -> str:
        if self.ratio_max is not None:
            return f"at most {self.ratio_max:g} of {self.against}"
        return f"at most {self.below_max:g} below {self.against}"


@dataclass(frozen=True, slots=True)
class Verdict:
    target: Target
    ours: float
    theirs: float
    peer: str
    """Who is meant by `against`."""
    figure: float
    """The ratio, or the difference."""
    hit: bool


TARGETS: Final = (
    Target("mooncake-x1.0", "ttft_s_mean", SGLANG, ratio_max=0.6),
    Target("mooncake-x1.0", "ttft_s_p99", SGLANG, ratio_max=1.0),
    Target("mooncake-x1.0", "hit_rate", SGLANG, below_max=0.05),
    Target(_NEAR, "ttft_s_mean", SGLANG, ratio_max=0.5),
    Target(_NEAR, "ttft_s_p99", SGLANG, ratio_max=1.0),
    Target(_NEAR, "hit_rate", SGLANG, below_max=0.05),
    Target("agents-80", "ttft_s_mean", BEST_PEER, ratio_max=0.7),
    Target("agents-80", "ttft_s_p99", BEST_PEER, ratio_max=0.6),
)

Medians = Mapping[tuple[str, str, str], float]
"""By workload, router and measure."""


def judge(medians: Medians, targets: Sequence[Target] = TARGETS) -> list[Verdict]:
    """In the order of `targets`; those whose figures were not measured are left out."""
    found = []
    for target in targets:
        ours = medians.get((target.workload, routers.OURS, target.measure))
        peers = _peers(medians, target)
        if ours is None or not peers:
            continue
        peer = min(peers, key=lambda name: peers[name])
        theirs = peers[peer]
        if target.ratio_max is not None:
            if theirs <= 0:
                continue
            figure, hit = ours / theirs, ours <= target.ratio_max * theirs
        else:
            assert target.below_max is not None
            figure, hit = theirs - ours, theirs - ours <= target.below_max
        found.append(Verdict(target, ours, theirs, peer, figure, hit))
    return found


def _peers(medians: Medians, target: Target) -> dict[str, float]:
    """Of all peers, or of the one that is meant. Smaller is better in every measure that "best peer" is used with."""
    return {
        router: value
        for (workload, router, measure), value in medians.items()
        if workload == target.workload
        and measure == target.measure
        and router != routers.OURS
        and target.against in (BEST_PEER, router)
    }
