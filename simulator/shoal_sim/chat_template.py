"""Canonical rendering of a chat: ChatML, as the model of the golden captures has it, with tools before the messages.

The router and the trace replay may render the same way; equal prefixes of a conversation are equal prefixes of bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

_GENERATION_PROMPT = "<|im_start|>assistant\n"


def render(body: Mapping[str, Any]) -> bytes:
    """Bytes of the prompt of a chat completion request body."""
    parts: list[str] = []
    tools = body.get("tools")
    if tools:
        parts.append(f"<|im_start|>system\n# Tools\n{_json(tools)}<|im_end|>\n")
    messages: Sequence[Mapping[str, Any]] = body["messages"]
    parts += [f"<|im_start|>{message['role']}\n{_content(message)}<|im_end|>\n" for message in messages]
    if body.get("continue_final_message") and messages and messages[-1]["role"] == "assistant":
        parts[-1] = parts[-1].removesuffix("<|im_end|>\n")
    else:
        parts.append(_GENERATION_PROMPT)
    # A lone surrogate is valid in JSON and has no UTF-8 form; the engine must not fail on it.
    return "".join(parts).encode("utf-8", "surrogatepass")


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    text = content if isinstance(content, str) else "".join(_part(part) for part in content or ())
    calls = message.get("tool_calls")
    return f"{text}{_json(calls)}" if calls else text


def _part(part: Mapping[str, Any]) -> str:
    if part.get("type") == "text":
        return str(part.get("text", ""))
    # Media are not simulated: their description stands for them, so that other media make another prompt.
    return _json(part)


def _json(value: object) -> str:
    return orjson.dumps(value).decode()
