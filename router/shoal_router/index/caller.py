"""Who asks and how long they will wait, from a request's headers. Called by index.request.

Nothing is authenticated here: a credential only tells callers apart, so that one of them cannot fill the waiting queue
for all. It is hashed at once and never kept. Timeouts are those that OpenAI's and Anthropic's SDKs announce.
"""

import math
from typing import Final

import xxhash

CREDENTIAL_HEADERS: Final = ("authorization", "x-api-key")
TIMEOUT_HEADER: Final = "x-stainless-read-timeout"
"""Seconds that the client waits for the next byte, so for a first token too."""
HEADERS: Final = (*CREDENTIAL_HEADERS, TIMEOUT_HEADER)


def tenant(headers: dict[str, str]) -> str:
    """A name for the caller; empty for all who send no credential."""
    for name in CREDENTIAL_HEADERS:
        value = headers.get(name)
        if value:
            return xxhash.xxh3_64_hexdigest(value.encode())
    return ""


def timeout_s(headers: dict[str, str]) -> float | None:
    """The client's limit for its first token; None where it names none that makes sense."""
    text = headers.get(TIMEOUT_HEADER)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0.0 else None
