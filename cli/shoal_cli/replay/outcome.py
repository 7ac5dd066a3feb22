"""What became of one replayed request. Values only; made by `client`, counted by `results`."""

from dataclasses import dataclass
from enum import Enum


class Ending(Enum):
    COMPLETED = "completed"
    FAILED = "failed"
    """Refused, cut or wrong, and the client had no right to expect it."""
    ERROR_EVENT = "error_event"
    """The answer had begun and ended with an error event: its replica was lost, and the client was told so."""
    CANCELLED = "cancelled"
    """Ended by the replay itself (its time was up, or Ctrl-C)."""


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None
    """None where the engine does not report it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    ending: Ending
    session: str
    input_tokens: int
    """Of the trace; the engine counts its chat template as well."""
    bound_tokens: int
    """How many of them an infinite cache would have had."""
    output_tokens: int
    error: str = ""
    """Kind of error, a short name without variable parts: it is counted."""
    detail: str = ""
    retries: int = 0
    started_s: float = 0.0
    """Seconds since the replay began, at the first attempt."""
    ttft_s: float | None = None
    """From the first attempt to the first token; waiting after a 429 or 503 is part of it."""
    decode_s: float | None = None
    """From the first token to the last."""
    total_s: float = 0.0
    tokens_seen: int = 0
    """Tokens received when usage was not (a broken stream)."""
    usage: Usage | None = None
    replica: str = ""
    """Who answered, where the router says so."""
