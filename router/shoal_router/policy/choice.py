"""The choice of a replica: the cheapest of the candidates by policy.cost. The hot path of binding.

Up to 64 routable replicas all are candidates; above, the owners of the longest matches, the session's home and a random
sample, since with hundreds of replicas a sample of 16 holds one that is nearly idle (power of d choices).
"""

import math
import random
from collections.abc import Iterable, Sequence, Set

from shoal_router import model
from shoal_router.index import chain as chains
from shoal_router.index import sessions
from shoal_router.policy import cost
from shoal_router.policy import load as loads

ALL_MAX = 64
OWNERS_MAX = 16
SAMPLE = 16


class Query:
    """A request as the choice sees it: sizes and match lengths, computed once per look-up of the index."""

    __slots__ = ("credit", "depth", "hint", "home", "kv_output", "last", "levels", "prompt_tokens", "request")

    def __init__(
        self,
        request: model.Request,
        prompt_tokens: int,
        kv_output: float,
        levels: Sequence[tuple[int, int]],
        last: sessions.Last | None,
        hint: str,
        reply_tokens: int,
    ) -> None:
        self.request = request
        self.prompt_tokens = prompt_tokens
        self.kv_output = kv_output
        size = max(1, len(request.prompt.data) + request.prompt.rest_bytes)
        ratio = prompt_tokens / size
        limit = prompt_tokens - 1  # an engine always computes at least the last token
        self.levels = [(bits, min(limit, int(chains.length_bytes(hashes) * ratio)), hashes) for bits, hashes in levels]
        goes_on = (
            last is not None and 0 < last.depth <= len(request.chain) and request.chain[last.depth - 1] == last.tip
        )
        self.last = last if goes_on else None
        self.home = last.replica if last is not None and goes_on else ""
        self.hint = hint
        self.depth = last.depth if last is not None and goes_on else 0
        self.credit = min(limit, last.prompt_tokens + reply_tokens) if last is not None and goes_on else 0

    def matched(self, load: loads.Load) -> tuple[int, int]:
        """Tokens predicted to be cached on a replica, and hashes of them that its mirror holds."""
        tokens = depth = 0
        bit = load.bit
        for bits, found, hashes in self.levels:
            if bits & bit:
                tokens, depth = found, hashes
                break
        if depth and depth >= self.depth and self.credit > tokens and load.replica.name == self.home:
            tokens = self.credit
        return tokens, depth


class Choice:
    """The cheapest replica for a request now, and whether it has room; if not, to wait for it is cheapest."""

    __slots__ = ("cost_s", "depth", "load", "matched_tokens", "query", "room", "work_s")

    def __init__(self, query: Query, load: loads.Load, cost_s: float, work_s: float, matched: tuple[int, int]) -> None:
        self.query = query
        self.load = load
        self.cost_s = cost_s
        self.work_s = work_s
        self.matched_tokens, self.depth = matched
        self.room = load.room(work_s, query.prompt_tokens - self.matched_tokens + query.kv_output)


def cheapest(
    query: Query, candidates: Iterable[loads.Load], price: float, stream_s: float, now: float, rng: random.Random
) -> Choice | None:
    """Least cost; equal costs at random, but for the session's home or its parent's."""
    prompt_tokens = query.prompt_tokens
    favoured = query.home or query.hint
    best: loads.Load | None = None
    best_cost = math.inf
    best_work = 0.0
    best_matched = (0, 0)
    ties = 1
    for load in candidates:
        matched = query.matched(load)
        cached = matched[0]
        uncached = prompt_tokens - cached
        timing = load.timing
        work = timing.a_s + uncached * (timing.b_s + timing.c_s * (cached + 0.5 * uncached))
        total = work * price + load.interference_s
        if load.pending:
            load.presume(now)
            total += load.busy_s(now)
        kv_tokens = uncached + query.kv_output
        if load.mirror.locked + load.loose + kv_tokens > load.kv_soft or len(load.flight) >= load.running_max:
            total += cost.kv_pressure_s(load, kv_tokens, stream_s)
        if favoured and load.replica.name == favoured:
            total -= cost.TIE_S
        if total > best_cost:
            continue
        if total == best_cost:
            ties += 1
            if rng.random() * ties >= 1.0:
                continue
        else:
            ties = 1
        best, best_cost, best_work, best_matched = load, total, work, matched
    return Choice(query, best, best_cost, best_work, best_matched) if best is not None else None


def terms(query: Query, load: loads.Load, price: float, stream_s: float, now: float) -> model.CostTerms:
    """All that `cheapest` adds up for one replica, by name."""
    matched_tokens, _ = query.matched(load)
    uncached = query.prompt_tokens - matched_tokens
    work_s = load.timing.prefill_s(uncached, matched_tokens)
    busy_s = load.busy_s(now)
    pressure_s = cost.kv_pressure_s(load, uncached + query.kv_output, stream_s)
    return model.CostTerms(
        replica=load.replica.name,
        cost_s=busy_s + work_s * price + load.interference_s + pressure_s,
        busy_s=busy_s,
        work_s=work_s,
        price=price,
        interference_s=load.interference_s,
        kv_pressure_s=pressure_s,
        prompt_tokens=query.prompt_tokens,
        matched_tokens=matched_tokens,
        room=load.room(work_s, uncached + query.kv_output),
        home=load.replica.name == (query.home or query.hint),
    )


def candidates(
    query: Query,
    routable: Sequence[loads.Load],
    by_name: dict[str, loads.Load],
    by_bit: dict[int, loads.Load],
    excluded: Set[str],
    rng: random.Random,
) -> Sequence[loads.Load]:
    """Who is looked at: see the module."""
    if len(routable) <= ALL_MAX:
        if not excluded:
            return routable
        return [load for load in routable if load.replica.name not in excluded]
    chosen = {load.bit: load for load in rng.sample(routable, SAMPLE)}
    home = by_name.get(query.home or query.hint)
    if home is not None and home.state is model.ReplicaState.ROUTABLE:
        chosen[home.bit] = home
    owners = 0
    for bits, _, _ in query.levels:
        owners += _add_owners(chosen, bits, by_bit, OWNERS_MAX - owners, rng)
        if owners >= OWNERS_MAX:
            break
    if excluded:
        return [load for load in chosen.values() if load.replica.name not in excluded]
    return list(chosen.values())


def _add_owners(
    chosen: dict[int, loads.Load], bits: int, by_bit: dict[int, loads.Load], limit: int, rng: random.Random
) -> int:
    """Up to `limit` replicas of a bit set, from a random place on, so that a prefix that all hold has no favourite."""
    start = rng.randrange(bits.bit_length())
    rotated = (bits >> start, bits & ((1 << start) - 1))
    taken = 0
    for offset, part in ((start, rotated[0]), (0, rotated[1])):
        while part and taken < limit:
            low = part & -part
            bit = low << offset
            chosen[bit] = by_bit[bit]
            part ^= low
            taken += 1
    return taken
