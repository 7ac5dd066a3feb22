"""The hit rate that an infinite cache would reach on the requests that were really sent, from the trace alone.

Blocks hit are the longest run from the start that an earlier request of the same scope had. Ids name a prefix, not a
block, in both formats; the run is still walked as a chain, so a trace whose ids repeat elsewhere is not overrated.
Pure; called by the drivers when a request starts.
"""

from collections.abc import Sequence


class InfiniteCache:
    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._links: set[tuple[int, int]] = set()

    def insert(self, blocks: Sequence[int], input_tokens: int) -> int:
        """Remembers a prompt; returns how many of its tokens were known before. A partial last block counts."""
        links = list(zip((-1, *blocks), blocks, strict=False))
        known = next((place for place, link in enumerate(links) if link not in self._links), len(links))
        self._links.update(links[known:])
        return min(known * self._block_tokens, input_tokens)
