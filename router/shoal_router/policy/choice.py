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
        size = max(1, request.prompt.data_bytes + request.prompt.rest_bytes)
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

    def __init__(self, query: Query, load: loads.Load, cost_s: float) -> None:
        self.query = query
        self.load = load
        self.cost_s = cost_s
        self.matched_tokens, self.depth = query.matched(load)
        uncached = query.prompt_tokens - self.matched_tokens
        self.work_s = load.timing.prefill_s(uncached, self.matched_tokens)
        self.room = load.room(self.work_s, uncached + query.kv_output, query.request.chain)


def cheapest(
    query: Query,
    among: Iterable[loads.Load],
    favoured: loads.Load | None,
    stream_s: float,
    crowd: float,
    now: float,
    rng: random.Random,
) -> Choice | None:
    """Least cost; equal costs at random, but for `favoured`, the session's home or its parent's.

    The favoured one is looked at first, with what only it is credited with: most of the others are then dismissed by
    their work alone. One loop with few attribute reads, since it runs 64 times a request; most replicas share the work
    of the one before.
    """
    prompt_tokens, kv_output, levels = query.prompt_tokens, query.kv_output, query.levels
    chain = query.request.chain
    matching = 0
    for bits, _, _ in levels:
        matching |= bits
    best_cost = math.inf
    if favoured is not None:
        best_cost = terms(query, favoured, stream_s, crowd, now).cost_s - cost.TIE_S
    tied: list[loads.Load] = []
    timing = None
    cached_before = -1
    work = need = 0.0
    for load in among:
        bit = load.bit
        cached = _cached(levels, bit) if matching & bit else 0
        if cached != cached_before or load.timing is not timing:
            timing, cached_before = load.timing, cached
            uncached = prompt_tokens - cached
            need = uncached + kv_output
            work = timing.a_s + uncached * (timing.b_s + timing.c_s * (cached + 0.5 * uncached))
        total = work * (load.price + crowd * work) + load.interference_s
        if total > best_cost:
            continue
        if load.pending:
            load.presume(now)
            total += load.busy_s(now)
        if load.rest_s:
            total += load.behind_s(work, chain)
        if need > load.slack:
            total += cost.kv_pressure_s(load, need, stream_s)
        if total < best_cost:
            tied, best_cost = [load], total
        elif total == best_cost:
            tied.append(load)
    if tied:
        return Choice(query, tied[0] if len(tied) == 1 else rng.choice(tied), best_cost)
    return Choice(query, favoured, best_cost) if favoured is not None else None


def _cached(levels: Sequence[tuple[int, int, int]], bit: int) -> int:
    for bits, found, _ in levels:
        if bits & bit:
            return found
    return 0


def terms(query: Query, load: loads.Load, stream_s: float, crowd: float, now: float) -> model.CostTerms:
    """All that `cheapest` adds up for one replica, by name."""
    matched_tokens, _ = query.matched(load)
    uncached = query.prompt_tokens - matched_tokens
    work_s = load.timing.prefill_s(uncached, matched_tokens)
    busy_s = load.busy_s(now) + load.behind_s(work_s, query.request.chain)
    price = load.price + crowd * work_s
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
        room=load.room(work_s, uncached + query.kv_output, query.request.chain),
        home=load.replica.name == (query.home or query.hint),
        sliced_s=load.rest_s,
    )


def candidates(
    query: Query,
    routable: Sequence[loads.Load],
    favoured: loads.Load | None,
    by_bit: dict[int, loads.Load],
    excluded: Set[str],
    rng: random.Random,
) -> Sequence[loads.Load]:
    """Who is looked at: see the module."""
    count = len(routable)
    if count <= ALL_MAX:
        if not excluded:
            return routable
        return [load for load in routable if load.replica.name not in excluded]
    chosen: dict[int, loads.Load] = {}
    for _ in range(SAMPLE):
        load = routable[int(rng.random() * count)]
        chosen[load.bit] = load
    if favoured is not None:
        chosen[favoured.bit] = favoured
    owners = 0
    for bits, _, _ in query.levels:
        owners += _add_owners(chosen, bits, by_bit, OWNERS_MAX - owners, rng)
        if owners >= OWNERS_MAX:
            break
    if excluded:
        # With most of the sample tried already, look at everybody rather than at nobody.
        left = [load for load in chosen.values() if load.replica.name not in excluded]
        return left or [load for load in routable if load.replica.name not in excluded]
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
