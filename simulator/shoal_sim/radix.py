"""Page-granular prefix cache with LRU eviction under a KV budget, as the engine's radix cache accounts for it.

A page is a node, keyed by its chained hash: the hash names the page together with everything before it, so the tree
needs no edges downwards, only a parent and a count of children. Pages are in one of three states, and their sum never
exceeds the capacity:

* private: held by a running request, not yet in the tree (`take`, `give_back`),
* locked: in the tree and used by at least one request (`lock`, `unlock`),
* evictable: in the tree, used by none; the least recently used leaf goes first.

Only the scheduler calls this, from one thread.
"""

import heapq
from collections.abc import Sequence


class _Page:
    __slots__ = ("children", "key", "last_use", "locks", "parent", "queued")

    def __init__(self, key: int, parent: "_Page | None", last_use: int) -> None:
        self.key = key
        self.parent = parent
        self.children = 0
        self.locks = 0
        self.last_use = last_use
        self.queued = False


class RadixCache:
    """Counts pages; contents are only hashes."""

    def __init__(self, capacity_pages: int) -> None:
        self.capacity_pages = capacity_pages
        self.private_pages = 0
        self.locked_pages = 0
        self.evicted_pages_total = 0
        self._pages: dict[int, _Page] = {}
        # (last use when pushed, page key), at most one entry a page. A stale entry is dropped or renewed when popped,
        # so that using a page costs nothing here.
        self._leaves: list[tuple[int, int]] = []
        self._tick = 0

    @property
    def tree_pages(self) -> int:
        return len(self._pages)

    @property
    def evictable_pages(self) -> int:
        return len(self._pages) - self.locked_pages

    @property
    def free_pages(self) -> int:
        return self.capacity_pages - len(self._pages) - self.private_pages

    def match(self, hashes: Sequence[int]) -> int:
        """How many leading pages are cached; marks them as used now."""
        self._tick += 1
        pages, tick = self._pages, self._tick
        count = 0
        for key in hashes:
            page = pages.get(key)
            if page is None:
                break
            page.last_use = tick
            count += 1
        return count

    def peek(self, hashes: Sequence[int]) -> int:
        """As `match`, without marking."""
        pages = self._pages
        count = 0
        for key in hashes:
            if key not in pages:
                break
            count += 1
        return count

    def lock(self, hashes: Sequence[int]) -> None:
        """Protects pages that are in the tree, for one user."""
        for key in hashes:
            page = self._pages[key]
            if page.locks == 0:
                self.locked_pages += 1
            page.locks += 1

    def unlock(self, hashes: Sequence[int]) -> None:
        for key in hashes:
            page = self._pages[key]
            page.locks -= 1
            if page.locks == 0:
                self.locked_pages -= 1
                if page.children == 0:
                    self._queue(page)

    def take(self, count: int) -> bool:
        """Gives a request `count` private pages, evicting as needed; False when even that is not enough."""
        missing = count - self.free_pages
        if missing > 0:
            if missing > self.evictable_pages:
                return False
            self._evict(missing)
        self.private_pages += count
        return True

    def give_back(self, count: int) -> None:
        self.private_pages -= count

    def insert(self, hashes: Sequence[int], private: int) -> int:
        """Moves a request's private pages, the last `private` of `hashes`, into the tree.

        Pages that another request has inserted meanwhile are duplicates and become free.
        Returns how many were new. The pages before them must be in the tree, locked by the caller.
        """
        first = len(hashes) - private
        self._tick += 1
        new = 0
        parent = self._pages[hashes[first - 1]] if first > 0 else None
        for key in hashes[first:]:
            page = self._pages.get(key)
            if page is None:
                page = _Page(key, parent, self._tick)
                self._pages[key] = page
                if parent is not None:
                    parent.children += 1
                new += 1
            else:
                page.last_use = self._tick
            parent = page
        if parent is not None and parent.children == 0 and parent.locks == 0:
            self._queue(parent)
        self.private_pages -= private
        return new

    def flush(self) -> None:
        """Drops everything; the caller makes sure that no request holds pages."""
        self._pages.clear()
        self._leaves.clear()
        self.locked_pages = 0

    def _queue(self, page: _Page) -> None:
        if not page.queued:
            page.queued = True
            heapq.heappush(self._leaves, (page.last_use, page.key))

    def _evict(self, count: int) -> None:
        while count > 0:
            last_use, key = heapq.heappop(self._leaves)
            page = self._pages[key]
            page.queued = False
            if page.locks > 0 or page.children > 0:
                continue
            if page.last_use != last_use:
                self._queue(page)
                continue
            del self._pages[key]
            self.evicted_pages_total += 1
            count -= 1
            parent = page.parent
            if parent is not None:
                parent.children -= 1
                if parent.children == 0 and parent.locks == 0:
                    self._queue(parent)
