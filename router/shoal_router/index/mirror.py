"""The mirror of one replica's prefix cache: what was sent there, least recently used first out, as the engine does it.

A radix tree whose nodes are runs of chain hashes, with SGLang's own rules (its `radix_cache.py`): nodes of running
requests are locked, only unlocked leaves are evicted, oldest first, from their ends. So a leaf's age decides and a
parent inherits the age of the last child it loses. It is bounded by the engine's KV tokens and, through `shrink`, by
what the engine has shown to hold; enforced on insert, without timers. Written by policy.pool, one instance a replica.

Weights are tokens. A request's tail after its last chunk and its reply are cached too but have no hash: they are
`extra` on its leaf, until a longer prompt covers them with hashes.
"""

import heapq
import math
from collections.abc import Iterator, Sequence

from shoal_router.index import chain as chains
from shoal_router.index import owners

_SHRINK = 0.9
_GROW = 1.02
_CAPACITY_SHARE_MIN = 0.05
_CAPACITY_TOKENS_MIN = 4096.0


class Node:
    """A run of chunks: hashes `start` to `start + len(hashes)` of every prompt below it."""

    __slots__ = ("children", "extra", "hashes", "locks", "parent", "ratio", "seq", "start", "used_at")

    def __init__(self, parent: "Node | None", start: int, hashes: list[int], ratio: float, used_at: float) -> None:
        self.parent = parent
        self.start = start
        self.hashes = hashes
        self.ratio = ratio
        self.used_at = used_at
        self.extra = 0.0
        self.children = 0
        self.locks = 0
        self.seq = 0

    @property
    def end(self) -> int:
        return self.start + len(self.hashes)

    @property
    def tokens(self) -> float:
        return (chains.length_bytes(self.end) - chains.length_bytes(self.start)) * self.ratio

    def tokens_from(self, offset: int) -> float:
        """Tokens of its hashes from the given one on."""
        return (chains.length_bytes(self.end) - chains.length_bytes(self.start + offset)) * self.ratio


