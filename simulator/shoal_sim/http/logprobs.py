"""Log probabilities of made-up tokens: the shapes are the engine's, the numbers are those of a uniform choice."""

import math
from typing import Any, Final

VOCABULARY: Final = 2000
LOGPROB: Final = -math.log(VOCABULARY)
_OTHERS: Final = (" bab", " beb", " bib", " bob", " bub")


def chat(tokens: list[str], top: int) -> dict[str, Any]:
    return {"content": [_entry(token) | {"top_logprobs": [_entry(t) for t in _top(token, top)]} for token in tokens]}


def completion(tokens: list[str], top: int) -> dict[str, Any]:
    return {
        "text_offset": [-1] * len(tokens),
        "token_logprobs": [LOGPROB] * len(tokens),
        "tokens": tokens,
        "top_logprobs": [dict.fromkeys(_top(token, top), LOGPROB) for token in tokens],
    }


def generate(ids: list[int]) -> list[list[Any]]:
    """Triples of /generate: log probability, id, text (never asked for here)."""
    return [[LOGPROB, token, None] for token in ids]


def _entry(token: str) -> dict[str, Any]:
    return {"token": token, "bytes": list(token.encode()), "logprob": LOGPROB}


def _top(token: str, count: int) -> list[str]:
    return [token, *(other for other in _OTHERS if other != token)][:count]
