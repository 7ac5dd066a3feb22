"""Chat bodies for turns: messages whose ends depend on the token position only, never on the turn that is rendered.

All turns of a conversation are cut by one list of positions: the end of the tool and system tokens, then the end of
every turn's prompt, and between two of them the end of the assistant's answer. So a longer turn's rendered prompt
begins with the bytes of the shorter one, template marks and all, for as long as their hash ids agree. Tokens after a
prompt's last full block are the first tokens of the block that the next turn has there, as in the recorded session.
Pure; called by the drivers.
"""

import itertools
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from shoal_cli.replay import text, trace


@dataclass(frozen=True, slots=True)
class Segment:
    """One chat message: it begins at a token position and ends where the next one begins."""

    start: int
    role: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a turn sends, and what its hash ids say about it."""

    messages: bytes
    """The JSON array of chat messages."""
    tokens: int
    output_tokens: int


class Script:
    """Renders the turns of one line of conversation (a session, or one of its sub-agents)."""

    def __init__(
        self, scope: str, block_tokens: int, system_tokens: int, turns: Sequence[trace.Turn], blocks: text.BlockText
    ) -> None:
        self._block_tokens = block_tokens
        self._turns = turns
        self._blocks = blocks
        self._segments = plan_segments(system_tokens, turns)
        self._starts = [segment.start for segment in self._segments]
        self._heads = [_head(segment.role) for segment in self._segments]
        self._tails = plan_tails(turns)
        self._loose = text.BlockText(f"{scope} tail", block_tokens, blocks_max=64)

    def prompt(self, index: int) -> Prompt:
        turn = self._turns[index]
        words = self._words(index)
        used = bisect_left(self._starts, turn.input_tokens)
        ends = [*self._starts[1:used], turn.input_tokens]
        size = text.TOKEN_BYTES
        parts = [b"["]
        for head, start, end in zip(self._heads, self._starts, ends, strict=False):
            parts += (head, words[start * size : end * size], b'"},')
        parts[-1] = b'"}]'
        return Prompt(b"".join(parts), turn.input_tokens, turn.output_tokens)

    def _words(self, index: int) -> bytes:
        turn = self._turns[index]
        words = self._blocks.text(turn.blocks)
        loose_tokens = turn.input_tokens - len(turn.blocks) * self._block_tokens
        if loose_tokens <= 0:
            return words[: turn.input_tokens * text.TOKEN_BYTES]
        tail = self._tails[index]
        if tail is not None and loose_tokens <= self._block_tokens:
            rest = self._blocks.text((tail,))
        else:
            blocks = -(-loose_tokens // self._block_tokens)
            rest = self._loose.text([index << 32 | place for place in range(blocks)])
        return words + rest[: loose_tokens * text.TOKEN_BYTES]


def plan_segments(system_tokens: int, turns: Sequence[trace.Turn]) -> tuple[Segment, ...]:
    """Messages of a conversation by token position. Every turn's prompt ends with a user message."""
    ends = sorted({turn.input_tokens for turn in turns})
    answers = {turn.input_tokens: turn.output_tokens for turn in turns}
    system_end = min(system_tokens, ends[0] // 2)
    segments = [Segment(0, "system")] if system_end > 0 else []
    segments.append(Segment(system_end, "user"))
    for end, following in itertools.pairwise(ends):
        # An answer longer than the growth of the prompt was cut from the context (reasoning is): half is left to it.
        answer_end = min(end + answers[end], (end + following + 1) // 2)
        if answer_end < following:
            segments += (Segment(end, "assistant"), Segment(answer_end, "user"))
        else:
            # One token of growth: no room for an answer and a question.
            segments.append(Segment(end, "user"))
    return tuple(segments)


def plan_tails(turns: Sequence[trace.Turn]) -> tuple[int | None, ...]:
    """For every turn the hash id whose text its loose last tokens begin, or None where the trace does not tell."""
    tails: list[int | None] = [None] * len(turns)
    for index in range(len(turns) - 2, -1, -1):
        here, following = turns[index].blocks, turns[index + 1].blocks
        size = len(here)
        if _starts_with(following, here):
            tails[index] = following[size] if len(following) > size else tails[index + 1]
    return tuple(tails)


def single(tokens: int, output_tokens: int, blocks: Sequence[int], texts: text.BlockText) -> Prompt:
    """One user message: for requests that belong to no conversation. The last block may be partial."""
    words = texts.text(blocks)[: tokens * text.TOKEN_BYTES]
    return Prompt(b"".join((b"[", _head("user"), words, b'"}]')), tokens, output_tokens)


def body(prompt: Prompt, *, model: str, seed: int) -> bytes:
    """The chat completion request. `ignore_eos` makes the engine produce exactly what the trace recorded."""
    fields = {
        "model": model,
        "max_tokens": prompt.output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "seed": seed,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return b"".join((orjson.dumps(fields)[:-1], b',"messages":', prompt.messages, b"}"))


def _head(role: str) -> bytes:
    return b'{"role":"' + role.encode() + b'","content":"'


def _starts_with(longer: "array[int]", shorter: "array[int]") -> bool:
    return len(longer) >= len(shorter) and longer[: len(shorter)] == shorter
