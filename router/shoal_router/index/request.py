"""From a parsed body to a `model.Request`: the one place where JSON turns into what the policy knows. For dispatch."""

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shoal_router import model
from shoal_router.index import caller, chain, prompt, session


class Api(enum.Enum):
    """Client APIs whose prompts are understood."""

    CHAT = "/v1/chat/completions"
    COMPLETION = "/v1/completions"
    GENERATE = "/generate"


_PROMPTS: dict[Api, Callable[[Mapping[str, Any]], model.Prompt]] = {
    Api.CHAT: prompt.chat,
    Api.COMPLETION: prompt.completion,
    Api.GENERATE: prompt.generate,
}


def read(
    api: Api,
    body: Mapping[str, Any],
    headers: Mapping[str, str],
    session_headers: Iterable[str],
    body_bytes: int,
) -> model.Request:
    """Facts of a request. `headers` have lower-case names; `session_headers` is the order of router.sessions.

    Prompts are hashed here, once; nothing refers to `body` or the canonical bytes afterwards.
    """
    canonical = _PROMPTS[api](body)
    return model.Request(
        prompt=canonical.without_data(),
        chain=chain.chain(canonical.data, canonical.salt),
        session=session.find(headers, body, session_headers, canonical),
        parent=session.parent(headers),
        body_bytes=body_bytes,
        stream=body.get("stream") is True,
        output_max=_output_max(api, body),
        tenant=caller.tenant(headers),
        timeout_s=caller.timeout_s(headers),
    )


def _output_max(api: Api, body: Mapping[str, Any]) -> int | None:
    source: object = body
    names: tuple[str, ...] = ("max_completion_tokens", "max_tokens")
    if api is Api.GENERATE:
        source, names = body.get("sampling_params"), ("max_new_tokens",)
    if not isinstance(source, dict):
        return None
    for name in names:
        value = source.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None
