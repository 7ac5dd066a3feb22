"""A streamed chat as an OpenAI client sees it, for the end-to-end tests with simulated and with real engines."""

import json
from typing import Any

import httpx


def stream(
    url: str, request: dict[str, Any], headers: dict[str, str] | None = None, client: httpx.Client | None = None
) -> tuple[dict[str, str], list[Any]]:
    """Response headers and events of a streamed chat, usage asked for; `[DONE]` stays a string."""
    asked = {**request, "stream": True, "stream_options": {"include_usage": True}}
    ask = httpx.stream if client is None else client.stream
    with ask("POST", f"{url}/v1/chat/completions", json=asked, headers=headers, timeout=120) as answer:
        assert answer.status_code == 200, answer.read()
        data = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
        return dict(answer.headers), [one if one == "[DONE]" else json.loads(one) for one in data]
