"""Small workloads and fleets in virtual time, for tests of the policy and of the fleet simulator."""

import random
from array import array
from collections.abc import Sequence

from shoal_api import routes
from shoal_fleet import model
from shoal_fleet.clock import Clock
from shoal_fleet.fleet import Fleet, Outcome
from shoal_fleet.policies import production, registry
from shoal_fleet.workload import Job

BLOCK_TOKENS = 512
UNBOUNDED = routes.Queue(requests_max=1 << 20, ttl_s=1e6)


def job(blocks: Sequence[int], output_tokens: int, session: int = 0, tokens: int | None = None) -> Job:
    """A request of whole blocks, or of their first `tokens`."""
    size = len(blocks) * BLOCK_TOKENS if tokens is None else tokens
    return Job(array("Q", blocks), BLOCK_TOKENS, size, output_tokens, session=session)


def fleet(
    engine: model.EngineModel,
    replicas: int,
    policy: str = registry.PRODUCTION,
    *,
    timing: routes.Timing | None = None,
    queue: routes.Queue = UNBOUNDED,
    seed: int = 1,
) -> Fleet:
    """Replicas r0, r1... that are ready. `timing`: what the router starts from, where it is not the engine's own."""
    known = {production.GPU: timing or engine.router_timing()}
    service = routes.Service(name="fleet", served_name="fleet", timing=known, queue=queue)
    made = Fleet(Clock(), registry.make(policy, service, seed))
    for number in range(replicas):
        made.add_replica(f"r{number}", engine)
    return made


def ttfts(outcomes: Sequence[Outcome]) -> list[float]:
    return [one.ttft_s for one in outcomes if one.ttft_s is not None]


def hit_rate(outcomes: Sequence[Outcome]) -> float:
    return sum(one.cached_tokens or 0 for one in outcomes) / sum(one.job.input_tokens for one in outcomes)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def documents(requests: int, per_s: float, seed: int = 7) -> list[tuple[float, Job]]:
    """Many questions about a few long documents, with the times at which they arrive."""
    rng = random.Random(seed)
    made = []
    at_s = 0.0
    for number in range(requests):
        at_s += rng.expovariate(per_s)
        document = min(47, int(rng.paretovariate(0.7)) - 1)
        blocks = [document * 1000 + place for place in range(40)] + [1_000_000 + number * 10 + i for i in range(3)]
        made.append((at_s, job(blocks, 40 + rng.randrange(200), number)))
    return made
