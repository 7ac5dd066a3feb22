"""The waiting queue of one service: bounds, order and expiry. Knows nothing of replicas; admission.core drives it.

Order: fairness between tenants; then shortest work first with ageing, work / (1 +
0.05*age), so that long prompts wait behind short ones but not for ever. Fairness is start-time fair queueing (Goyal,
Vin and Cheng 1996): each tenant has a virtual time, the work it was served; a waiting request's tag is its tenant's
time plus the work of the same tenant's requests that go before it, and the least tag goes first. With one tenant that
is the aged order itself.

The order is computed at most every 50 ms in a long queue (a short one is always exact); newcomers are put in between.
"""

import bisect
import heapq
import itertools
import operator
from collections.abc import Iterator

from shoal_router.admission import ticket as tickets

AGEING_PER_S = 0.05
_STALE_S = 0.05
_EXACT_MAX = 128

_Key = tuple[float, float, int]


class Queue:
    """Waiting tickets. `bytes`, `work_s`, `uncached_tokens`, `prompt_tokens` are sums over them."""

    __slots__ = (
        "_expiry",
        "_order",
        "_order_at",
        "_seq",
        "_served",
        "_tenants",
        "_waiting",
        "bytes",
        "prompt_tokens",
        "uncached_tokens",
        "work_s",
    )

    def __init__(self) -> None:
        self._waiting: dict[int, tickets.Ticket] = {}
        self._seq = itertools.count(1)
        self._expiry: list[tuple[float, int]] = []
        self._order: list[tuple[_Key, tickets.Ticket]] = []
        self._order_at = float("-inf")
        self._served: dict[str, float] = {}
        """Virtual time of each tenant that waits."""
        self._tenants: dict[str, int] = {}
        """Waiting requests of each."""
        self.bytes = 0
        self.prompt_tokens = 0
        self.uncached_tokens = 0
        self.work_s = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[tickets.Ticket]:
        """In order of arrival."""
        return iter(self._waiting.values())

    @property
    def tenants(self) -> int:
        return len(self._tenants)

    def of_tenant(self, tenant: str) -> int:
        """How many of a tenant's requests wait."""
        return self._tenants.get(tenant, 0)

    def oldest_s(self, now: float) -> float:
        first = next(iter(self._waiting.values()), None)
        return now - first.enqueued_at if first is not None else 0.0

    def add(self, ticket: tickets.Ticket, now: float) -> None:
        """Enqueue; the ticket's work and expiry are set already."""
        tenant = ticket.request.tenant
        if tenant not in self._tenants:
            # Who was away does not come back with credit: it starts level with the least served.
            self._served[tenant] = min(self._served.values(), default=0.0)
            self._tenants[tenant] = 0
        self._tenants[tenant] += 1
        ticket.seq = next(self._seq)
        ticket.enqueued_at = now
        ticket.phase = tickets.Phase.WAITING
        self._waiting[ticket.seq] = ticket
        self.bytes += ticket.request.body_bytes
        self.prompt_tokens += ticket.prompt_tokens
        self.uncached_tokens += ticket.uncached_tokens
        self.work_s += ticket.work_s
        self._push_expiry(ticket)
        if len(self._waiting) > _EXACT_MAX:
            key = (self._served[tenant], ticket.work_s, ticket.seq)
            bisect.insort(self._order, (key, ticket), key=operator.itemgetter(0))
            if len(self._order) > 2 * len(self._waiting):
                # Those who left are weeded out when the order is next computed; with no replica free that may be never.
                self._order = [entry for entry in self._order if entry[1].seq in self._waiting]

    def remove(self, ticket: tickets.Ticket, served: bool) -> None:
        """Take out; `served` charges its work to its tenant."""
        del self._waiting[ticket.seq]
        tenant = ticket.request.tenant
        self.bytes -= ticket.request.body_bytes
        self.prompt_tokens -= ticket.prompt_tokens
        self.uncached_tokens -= ticket.uncached_tokens
        self.work_s = self.work_s - ticket.work_s if self._waiting else 0.0
        self._tenants[tenant] -= 1
        if served:
            self._served[tenant] += ticket.work_s
        if not self._tenants[tenant]:
            del self._tenants[tenant]
            del self._served[tenant]
        if not self._waiting:
            self._expiry.clear()
            self._order.clear()

    def ordered(self, now: float) -> list[tickets.Ticket]:
        """All that waits, who goes first in front."""
        if len(self._waiting) <= _EXACT_MAX or now - self._order_at > _STALE_S:
            self._sort(now)
        return [ticket for _, ticket in self._order if ticket.seq in self._waiting]

    def _sort(self, now: float) -> None:
        by_tenant: dict[str, list[tuple[float, int, tickets.Ticket]]] = {}
        for ticket in self._waiting.values():
            aged_s = ticket.work_s / (1.0 + AGEING_PER_S * max(0.0, now - ticket.enqueued_at))
            entry = (aged_s, ticket.seq, ticket)
            by_tenant.setdefault(ticket.request.tenant, []).append(entry)
        order: list[tuple[_Key, tickets.Ticket]] = []
        for tenant, entries in by_tenant.items():
            entries.sort()
            tag = self._served[tenant]
            for aged_s, seq, ticket in entries:
                order.append(((tag, aged_s, seq), ticket))
                if len(by_tenant) > 1:
                    tag += ticket.work_s
        order.sort(key=operator.itemgetter(0))
        self._order = order
        self._order_at = now

    def expired(self, now: float) -> list[tickets.Ticket]:
        """Those whose time is over, earliest first. They stay in until removed."""
        found = []
        while self._expiry and self._expiry[0][0] <= now:
            _, seq = heapq.heappop(self._expiry)
            ticket = self._waiting.get(seq)
            if ticket is not None and ticket.expires_at <= now:
                found.append(ticket)
        return found

    def next_expiry(self) -> float | None:
        """When the next one expires."""
        while self._expiry and self._expiry[0][1] not in self._waiting:
            heapq.heappop(self._expiry)
        return self._expiry[0][0] if self._expiry else None

    def set_expiry(self, ticket: tickets.Ticket, expires_at: float) -> None:
        """Another limit for one that waits."""
        if ticket.expires_at != expires_at:
            ticket.expires_at = expires_at
            self._push_expiry(ticket)

    def _push_expiry(self, ticket: tickets.Ticket) -> None:
        heapq.heappush(self._expiry, (ticket.expires_at, ticket.seq))
        if len(self._expiry) > 64 + 2 * len(self._waiting):
            self._expiry = [(one.expires_at, one.seq) for one in self._waiting.values()]
            heapq.heapify(self._expiry)