class Mirror:
    """See the module. `used`: tokens held; `locked`: those of running requests, shared prefixes counted once."""

    __slots__ = ("_bit", "_capacity", "_heap", "_kv_max", "_nodes", "_owners", "_root", "_seq", "locked", "used")

    def __init__(self, shared: owners.Owners, bit: int) -> None:
        self._owners = shared
        self._bit = bit
        self._nodes: dict[int, Node] = {}
        self._root = Node(None, 0, [], 0.0, 0.0)
        self._heap: list[tuple[float, int, Node]] = []
        self._seq = 0
        self._kv_max: int | None = None
        self._capacity = math.inf
        self.used = 0.0
        self.locked = 0.0

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, value: int) -> bool:
        return value in self._nodes

    @property
    def capacity(self) -> float:
        """Tokens that it believes the engine to hold; infinite where the engine has not said."""
        return self._capacity

    def set_kv_max(self, tokens: int | None) -> None:
        """The engine's real KV capacity, from its `/server_info`."""
        if tokens != self._kv_max:
            self._kv_max = tokens
            self._capacity = math.inf if tokens is None else float(tokens)
            self._evict(self._capacity)

    def match(self, chain: Sequence[int]) -> int:
        """How many hashes of `chain` it holds."""
        low, high = 0, len(chain)
        nodes = self._nodes
        while low < high:
            middle = (low + high + 1) >> 1
            if chain[middle - 1] in nodes:
                low = middle
            else:
                high = middle - 1
        return low

    def idle(self, chain: Sequence[int], matched: int) -> bool:
        """Whether it holds the first `matched` hashes for no running request."""
        return bool(matched) and not self._nodes[chain[matched - 1]].locks

    @staticmethod
    def length(chain: Sequence[int]) -> int:
        """Bytes of a prompt that its hashes cover."""
        return chains.length_bytes(len(chain))

    def insert(self, chain: Sequence[int], matched: int, ratio: float, tail_tokens: float, now: float) -> Node:
        """A prompt is sent there: hold all of it, as used now. Returns its leaf, locked until `unlock`.

        matched: what `match` says; ratio: tokens per byte; tail_tokens: those after the last chunk. Prompts shorter
        than a chunk are not held: their leaf is the root.
        """
        node = self._root
        if matched:
            node = self._nodes[chain[matched - 1]]
            if matched < node.end:
                node = self._split(node, matched - node.start)
        if matched < len(chain):
            node = self._extend(node, list(chain[matched:]), ratio, now)
        if node is not self._root:
            if tail_tokens > node.extra:
                self.used += tail_tokens - node.extra
                node.extra = tail_tokens
            node.used_at = now
            if not node.children:
                self._file(node)
        self._lock(node)
        self._evict(self._capacity)
        return node

    def unlock(self, node: Node) -> None:
        """The request that locked `node` has ended."""
        step: Node | None = node
        while step is not None and step is not self._root:
            step.locks -= 1
            if not step.locks:
                self.locked -= step.tokens
                if not step.children:
                    self._file(step)
            step = step.parent
        if not self._nodes:
            self.locked = 0.0  # float dust must not pile up over days

    def add_reply(self, node: Node, tokens: int) -> None:
        """The engine keeps a finished request's reply behind its prompt."""
        if node is not self._root and not node.children:
            node.extra += tokens
            self.used += tokens
            self._evict(self._capacity)

    def retract(self, node: Node, depth: int, stamp: float) -> None:
        """A request that never got a first token: drop what only it would have brought, all after `depth` hashes."""
        if node is self._root or node.children or node.locks or node.used_at != stamp:
            return
        self._drop_extra(node)
        while node.hashes and node.end > depth:
            self._pop(node)
        if not node.hashes:
            self._detach(node)

    def shrink(self) -> None:
        """The engine held less than predicted: believe in a tenth less, and forget the oldest tenth now."""
        floor = _CAPACITY_SHARE_MIN * (self._kv_max or 0)
        self._capacity = max(floor, _CAPACITY_TOKENS_MIN, _SHRINK * min(self._capacity, self.used))
        self._evict(self._capacity)

    def grow(self) -> None:
        """The engine held what was predicted: believe in a little more, up to what it says it has."""
        self._capacity = min(self._capacity * _GROW, math.inf if self._kv_max is None else float(self._kv_max))

    def evict_entries(self, count: int) -> None:
        """Forget the `count` oldest hashes: the bound in bytes of memory."""
        target = len(self._nodes) - count
        while len(self._nodes) > target:
            node = self._oldest()
            if node is None:
                return
            self._drop_extra(node)
            while node.hashes and len(self._nodes) > target:
                self._pop(node)
            self._settle(node)

    def clear(self) -> None:
        """The engine restarted: it holds nothing. Nodes handed out before must not be given back."""
        for value in self._nodes:
            self._owners.discard(value, self._bit)
        self._nodes = {}
        self._root = Node(None, 0, [], 0.0, 0.0)
        self._heap = []
        self.used = 0.0
        self.locked = 0.0

    def hot(self, since: float, nodes_max: int) -> Iterator[Node]:
        """Nodes on the path of a leaf used after `since`, each once; only the newest `nodes_max` leaves count."""
        leaves = [node for at, seq, node in self._heap if at >= since and node.seq == seq and node.hashes]
        leaves.sort(key=lambda node: -node.used_at)
        seen: set[int] = set()
        for leaf in leaves[:nodes_max]:
            step: Node | None = leaf
            while step is not None and step is not self._root and id(step) not in seen:
                seen.add(id(step))
                yield step
                step = step.parent

    def _extend(self, node: Node, hashes: list[int], ratio: float, now: float) -> Node:
        """Append to a leaf that no running request ends at, else hang a child on it."""
        self._drop_extra(node)
        if node is self._root or node.children or node.locks:
            child = Node(node, node.end, [], ratio, now)
            node.children += 1
            node = child
        before = node.tokens
        node.hashes += hashes
        self.used += node.tokens - before
        nodes = self._nodes
        for value in hashes:
            nodes[value] = node
        self._owners.add(hashes, self._bit)
        return node

    def _split(self, node: Node, offset: int) -> Node:
        """Cut a node in two and return the upper; the lower keeps its identity, since running requests refer to it."""
        head = Node(node.parent, node.start, node.hashes[:offset], node.ratio, node.used_at)
        head.children = 1
        head.locks = node.locks
        node.hashes = node.hashes[offset:]
        node.start += offset
        node.parent = head
        for value in head.hashes:
            self._nodes[value] = head
        return head

    def _lock(self, node: Node) -> None:
        step: Node | None = node
        while step is not None and step is not self._root:
            if not step.locks:
                self.locked += step.tokens
            step.locks += 1
            step = step.parent

    def _file(self, node: Node) -> None:
        """Enter a leaf into the heap under its present age; older entries of it become stale."""
        self._seq += 1
        node.seq = self._seq
        heapq.heappush(self._heap, (node.used_at, self._seq, node))
        if len(self._heap) > 64 + 2 * len(self._nodes):
            self._heap = [entry for entry in self._heap if entry[2].seq == entry[1] and entry[2].hashes]
            heapq.heapify(self._heap)

    def _oldest(self) -> Node | None:
        """Take the evictable leaf that was used longest ago out of the heap."""
        while self._heap:
            _, seq, node = heapq.heappop(self._heap)
            if node.seq == seq and node.hashes and not node.children and not node.locks:
                return node
        return None

    def _evict(self, tokens: float) -> None:
        while self.used > tokens:
            node = self._oldest()
            if node is None:
                return  # all that is left is running: the engine cannot evict it either
            self._drop_extra(node)
            while node.hashes and self.used > tokens:
                self._pop(node)
            self._settle(node)

    def _settle(self, node: Node) -> None:
        if node.hashes:
            self._file(node)
        else:
            self._detach(node)

    def _detach(self, node: Node) -> None:
        parent = node.parent
        node.seq = 0
        if parent is None or parent is self._root:
            return
        parent.children -= 1
        parent.used_at = max(parent.used_at, node.used_at)
        if not parent.children and not parent.locks:
            self._file(parent)

    def _pop(self, node: Node) -> None:
        before = node.tokens
        value = node.hashes.pop()
        del self._nodes[value]
        self._owners.discard(value, self._bit)
        self.used -= before - node.tokens
        if not self._nodes:
            self.used = 0.0

    def _drop_extra(self, node: Node) -> None:
        self.used -= node.extra
        node.extra = 0.0
