"""How much of the KV pool new requests may claim.

A running request may still write as many tokens as its limit allows, but most end earlier: only a share of that is
set aside. The share falls while all goes well and jumps when requests had to be retracted, as in SGLang.
"""

from collections.abc import Sequence

from shoal_sim.radix import RadixCache
from shoal_sim.request import Request

CLIP_NEW_TOKENS = 4096
"""At most this many future tokens count for a request, however large its limit."""
RATIO_INITIAL = 0.7
RATIO_MIN_FACTOR = 0.14
RATIO_DECAY_STEPS = 600
RETRACTION_STEPS = 20
"""After a retraction room is kept for this many further steps of the batch."""


class Headroom:
    def __init__(self, conservativeness: float) -> None:
        initial = min(1.0, RATIO_INITIAL * conservativeness)
        self.ratio = initial
        self._min = initial * RATIO_MIN_FACTOR
        self._step = (initial - self._min) / RATIO_DECAY_STEPS

    def tokens(self, cache: RadixCache, page_tokens: int, running: Sequence[Request]) -> float:
        there = (cache.free_pages + cache.evictable_pages) * page_tokens
        return there - sum(future_tokens(request) for request in running) * self.ratio

    def decoded(self, batch: Sequence[Request], retracted: bool) -> None:
        """After the pages of a decode step were taken."""
        if retracted and batch:
            done = sum(len(request.output) for request in batch)
            whole = sum(request.token_budget for request in batch)
            self.ratio = min(1.0, (done + RETRACTION_STEPS * len(batch)) / (whole + 1))
        else:
            self.ratio = max(self._min, self.ratio - self._step)


def future_tokens(request: Request) -> int:
    return min(request.tokens_left, CLIP_NEW_TOKENS)
