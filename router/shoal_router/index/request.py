"""From a parsed body to a `model.Request`: the one place where JSON turns into what the policy knows. For dispatch."""

import enum
from collections.abc import Iterable
from typing import Any

from shoal_router import model
from shoal_router.index import caller, chain, prompt, session, sliceable


class Api(enum.Enum):
    """Client APIs whose prompts are understood."""

    CHAT = "/v1/chat/completions"
    COMPLETION = "/v1/completions"
    GENERATE = "/generate"


def read(
    api: Api,
    body: dict[str, Any],
    headers: dict[str, str],
    session_headers: Iterable[str],
    body_bytes: int,
) -> model.Request:
    """Facts of a request. `headers` have lower-case names; `session_headers` is the order of router.sessions.

    Prompts are hashed here, once; nothing refers to `body` or the canonical bytes afterwards.
    """
    if api is Api.CHAT:
        canonical = prompt.chat(body)
    elif api is Api.COMPLETION:
        canonical = prompt.completion(body)
    else:
        canonical = prompt.generate(body)
    hashes = chain.chain(canonical.data, canonical.salt)
    found = session.find(headers, body, session_headers, canonical)
    canonical.drop_data()
    cut = False
    if canonical.data_bytes >= sliceable.BYTES_MIN and not canonical.rest_bytes:
        if api is Api.CHAT:
            cut = sliceable.chat(body)
        elif api is Api.COMPLETION:
            cut = sliceable.completion(body)
        else:
            cut = sliceable.generate(body)
    return model.Request(
        canonical,
        hashes,
        found,
        session.parent(headers),
        body_bytes,
        body.get("stream") is True,
        _output_max(api, body),
        caller.tenant(headers),
        caller.timeout_s(headers),
        cut,
    )


def _output_max(api: Api, body: dict[str, Any]) -> int | None:
    if api is Api.GENERATE:
        params = body.get("sampling_params")
        return _count(params.get("max_new_tokens")) if isinstance(params, dict) else None
    found = _count(body.get("max_completion_tokens"))
    return _count(body.get("max_tokens")) if found is None else found


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
