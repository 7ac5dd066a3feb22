"""What is sent, as values: jobs (single requests), arrivals (open loop) and conversations (closed loop).

A prompt is a list of block ids; equal ids in one scope mean equal text. Made from traces by `shoal_cli.simulate` and
by tests; nothing here knows files.
"""

from array import array
from dataclasses import dataclass, replace

import xxhash


@dataclass(frozen=True, slots=True)
class Job:
    """One request."""

    blocks: "array[int]"
    """Ids (type code `Q`) of its blocks, all of them; the last one may be used in part."""
    block_tokens: int
    input_tokens: int
    output_tokens: int
    scope: int = 0
    """Ids are names within it."""
    session: int = 0
    parent: int | None = None
    """Session of the agent that started this one."""
    text: bool = False
    """The engine tokenizes it; else it is sent as ids."""

    def prefix(self, tokens: int, output_tokens: int = 1) -> "Job":
        """Its first tokens, as ids, as a request of their own: what a slice of a long prompt sends."""
        cut = -(-tokens // self.block_tokens)
        return replace(self, blocks=self.blocks[:cut], input_tokens=tokens, output_tokens=output_tokens, text=False)


@dataclass(frozen=True, slots=True)
class Turn:
    job: Job
    think_s: float
    """Seconds between the end of the turn before and the start of this one."""


@dataclass(frozen=True, slots=True)
class SubAgent:
    """Turns that run beside their parent, from `delay_s` after its turn `after` (-1: from the start) has ended."""

    after: int
    joined_by: int | None
    """The parent turn that waits for its end; None where the parent goes on."""
    delay_s: float
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    name: str
    turns: tuple[Turn, ...]
    subagents: tuple[SubAgent, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrival:
    at_s: float
    job: Job


@dataclass(frozen=True, slots=True)
class Workload:
    """Either arrivals or conversations, or both."""

    arrivals: tuple[Arrival, ...] = ()
    conversations: tuple[Conversation, ...] = ()

    @property
    def requests(self) -> int:
        told = sum(len(one.turns) + sum(len(agent.turns) for agent in one.subagents) for one in self.conversations)
        return len(self.arrivals) + told


def key_of(name: str) -> int:
    """A scope or session key for a name."""
    return xxhash.xxh3_64_intdigest(name.encode())
