"""Which replica each session was last on, and how far its prompt went: a bounded table in strict LRU order.

Soft affinity reads it: the home replica is credited with what the mirror cannot see (the end of the last prompt after
its last chunk, and the part of the reply that comes back in the next prompt), and with nothing else.
"""

import collections


class Last:
    """The last turn of a session that got its first token."""

    __slots__ = ("at", "depth", "prompt_tokens", "replica", "reply_tokens", "tip", "uid")

    def __init__(
        self, replica: str, uid: str, depth: int, tip: int, prompt_tokens: int, reply_tokens: int, at: float
    ) -> None:
        self.replica = replica
        self.uid = uid
        self.depth = depth
        """Hashes of its prompt's chain."""
        self.tip = tip
        """The last of them: only a prompt that goes on from it is credited."""
        self.prompt_tokens = prompt_tokens
        self.reply_tokens = reply_tokens
        self.at = at


class Sessions:
    """(tenant, session key) -> Last, for one service. A look-up does not count as use; a turn does."""

    __slots__ = ("_active", "_counts", "_entries_max", "_last")

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._last: collections.OrderedDict[tuple[str, int], Last] = collections.OrderedDict()
        self._active: collections.OrderedDict[tuple[str, int], Last] = collections.OrderedDict()
        """The newest of `_last`: those that `active` counts."""
        self._counts: dict[str, int] = {}
        """`_active` by replica."""

    def __len__(self) -> int:
        return len(self._last)

    def get(self, tenant: str, key: int) -> Last | None:
        return self._last.get((tenant, key))

    def put(self, tenant: str, key: int, last: Last) -> None:
        place = (tenant, key)
        self._last[place] = last
        self._last.move_to_end(place)
        active = self._active
        before = active.get(place)
        active[place] = last
        if before is not None:
            active.move_to_end(place)
            if before.replica == last.replica:
                return
            self._uncount(before)
        self._counts[last.replica] = self._counts.get(last.replica, 0) + 1
        if len(self._last) > self._entries_max:
            oldest, _ = self._last.popitem(last=False)
            evicted = self._active.pop(oldest, None)
            if evicted is not None:
                self._uncount(evicted)

    def active(self, since: float) -> dict[str, int]:
        """Sessions with a turn after `since`, counted by the replica of their last turn. `since` never goes back.

        Turns are counted as they come, since a walk over the table would stop the event loop at every look."""
        active = self._active
        while active and (oldest := next(iter(active.values()))).at < since:
            active.popitem(last=False)
            self._uncount(oldest)
        return self._counts

    def _uncount(self, last: Last) -> None:
        left = self._counts[last.replica] - 1
        if left:
            self._counts[last.replica] = left
        else:
            del self._counts[last.replica]
