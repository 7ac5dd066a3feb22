"""Long prompts of every kind that clients send, repeatable from a seed: what slices must not change the answers to.

`conversations` gives chains of requests; a turn may need the answer to the one before, so each is a function of it.
Texts are full of what a cut at a wrong byte or character would show: emoji of several code points, combining marks,
CJK, escapes that look like surrogates.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

PIECES: Final = (
    *("the ", "river ", "def f(x):\n    return x\n", "\n\n", "\t", '{"a": [1, 2]} ', "cached_tokens: 5 "),
    *("\U0001f469\u200d\U0001f469\u200d\U0001f467 ", "\U0001f1e9\U0001f1ea", "\U0001f44d\U0001f3fd", "\U0001d11e"),
    *(
        "e\u0301 ",
        "n\u0303a\u0308o\u0302 ",
        "\u0928\u092e\u0938\u094d\u0924\u0947 ",
        "\ud55c\uae00 ",
        "\u202eabc\u202c ",
    ),
    *(
        "\u6f22\u5b57\u3002",
        "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3001",
        "\\ud83d\\ude00 ",
        "\\u0000 ",
        '\\\\"\'\\" ',
        "\ufeff",
    ),
)
TOOLS: Final = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{number}",
            "description": "Finds \u6771\u4eac in e\u0301lan. " * 4,
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "line": {"type": "integer"}}},
        },
    }
    for number in range(3)
]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: `body` as bytes, and as the object it stands for."""

    path: str
    doc: dict[str, Any]
    body: bytes
    headers: dict[str, str]

    @property
    def stream(self) -> bool:
        return bool(self.doc.get("stream"))


Turn = Callable[[str], Asked]
"""From the text of the answer before."""


def text(rng: random.Random, size_bytes: int) -> str:
    parts: list[str] = []
    size = 0
    while size < size_bytes:
        part = rng.choice(PIECES) if rng.random() < 0.6 else "".join(rng.choices("abcdefghij klmnop", k=9)) + " "
        parts.append(part)
        size += len(part.encode())
    return "".join(parts)


def conversations(
    model: str,
    count: int,
    max_tokens: int,
    seed: int = 1,
    sizes: tuple[int, int] = (22, 60),
    adapters: bool = True,
) -> list[list[Turn]]:
    """Together `count` requests; `sizes` are KiB of the first prompt of each chain. `adapters`: some name one."""
    rng = random.Random(seed)
    chains: list[list[Turn]] = []
    kinds = (_chat, _chat, _chat, _completion, _generate, _completion_ids, _generate_ids)
    left = count
    while left > 0:
        number = len(chains)
        made = kinds[number % len(kinds)](random.Random(f"{seed} {number}"), model, number, max_tokens, sizes)[:left]
        chains.append(made)
        left -= len(made)
    rng.shuffle(chains)
    return chains if adapters else [[_plain(turn, model) for turn in chain] for chain in chains]


def _plain(turn: Turn, model: str) -> Turn:
    """The same of the base model."""

    def made(answer: str) -> Asked:
        asked = turn(answer)
        doc = {name: value for name, value in asked.doc.items() if name != "lora_path"}
        if "model" in doc:
            doc["model"] = model
        return Asked(asked.path, doc, json.dumps(doc, ensure_ascii=False).encode(), asked.headers)

    return made


def _asked(path: str, doc: dict[str, Any], number: int, place: int) -> Asked:
    """Fields that every API has, and how the JSON is written."""
    fields = dict(doc)
    if (number + place) % 2:
        fields["stream"] = True
        if path != "/generate" and number % 3:
            fields["stream_options"] = {"include_usage": True}
    if number % 4 == 1:
        fields["cache_salt"] = f"salt {number}"
    if number % 4 == 2:
        fields["extra_key"] = f"key {number}"
    if number % 8 == 5:
        fields["extra_key"] = "both"
    if number % 3 == 1:
        fields["priority"] = number % 5
    body = json.dumps(fields, ensure_ascii=number % 2 == 0).encode()
    return Asked(path, fields, body, {"x-session-id": f"session-{number}"})


def _model(model: str, number: int) -> str:
    return f"{model}:adapter-{number}" if number % 5 == 3 else model


def _size(rng: random.Random, sizes: tuple[int, int]) -> int:
    return rng.randrange(sizes[0] << 10, sizes[1] << 10)


