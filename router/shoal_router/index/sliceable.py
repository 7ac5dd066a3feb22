"""Can prefixes of a request's prompt be sent alone, so that the request itself finds them in the cache?

Not where the engine must compute the whole prompt anyway (log probabilities of the prompt), where one request is
several, where a part of the prompt is no text (what a cut would do to media, the engine alone knows), or where prefill
and decode are on different engines. Asked of long prompts only. Pure; called by index.request.
"""

from typing import Any, Final

BYTES_MIN: Final = 16 << 10
"""Shorter prompts are never sliced: about two of the shortest slices of dense text."""


def chat(body: dict[str, Any]) -> bool:
    """A checked `/v1/chat/completions` body."""
    if not _plain(body) or body.get("input_embeds") is not None:
        return False
    for message in body["messages"]:
        content = message.get("content")
        if isinstance(content, list):
            for part in content:
                if part.get("type") != "text":
                    return False
    return True


def completion(body: dict[str, Any]) -> bool:
    """A checked `/v1/completions` body."""
    return _plain(body) and not body.get("echo") and _one(body.get("prompt"))


def generate(body: dict[str, Any]) -> bool:
    """A checked `/generate` body."""
    params = body.get("sampling_params")
    if params is not None and (not isinstance(params, dict) or (params.get("n") or 1) != 1):
        return False
    if body.get("input_embeds") is not None or body.get("return_logprob") or body.get("return_hidden_states"):
        return False
    if body.get("image_data") or body.get("audio_data") or body.get("video_data") or body.get("session_params"):
        return False
    ids = body.get("input_ids")
    return _whole(body) and _one(body.get("text") if ids is None else ids)


def _plain(body: dict[str, Any]) -> bool:
    return (body.get("n") or 1) == 1 and (body.get("best_of") or 1) == 1 and _whole(body)


def _whole(body: dict[str, Any]) -> bool:
    """One engine does it all."""
    return body.get("bootstrap_room") is None and body.get("bootstrap_host") is None


def _one(prompt: object) -> bool:
    """A single text, or one list of token ids."""
    return isinstance(prompt, str) or (isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], int))
