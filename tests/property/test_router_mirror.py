"""The mirror of a replica's cache, and the index over all mirrors, against models that know no trees.

Chunks near the start are 256 bytes; with 1/256 tokens a byte each of the first eight weighs one token.
"""

import itertools

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shoal_router.index import mirror, owners

RATIO = 1 / 256
Path = tuple[int, ...]

_WORDS = st.lists(st.integers(0, 2), min_size=1, max_size=6)


def _chain(words: list[int]) -> Path:
    """Hashes of a prompt whose chunks are `words`: numbers that depend on all words so far."""
    hashes: list[int] = []
    value = 1
    for word in words:
        value = value * 4 + word
        hashes.append(value)
    return tuple(hashes)


class NaiveCache:
    """Every prefix has the time of the last prompt through it; the oldest prefix without a longer one goes first."""

    def __init__(self) -> None:
        self.used_at: dict[int, float] = {}
        self.locks: dict[int, int] = {}

    def match(self, chain: Path) -> int:
        return sum(1 for _ in itertools.takewhile(self.used_at.__contains__, chain))

    def leaf(self, value: int) -> bool:
        return not any(value * 4 + word in self.used_at for word in range(4))

    def insert(self, chain: Path, now: float, capacity: int) -> None:
        for value in chain:
            self.used_at[value] = now
            self.locks[value] = self.locks.get(value, 0) + 1
        self.evict(len(self.used_at) - capacity)

    def evict(self, count: int) -> None:
        for _ in range(count):
            free = [value for value in self.used_at if self.leaf(value) and not self.locks[value]]
            if not free:
                return
            self.forget(min(free, key=self.used_at.__getitem__))

    def forget(self, value: int) -> None:
        del self.used_at[value], self.locks[value]

    def unlock(self, chain: Path) -> None:
        for value in chain:
            self.locks[value] -= 1

    def retract(self, chain: Path, depth: int, stamp: float) -> None:
        for value in reversed(chain[depth:]):
            if not self.leaf(value) or self.locks[value] or self.used_at[value] != stamp:
                return
            self.forget(value)


class MirrorMachine(RuleBasedStateMachine):
    """Two replicas' mirrors over one index; every step is done on the naive caches too."""

    @initialize(capacity=st.integers(3, 20))
    def start(self, capacity: int) -> None:
        self.capacity = capacity
        self.owners = owners.Owners()
        self.mirrors = [mirror.Mirror(self.owners, 1), mirror.Mirror(self.owners, 2)]
        for one in self.mirrors:
            one.set_kv_max(capacity)
        self.naive = [NaiveCache(), NaiveCache()]
        self.now = 0.0
        self.running: list[tuple[int, Path, mirror.Node, int, float]] = []

    @rule(which=st.integers(0, 1), words=_WORDS)
    def send(self, which: int, words: list[int]) -> None:
        self.now += 1.0
        chain = _chain(words)
        held = self.mirrors[which]
        depth = held.match(chain)
        node = held.insert(chain, depth, RATIO, 0.0, self.now)
        self.naive[which].insert(chain, self.now, self.capacity)
        self.running.append((which, chain, node, depth, self.now))

    @precondition(lambda self: self.running)
    @rule(place=st.integers(0, 100), failed=st.booleans())
    def end(self, place: int, failed: bool) -> None:
        which, chain, node, depth, stamp = self.running.pop(place % len(self.running))
        self.mirrors[which].unlock(node)
        self.naive[which].unlock(chain)
        if failed:
            self.mirrors[which].retract(node, depth, stamp)
            self.naive[which].retract(chain, depth, stamp)

    @rule(which=st.integers(0, 1), count=st.integers(1, 3))
    def forget_oldest(self, which: int, count: int) -> None:
        self.mirrors[which].evict_entries(count)
        self.naive[which].evict(count)

    @rule(which=st.integers(0, 1))
    def restart(self, which: int) -> None:
        self.mirrors[which].clear()
        self.naive[which] = NaiveCache()
        self.running = [entry for entry in self.running if entry[0] != which]

    @rule(words=_WORDS)
    def look_up(self, words: list[int]) -> None:
        chain = _chain(words)
        found = self.owners.lookup(chain, 3)
        lengths = {bit: depth for bits, depth in found for bit in (1, 2) if bits & bit}
        want = {1: self.naive[0].match(chain), 2: self.naive[1].match(chain)}
        assert lengths == {bit: depth for bit, depth in want.items() if depth}
        assert [self.mirrors[0].match(chain), self.mirrors[1].match(chain)] == [want[1], want[2]]

    @invariant()
    def same_prefixes(self) -> None:
        if not hasattr(self, "mirrors"):
            return
        for held, naive in zip(self.mirrors, self.naive, strict=True):
            assert set(held._nodes) == set(naive.used_at)
            assert held.used == len(naive.used_at)
            assert held.locked == sum(1 for locks in naive.locks.values() if locks)
        assert self.owners.entries == sum(len(naive.used_at) for naive in self.naive)
        assert len(self.owners) == len(set(self.naive[0].used_at) | set(self.naive[1].used_at))


TestMirror = MirrorMachine.TestCase
TestMirror.settings = hypothesis.settings(max_examples=40, stateful_step_count=40, deadline=None)
