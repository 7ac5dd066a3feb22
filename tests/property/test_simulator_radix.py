"""The simulator's prefix cache against a model that knows nothing of heaps, ticks or parents."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shoal_sim.radix import RadixCache

CAPACITY = 12
Path = tuple[int, ...]


class RadixAgainstModel(RuleBasedStateMachine):
    """Paths stand for prefixes; the key of a page is its whole path, so equal keys mean equal prefixes."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = RadixCache(CAPACITY)
        self.time = 0
        self.model: dict[Path, int] = {}  # page -> last use
        self.users: list[tuple[Path, int]] = []  # (locked path, private pages)

    @staticmethod
    def keys(path: Path) -> list[int]:
        return [hash(path[: i + 1]) for i in range(len(path))]

    def locked(self) -> set[Path]:
        return {path[: i + 1] for path, _ in self.users for i in range(len(path))}

    def free(self) -> int:
        return CAPACITY - len(self.model) - sum(private for _, private in self.users)

    def use(self, path: Path) -> None:
        self.time += 1
        for i in range(len(path)):
            if path[: i + 1] not in self.model:
                break
            self.model[path[: i + 1]] = self.time

    def matched(self, path: Path) -> int:
        count = 0
        while count < len(path) and path[: count + 1] in self.model:
            count += 1
        return count

    def evict(self, count: int) -> None:
        """The least recently used page that is unlocked and has no page below it, `count` times."""
        for _ in range(count):
            leaves = [
                page
                for page in self.model
                if page not in self.locked()
                and not any(len(p) > len(page) and p[: len(page)] == page for p in self.model)
            ]
            oldest = min(self.model[page] for page in leaves)
            ties = {page for page in leaves if self.model[page] == oldest}
            # Two leaves used at the same moment: follow the cache, which may take either.
            gone = next((page for page in ties if self.cache.peek(self.keys(page)) < len(page)), None)
            assert gone is not None, "the cache evicted something else"
            del self.model[gone]

    @rule(path=st.lists(st.integers(0, 2), min_size=1, max_size=5).map(tuple))
    def admit(self, path: Path) -> None:
        """A request: match, lock what is there, take pages for the rest."""
        count = self.cache.match(self.keys(path))
        assert count == self.matched(path)
        self.use(path)
        needed = len(path) - count
        self.cache.lock(self.keys(path[:count]))
        self.users.append((path[:count], 0))
        evictable = len(self.model) - len(self.locked())
        missing = needed - self.free()
        got = self.cache.take(needed)
        assert got == (missing <= evictable)
        if not got:
            self.cache.unlock(self.keys(path[:count]))
            self.users.pop()
            return
        if missing > 0:
            self.evict(missing)
        self.cache.insert(self.keys(path), needed)
        self.time += 1
        for i in range(count, len(path)):
            self.model[path[: i + 1]] = self.time
        self.cache.lock(self.keys(path)[count:])
        self.users[-1] = (path, 0)

    @rule(pages=st.integers(0, 4))
    def hold(self, pages: int) -> None:
        """Pages for generated tokens, never published."""
        evictable = len(self.model) - len(self.locked())
        missing = pages - self.free()
        got = self.cache.take(pages)
        assert got == (missing <= evictable)
        if got:
            if missing > 0:
                self.evict(missing)
            self.users.append(((), pages))

    @precondition(lambda self: self.users)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        path, private = self.users.pop(data.draw(st.integers(0, len(self.users) - 1)))
        self.cache.unlock(self.keys(path))
        self.cache.give_back(private)

    @precondition(lambda self: not self.users)
    @rule()
    def flush(self) -> None:
        self.cache.flush()
        self.model.clear()

    @invariant()
    def same_pages(self) -> None:
        assert self.cache.tree_pages == len(self.model)
        assert self.cache.locked_pages == len(self.locked())
        assert self.cache.free_pages == self.free() >= 0
        for page in self.model:
            assert self.cache.peek(self.keys(page)) == len(page)


RadixAgainstModel.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestRadixAgainstModel = pytest.mark.timeout(120)(RadixAgainstModel.TestCase)
