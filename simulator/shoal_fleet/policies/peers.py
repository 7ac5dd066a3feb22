"""Models of other routers' policies. They count requests in flight, send at once, and never learn what engines evict.

`CacheAware` is the gateway of SGLang (sglang-router 0.3): a tree of what was sent where; the worker that matched more
than `threshold` of the prompt, unless requests are out of balance over the whole fleet (`max - min > absolute` and
`max > relative * min`), then the least loaded. Its documentation says that a miss goes to the worker with the smallest
tree; the code of 0.3.2 takes the least loaded one. Both are here. Where several workers hold the match, any of them is
taken, as there. Trees are cut back by age on a timer only.
"""

import random
from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

from shoal_api import state
from shoal_fleet import prefix
from shoal_fleet.policies.protocol import OnPlaced, OnRefused, Whole
from shoal_fleet.workload import Job
from shoal_router.index import chain as chains

RETRY_AFTER_S = 5.0


class _Sent(Whole):
    """A request on a replica: counted until it ends."""

    __slots__ = ("_counts", "cached_predicted", "replica", "ttft_predicted_s")

    def __init__(self, replica: str, counts: dict[str, int], cached: int | None) -> None:
        self.replica = replica
        self.cached_predicted = cached
        self.ttft_predicted_s: float | None = None
        self._counts = counts
        counts[replica] += 1

    def first_token(self, now_s: float) -> None:
        """Not looked at."""

    def tokens(self, count: int, now_s: float) -> None:
        """Not looked at."""

    def finish(self, prompt_tokens: int, output_tokens: int, cached_tokens: int, now_s: float) -> None:
        self._counts[self.replica] -= 1

    def release(self, now_s: float) -> None:
        self._counts[self.replica] -= 1


class _Peer:
    """Replicas and their requests in flight. A subclass picks one."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._counts: dict[str, int] = {}
        self._open: list[str] = []

    def pick(self, job: Job, now_s: float) -> tuple[str, int | None]:
        """A replica of `_open`, and the cached tokens expected there."""
        raise NotImplementedError

    def add(self, replica: str, kv_tokens: int, running_max: int, page_tokens: int, now_s: float) -> None:
        self._counts[replica] = 0
        self._open.append(replica)

    def drain(self, replica: str, draining: bool, now_s: float) -> None:
        if draining and replica in self._open:
            self._open.remove(replica)
        elif not draining and replica not in self._open:
            self._open.append(replica)

    def remove(self, replica: str, now_s: float) -> None:
        self.drain(replica, True, now_s)

    def submit(self, job: Job, on_placed: OnPlaced, on_refused: OnRefused, now_s: float) -> None:
        if not self._open:
            on_refused("no_replica", RETRY_AFTER_S)
            return
        replica, cached = self.pick(job, now_s)
        on_placed(_Sent(replica, self._counts, cached))

    def next_wake_s(self) -> float | None:
        return None

    def wake(self, now_s: float) -> None:
        """Nothing waits here."""

    def waiting(self) -> int:
        return 0

    def state(self, now_s: float) -> state.ServiceState | None:
        return None

    def _least(self, among: Sequence[str]) -> str:
        """Fewest requests in flight, ties at random."""
        fewest = min(self._counts[name] for name in among)
        return self._rng.choice([name for name in among if self._counts[name] == fewest])


class RoundRobin(_Peer):
    """One after the other."""

    _turn = -1

    def pick(self, job: Job, now_s: float) -> tuple[str, int | None]:
        self._turn += 1
        return self._open[self._turn % len(self._open)], None


class LeastLoaded(_Peer):
    """Fewest requests in flight."""

    def pick(self, job: Job, now_s: float) -> tuple[str, int | None]:
        return self._least(self._open), None


class CacheAware(_Peer):
    """See the module."""

    def __init__(
        self,
        rng: random.Random,
        *,
        threshold: float = 0.3,
        absolute: int = 64,
        relative: float = 1.5,
        chars_max: int = 1 << 26,
        evict_every_s: float = 120.0,
        miss: Literal["least_loaded", "smallest_tree"] = "least_loaded",
    ) -> None:
        super().__init__(rng)
        self._threshold = threshold
        self._absolute = absolute
        self._relative = relative
        self._chars_max = chars_max
        self._evict_every_s = evict_every_s
        self._miss = miss
        self._trees: dict[str, _Tree] = {}
        self._evict_at_s = evict_every_s

    def add(self, replica: str, kv_tokens: int, running_max: int, page_tokens: int, now_s: float) -> None:
        super().add(replica, kv_tokens, running_max, page_tokens, now_s)
        self._trees[replica] = _Tree()

    def remove(self, replica: str, now_s: float) -> None:
        super().remove(replica, now_s)
        self._trees.pop(replica, None)

    def pick(self, job: Job, now_s: float) -> tuple[str, int | None]:
        while now_s >= self._evict_at_s:
            self._evict_at_s += self._evict_every_s
            for tree in self._trees.values():
                tree.evict(self._chars_max)
        chain = prefix.router_chain(job)
        replica, matched = self._chosen(chain, job.input_tokens * prefix.TOKEN_BYTES)
        self._trees[replica].insert(chain)
        return replica, matched // prefix.TOKEN_BYTES

    def _chosen(self, chain: Sequence[int], chars: int) -> tuple[str, int]:
        loads = [self._counts[name] for name in self._open]
        most, least = max(loads), min(loads)
        if most - least > self._absolute and most > self._relative * least:
            return self._least(self._open), 0
        matches = {name: self._trees[name].match(chain) for name in self._open}
        longest = max(matches.values())
        matched = chains.length_bytes(longest)
        if matched > self._threshold * chars:
            return self._rng.choice([name for name in self._open if matches[name] == longest]), matched
        if self._miss == "least_loaded":
            return self._least(self._open), 0
        return min(self._open, key=lambda name: self._trees[name].chars), 0


class _Tree:
    """Prefixes sent to one worker, by the router's chain hashes; ends of prompts are older than their beginnings."""

    __slots__ = ("_held", "chars")

    def __init__(self) -> None:
        self._held: OrderedDict[int, int] = OrderedDict()
        self.chars = 0

    def match(self, chain: Sequence[int]) -> int:
        """Leading hashes that it holds."""
        held = self._held
        low, high = 0, len(chain)
        while low < high:
            middle = (low + high + 1) >> 1
            if chain[middle - 1] in held:
                low = middle
            else:
                high = middle - 1
        return low

    def insert(self, chain: Sequence[int]) -> None:
        held = self._held
        for place in range(len(chain) - 1, -1, -1):
            value = chain[place]
            if value in held:
                held.move_to_end(value)
            else:
                size = chains.length_bytes(place + 1) - chains.length_bytes(place)
                held[value] = size
                self.chars += size

    def evict(self, chars_max: int) -> None:
        while self.chars > chars_max:
            _, size = self._held.popitem(last=False)
            self.chars -= size
