"""Speculative decoding: how many tokens a verify step accepts.

Each drafted token is accepted with the same probability until the first refusal; the step then gives one more token
of the target. The draw is a hash of (request, step), so a run is repeatable. SGLANG_SIMULATE_ACC_LEN, the engine's own
test knob, fixes the mean length instead. The tokens themselves do not depend on speculation.
"""

import math
from dataclasses import dataclass
from typing import Final

import xxhash

ACCEPT_PROBABILITY: Final = {"NGRAM": 0.5}
"""Assumed acceptance of one drafted token by algorithm; others have ACCEPT_PROBABILITY_DEFAULT."""
ACCEPT_PROBABILITY_DEFAULT: Final = 0.75

DRAFT_STEPS_DEFAULT: Final = {"NGRAM": 0, "DFLASH": 1}
DRAFT_TOKENS_DEFAULT: Final = {"NGRAM": 12, "DFLASH": 16}


@dataclass(frozen=True, slots=True)
class Speculation:
    algorithm: str
    draft_steps: int
    draft_tokens: int
    accept_probability: float
    accept_length_mean: float | None = None

    def accepted(self, rid: str, step: int) -> int:
        """Tokens that the request's verify step number `step` yields: 1 to draft_tokens."""
        draw = xxhash.xxh3_64_intdigest(f"{rid}/{step}".encode()) / 2**64
        if self.accept_length_mean is not None:
            whole = math.floor(self.accept_length_mean)
            return max(1, min(self.draft_tokens, whole + (draw < self.accept_length_mean - whole)))
        # The inverse of the geometric distribution: the number of acceptances before the first refusal.
        accepted = int(math.log(max(draw, 1e-12)) / math.log(self.accept_probability))
        return min(accepted + 1, self.draft_tokens)


def from_flags(
    algorithm: str | None, steps: int | None, draft_tokens: int | None, accept_length_mean: float | None
) -> Speculation | None:
    if algorithm is None:
        return None
    name = algorithm.upper()
    draft_steps = DRAFT_STEPS_DEFAULT.get(name, 3) if steps is None else steps
    tokens = DRAFT_TOKENS_DEFAULT.get(name, draft_steps + 1) if draft_tokens is None else draft_tokens
    probability = ACCEPT_PROBABILITY.get(name, ACCEPT_PROBABILITY_DEFAULT)
    return Speculation(name, draft_steps, max(1, tokens), probability, accept_length_mean)
