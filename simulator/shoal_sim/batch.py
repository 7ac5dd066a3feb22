"""What one step computes, and the counts of all steps."""

from dataclasses import dataclass

from shoal_sim.request import Request


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a prompt that one step computes: `tokens` after `prefix` already there."""

    request: Request
    tokens: int
    prefix: int


@dataclass(frozen=True, slots=True)
class Batch:
    """One step. Mixed when both are filled."""

    prefill: list[Piece]
    decode: list[Request]

    @property
    def decode_kv_tokens(self) -> int:
        return sum(request.sequence_tokens for request in self.decode)


@dataclass(slots=True)
class Counters:
    """Everything that only grows."""

    submitted: int = 0
    finished: int = 0
    aborted: int = 0
    rejected: int = 0
    retracted: int = 0
    retracted_input_tokens: int = 0
    retracted_output_tokens: int = 0
    prefill_tokens: int = 0
    cached_tokens: int = 0
    decode_tokens: int = 0
    generated: int = 0
    prefill_steps: int = 0
    decode_steps: int = 0
    spec_verifies: int = 0
    spec_accepted: int = 0