def _chat(rng: random.Random, model: str, number: int, max_tokens: int, sizes: tuple[int, int]) -> list[Turn]:
    """Three turns, with tools, a tool's answer and content in parts."""
    base: dict[str, Any] = {"model": _model(model, number), "max_tokens": max_tokens, "temperature": 0}
    if number % 2:
        base["tools"] = TOOLS
    messages: list[dict[str, Any]] = [{"role": "system", "content": f"{number} " + text(rng, 3000)}]
    size = _size(rng, sizes)

    def first(_: str) -> Asked:
        content: Any = text(rng, size)
        if number % 3 == 0:
            content = [{"type": "text", "text": content[: size // 9]}, {"type": "text", "text": content[size // 9 :]}]
        messages.append({"role": "user", "content": content})
        return ask(0)

    def second(answer: str) -> Asked:
        call = {"id": "c1", "type": "function", "function": {"name": "tool_1", "arguments": '{"path": "\u00e9"}'}}
        messages.append({"role": "assistant", "content": answer, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": "c1", "content": text(rng, size)})
        return ask(1)

    def third(answer: str) -> Asked:
        messages.append({"role": "assistant", "content": answer})
        messages.append({"role": "user", "content": text(rng, 200)})  # warm: nothing to slice
        return ask(2)

    def ask(place: int) -> Asked:
        return _asked("/v1/chat/completions", {**base, "messages": list(messages)}, number, place)

    return [first, second, third]


def _completion(rng: random.Random, model: str, number: int, max_tokens: int, sizes: tuple[int, int]) -> list[Turn]:
    prompt = f"{number} " + text(rng, _size(rng, sizes))
    base = {"model": _model(model, number), "max_tokens": max_tokens, "temperature": 0}
    longer = text(rng, sizes[0] << 10)
    return [
        lambda _: _asked("/v1/completions", {**base, "prompt": prompt}, number, 0),
        lambda answer: _asked("/v1/completions", {**base, "prompt": prompt + answer + longer}, number, 1),
    ]


def _generate(rng: random.Random, model: str, number: int, max_tokens: int, sizes: tuple[int, int]) -> list[Turn]:
    prompt = f"{number} " + text(rng, _size(rng, sizes))
    base: dict[str, Any] = {"sampling_params": {"max_new_tokens": max_tokens, "temperature": 0}}
    if number % 5 == 4:
        base["lora_path"] = f"adapter-{number}"
    longer = text(rng, sizes[0] << 10)
    return [
        lambda _: _asked("/generate", {**base, "text": prompt}, number, 0),
        lambda answer: _asked("/generate", {**base, "text": prompt + answer + longer}, number, 1),
    ]


def _ids(rng: random.Random, sizes: tuple[int, int]) -> list[int]:
    """Of bytes that are text: what the simulated engine, and every other, has in its vocabulary."""
    return [rng.randrange(300, 1000) for _ in range(_size(rng, sizes) // 4)]


def _completion_ids(rng: random.Random, model: str, number: int, max_tokens: int, sizes: tuple[int, int]) -> list[Turn]:
    ids = _ids(rng, sizes)
    base = {"model": _model(model, number), "max_tokens": max_tokens, "temperature": 0}
    return [lambda _: _asked("/v1/completions", {**base, "prompt": ids}, number, 0)]


def _generate_ids(rng: random.Random, model: str, number: int, max_tokens: int, sizes: tuple[int, int]) -> list[Turn]:
    ids = _ids(rng, sizes)
    base = {"sampling_params": {"max_new_tokens": max_tokens, "temperature": 0}}
    return [lambda _: _asked("/generate", {**base, "input_ids": ids}, number, 0)]


# What an answer says, whichever way it came


@dataclass(frozen=True, slots=True)
class Said:
    """An answer without what differs between any two: ids, times."""

    text: str
    finish: Any
    tool_calls: Any
    usage: tuple[Any, Any, Any]
    """Tokens of the prompt, of the answer, cached ones."""
    events: int
    """Of a stream; 0 of an answer at once."""


def said(path: str, stream: bool, body: bytes) -> Said:
    """Raises AssertionError for an answer that is none."""
    if not stream:
        return _said(path, [json.loads(body)], 0)
    blocks = [block for block in body.decode().split("\n\n") if block]
    assert blocks[-1] == "data: [DONE]", blocks[-1][:200]
    events = [json.loads(block.removeprefix("data: ")) for block in blocks[:-1]]
    return _said(path, events, len(events))


def _said(path: str, events: Sequence[dict[str, Any]], count: int) -> Said:
    assert not any("error" in event for event in events), events
    if path == "/generate":
        last = events[-1]
        meta = last["meta_info"]
        usage = (meta["prompt_tokens"], meta["completion_tokens"], meta["cached_tokens"])
        reason = {key: value for key, value in meta["finish_reason"].items() if key != "length"}
        return Said(last["text"], reason, last.get("output_ids"), usage, count)
    parts: list[str] = []
    finish: Any = None
    calls: list[Any] = []
    for event in events:
        for choice in event["choices"]:
            told = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
            parts.append(told.get("content") or "")
            calls += told.get("tool_calls") or []
            finish = choice.get("finish_reason") or finish
    block = next((event["usage"] for event in reversed(events) if event.get("usage")), None)
    if block is None:
        return Said("".join(parts), finish, calls, (None, None, None), count)
    details = block.get("prompt_tokens_details") or {}
    usage = (block["prompt_tokens"], block["completion_tokens"], details.get("cached_tokens"))
    return Said("".join(parts), finish, calls, usage, count)
