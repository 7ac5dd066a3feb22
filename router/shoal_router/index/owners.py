"""Which replicas hold which prefix: one dictionary of chain hashes to bit sets over all replicas of a service.

Mirrors write it (a bit a replica and hash), the policy reads it. Each replica's set of hashes is closed under prefixes,
since mirrors evict from the ends of prompts; that is what makes the binary search along a chain right.
"""

from collections.abc import Sequence

LEVELS_MAX = 8
"""A lookup stops after so many different match lengths: what is left matches less than eight groups of replicas do."""

BYTES_PER_ENTRY = 320
"""Memory of one hash in one mirror and here, with its share of the two dictionaries (measured with tracemalloc)."""


class Owners:
    """Chain hash -> bit set of replicas. `entries` counts (hash, replica) pairs, the unit of the memory bound."""

    __slots__ = ("_bits", "entries")

    def __init__(self) -> None:
        self._bits: dict[int, int] = {}
        self.entries = 0

    def __len__(self) -> int:
        return len(self._bits)

    def of(self, value: int) -> int:
        """Bit set of the replicas that hold the prefix with this hash."""
        return self._bits.get(value, 0)

    def add(self, hashes: Sequence[int], bit: int) -> None:
        """`bit` holds these from now on; it must hold none of them before."""
        bits = self._bits
        for value in hashes:
            bits[value] = bits.get(value, 0) | bit
        self.entries += len(hashes)

    def discard(self, value: int, bit: int) -> None:
        """`bit` holds this one no more; it must have held it."""
        rest = self._bits[value] & ~bit
        if rest:
            self._bits[value] = rest
        else:
            del self._bits[value]
        self.entries -= 1

    def lookup(self, chain: Sequence[int], among: int) -> list[tuple[int, int]]:
        """Match lengths of the replicas `among`: (bit set, hashes matched), longest first, those of 0 left out."""
        get = self._bits.get
        levels: list[tuple[int, int]] = []
        high = len(chain)
        while high and among and len(levels) < LEVELS_MAX:
            low = 0
            while low < high:
                middle = (low + high + 1) >> 1
                if get(chain[middle - 1], 0) & among:
                    low = middle
                else:
                    high = middle - 1
            if not low:
                break
            found = get(chain[low - 1], 0) & among
            levels.append((found, low))
            among &= ~found
            high = low - 1
        return levels
