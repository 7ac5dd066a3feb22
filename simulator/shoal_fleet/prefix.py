"""Hashes of a job's prefixes, from its block ids instead of its text: equal exactly where the text would be equal.

Engines see one chained hash per full page (as `shoal_sim.prompt` makes them from bytes), the router one per boundary
of `shoal_router.index.chain`. A run over a trace of gigabytes of text then hashes megabytes. Pages and chunks that
end inside a block stand for the block's first part.
"""

import xxhash

from shoal_fleet.workload import Job
from shoal_router.index import chain as chains

TOKEN_BYTES = 4
_ID_BYTES = 8


def page_hashes(job: Job, page_tokens: int) -> list[int]:
    """One hash per full page of the prompt."""
    ends = range(page_tokens, job.input_tokens + 1, page_tokens)
    return _chained(job, ends)


def router_chain(job: Job) -> tuple[int, ...]:
    """What `chain.chain` would make of the prompt's text."""
    depth = chains.depth(job.input_tokens * TOKEN_BYTES)
    return tuple(_chained(job, [end // TOKEN_BYTES for end in chains.BOUNDARIES[:depth]]))


def _chained(job: Job, ends: "range | list[int]") -> list[int]:
    digest = xxhash.xxh3_64_intdigest
    view = memoryview(job.blocks).cast("B")
    size = job.block_tokens
    hashes: list[int] = []
    value = job.scope
    start = 0
    for end in ends:
        first, last = start // size, -(-end // size)
        value = digest(view[first * _ID_BYTES : last * _ID_BYTES], value)
        hashes.append(value)
        start = end
    return hashes
