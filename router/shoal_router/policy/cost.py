"""The price of a request on a replica, in seconds: the formula and its constants. Used by policy.choice.

    cost(q, r)  = busy(r) + work(q, r) * price(q, r) + interference(r) + kv_pressure(q, r)
    price(q, r) = 1 + beta*min(Q, 50) + crowd * work(q, r)

busy: prefill bound to r and not done. work: prefill of q's uncached tokens there (policy.timing). Q: requests that wait
in the router for r, being cheapest there. While others wait for r, a second of extra work on it delays all of them, so
a cache hit is worth more: that keeps hot prefixes from being copied everywhere near saturation. Where nobody waits for
r, extra work on it delays nobody: a prefix that is too hot for one replica is copied to an idle one, not queued for.
crowd: long work delays those who have not come yet, too. While w seconds of it are done, as many come as a replica gets
in that time, and those who find no other replica (half of them, say) wait w/2 on average. So a long prompt is not
computed anew elsewhere, and in the way of others, as lightly as a short one.
interference: policy.load. kv_pressure: below.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal_router.policy import load as loads

BETA = 1.0
WAITING_MAX = 50.0
ARRIVING_SHARE = 0.5
"""Of the requests that come while another is computed, so many have to wait for it."""
KV_SOFT_SHARE = 0.8
"""From this share of its KV tokens on a replica gets dearer: retraction and eviction of warm prefixes are near."""
KV_PRESSURE_TOKENS = 64
"""A replica whose KV tokens would be all in use costs so many of its decode steps more."""
_OVERFILL_MAX = 5.0
TIE_S = 1e-4
"""The session's home, or its parent's, wins by so much where all else is equal."""


def price(waiting: int) -> float:
    """Factor on work on a replica that so many requests wait for."""
    return 1.0 + BETA * min(waiting, WAITING_MAX)


def crowd(arrivals_per_s: float) -> float:
    """Factor on the square of work where a replica gets so many requests a second."""
    return 0.5 * ARRIVING_SHARE * arrivals_per_s


def kv_pressure_s(load: "loads.Load", kv_tokens: float, stream_s: float) -> float:
    """64 * step * ((share - 0.8) / 0.2)^2 above 80 % of the KV tokens; and, where no running slot is free, the mean
    time until one is (`stream_s`, the mean life of a request, over the slots)."""
    seconds = 0.0
    kv_max = load.facts.kv_tokens_max
    if kv_max:
        over = (load.kv_tokens + kv_tokens) / kv_max - KV_SOFT_SHARE
        if over > 0.0:
            over = min(over / (1.0 - KV_SOFT_SHARE), _OVERFILL_MAX)
            seconds = KV_PRESSURE_TOKENS * load.step_s * over * over
    if len(load.flight) >= load.running_max:
        seconds += stream_s / max(1, load.running_max)
    return seconds
