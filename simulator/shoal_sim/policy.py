"""Who goes first, who has to wait, and who gives way: the choices that the command line makes in scheduling.

Pure functions of the policy and the requests; the scheduler carries out what they choose.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shoal_sim.radix import RadixCache
from shoal_sim.request import Request

LPM_WAITING_MAX = 128
"""With more waiting requests than this, looking up each one's prefix costs too much: first come, first served."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The command line's share in scheduling."""

    page_tokens: int
    max_running: int
    max_queued: int | None = None
    chunk_tokens: int | None = 8192
    max_prefill_tokens: int = 16384
    prefill_max_requests: int | None = None
    mixed_chunk: bool = False
    order: str = "fcfs"
    conservativeness: float = 1.0
    radix: bool = True
    priority: bool = False
    low_values_first: bool = False
    preemption: bool = True
    preemption_threshold: int = 10

    def rank(self, request: Request) -> int:
        """Lower goes first."""
        return request.priority if self.low_values_first else -request.priority


def order_waiting(policy: Policy, waiting: list[Request], cache: RadixCache) -> None:
    """Sorts the waiting requests in place; equal ones keep the order of their arrival."""
    if len(waiting) < 2:
        return
    page = policy.page_tokens
    if policy.order == "lpm" and len(waiting) <= LPM_WAITING_MAX:
        waiting.sort(key=lambda request: -cache.peek(request.hashes))
    elif policy.order == "shortest-prefill-first":
        waiting.sort(key=lambda request: request.sequence_tokens - cache.peek(request.hashes) * page)
    elif policy.order == "lof":
        waiting.sort(key=lambda request: -request.token_budget)
    if policy.priority:
        waiting.sort(key=policy.rank)


def outranked_by(policy: Policy, waiting: Sequence[Request], request: Request) -> Request | None:
    """The waiting request that leaves a full queue for this one."""
    if not policy.priority or not waiting:
        return None
    worst = max(waiting, key=policy.rank)
    return worst if policy.rank(request) < policy.rank(worst) else None


def preempted_by(policy: Policy, running: Sequence[Request], request: Request) -> Request | None:
    """The running request that gives its slot to this one: it must be outranked by the threshold."""
    if not policy.priority or not policy.preemption or not running:
        return None
    worst = max(running, key=policy.rank)
    return worst if policy.rank(worst) - policy.rank(request) >= policy.preemption_threshold else None


def retraction_victim(batch: Sequence[Request]) -> Request:
    """Who loses least when the pool is full: the fewest generated tokens, then the longest prompt."""
    return min(batch, key=lambda request: (len(request.output), -request.prompt.tokens))
