"""A prompt as the cache sees it: its bytes, and one chained hash per full page.

Hashing is by pages, never by tokens, so that a prompt of 250,000 tokens costs a few milliseconds.
Page i's hash covers page i-1's hash, so equal hashes mean equal prefixes. The namespace (cache_salt, extra_key) starts
the chain: the same text under another salt shares nothing, as in the engine.
"""

import xxhash

from shoal_sim.tokens import TOKEN_BYTES, token_count


class Prompt:
    """Bytes of a prompt (later also of the generated tokens) with incremental page hashes."""

    __slots__ = ("_page_bytes", "data", "page_hashes", "tokens")

    def __init__(self, data: bytes, page_tokens: int, namespace: str = "") -> None:
        self.data = data
        self.tokens = token_count(len(data))
        self._page_bytes = page_tokens * TOKEN_BYTES
        self.page_hashes = extend_hashes([], data, self._page_bytes, namespace)

    def hashes_with(self, generated: str, namespace: str) -> list[int]:
        """Hashes of all full pages of the prompt followed by the generated text."""
        if not generated:
            return self.page_hashes
        done = len(self.page_hashes) * self._page_bytes
        tail = self.data[done:] + generated.encode()
        return extend_hashes(list(self.page_hashes), tail, self._page_bytes, namespace)


def extend_hashes(known: list[int], tail: bytes, page_bytes: int, namespace: str) -> list[int]:
    """Appends to `known` the hash of every full page of `tail`, which starts at a page boundary."""
    digest = xxhash.xxh3_64_intdigest
    previous = known[-1] if known else digest(namespace.encode())
    view = memoryview(tail)
    for start in range(0, len(tail) - page_bytes + 1, page_bytes):
        previous = digest(view[start : start + page_bytes], previous)
        known.append(previous)
    return known
