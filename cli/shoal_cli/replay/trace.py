"""Traces as values: conversations (closed-loop) and arrivals (open-loop), read from plain or gzipped JSON lines.

Two public formats. WEKA coding-agent: one conversation a line, `requests[]` with nested sub-agents, 64 tokens a hash
id, the ids of full blocks only. Mooncake: one request a line, `timestamp` in ms, 512 tokens a hash id, the last block
may be partial. Nothing here sends or sleeps. Called by the drivers, the text generator and the sample maker.
"""

import gzip
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

MOONCAKE_BLOCK_TOKENS = 512
DECODE_TOKENS_PER_S_ASSUMED = 60.0
"""Only where a trace gives neither think time nor API time: how fast the recorded answer is taken to have come."""


class TraceError(ValueError):
    """The file is not a trace in a known format; the message names file and line."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request: its prompt as hash ids of blocks, in order, and the tokens that it asks for."""

    input_tokens: int
    output_tokens: int
    blocks: "array[int]"
    think_s: float
    """Seconds between the end of the turn before and the start of this one."""


@dataclass(frozen=True, slots=True)
class SubAgent:
    """Turns that run beside their parent, from `delay_s` after the parent turn `after` has ended."""

    name: str
    after: int
    """Index of the parent turn that started it; -1 for one that starts with the conversation."""
    joined_by: int | None
    """Index of the parent turn that waits for its end; None where the parent went on meanwhile."""
    delay_s: float
    system_tokens: int
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    name: str
    block_tokens: int
    system_tokens: int
    """Tokens of tool definitions and system prompt: the first message."""
    turns: tuple[Turn, ...]
    subagents: tuple[SubAgent, ...] = ()

    def requests(self) -> int:
        return len(self.turns) + sum(len(agent.turns) for agent in self.subagents)


@dataclass(frozen=True, slots=True)
class Arrival:
    at_s: float
    turn: Turn


@dataclass(frozen=True, slots=True)
class Trace:
    """Exactly one of `conversations` and `arrivals` is filled, by `kind`."""

    kind: Literal["coding-agent", "mooncake"]
    conversations: tuple[Conversation, ...] = ()
    arrivals: tuple[Arrival, ...] = ()


def read(path: Path, *, limit: int | None = None) -> Trace:
    """The whole trace, or its first `limit` lines. Raises TraceError, OSError."""
    conversations: list[Conversation] = []
    arrivals: list[Arrival] = []
    for number, row in enumerate(rows(path), start=1):
        try:
            if "requests" in row:
                conversations.append(conversation(row))
            elif "timestamp" in row and "hash_ids" in row:
                arrivals.append(arrival(row))
            else:
                raise TraceError("neither a coding-agent conversation nor a Mooncake request")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise TraceError(f"{path.name}:{number}: {_reason(error)}") from error
        if limit is not None and number >= limit:
            break
    if bool(conversations) == bool(arrivals):
        raise TraceError(f"{path.name}: {'both formats in one file' if conversations else 'no requests'}")
    if conversations:
        return Trace("coding-agent", conversations=tuple(conversations))
    return Trace("mooncake", arrivals=tuple(sorted(arrivals, key=lambda one: one.at_s)))


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """JSON objects of a file of JSON lines; gzip is known by its magic, not by the file's name."""
    with path.open("rb") as probe:
        packed = probe.read(2) == b"\x1f\x8b"
    with gzip.open(path, "rb") if packed else path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise TraceError(f"{path.name}:{number}: not JSON: {error}") from error
            if not isinstance(row, dict):
                raise TraceError(f"{path.name}:{number}: not a JSON object")
            yield row


def conversation(row: dict[str, Any]) -> Conversation:
    block_tokens = int(row["block_size"])
    turns: list[Turn] = []
    spawned: list[tuple[dict[str, Any], int]] = []
    starts: list[float] = []
    ends: list[float] = []
    last: dict[str, Any] | None = None
    for entry in row["requests"]:
        if entry["type"] == "subagent":
            spawned.append((entry, len(turns) - 1))
            continue
        if entry["in"] <= 0:  # Nothing to send: some recordings hold turns that were cancelled at once.
            continue
        turns.append(_turn(entry, last, block_tokens))
        starts.append(float(entry["t"]))
        ends.append(starts[-1] + _recorded_s(entry))
        last = entry
    if not turns:
        raise TraceError("a conversation without requests")
    return Conversation(
        name=str(row["id"]),
        block_tokens=block_tokens,
        system_tokens=int(row.get("tool_tokens", 0)) + int(row.get("system_tokens", 0)),
        turns=tuple(turns),
        subagents=tuple(_subagent(entry, after, starts, ends, block_tokens) for entry, after in spawned),
    )


def arrival(row: dict[str, Any]) -> Arrival:
    blocks = _blocks(row["hash_ids"])
    tokens = int(row["input_length"])
    if not (len(blocks) - 1) * MOONCAKE_BLOCK_TOKENS < tokens <= len(blocks) * MOONCAKE_BLOCK_TOKENS:
        raise TraceError(f"{len(blocks)} hash ids do not make {tokens} tokens")
    turn = Turn(tokens, max(1, int(row["output_length"])), blocks, think_s=0.0)
    return Arrival(float(row["timestamp"]) / 1000.0, turn)


def _turn(entry: dict[str, Any], before: dict[str, Any] | None, block_tokens: int) -> Turn:
    blocks = _blocks(entry["hash_ids"])
    tokens = int(entry["in"])
    if not len(blocks) * block_tokens <= tokens:
        raise TraceError(f"{len(blocks)} hash ids are more than {tokens} tokens")
    think_s = entry.get("think_time")
    if think_s is None:
        gap_s = 0.0 if before is None else float(entry["t"]) - float(before["t"]) - _recorded_s(before)
        think_s = gap_s
    return Turn(tokens, max(1, int(entry["out"])), blocks, max(0.0, float(think_s)))


def _subagent(entry: dict[str, Any], after: int, starts: list[float], ends: list[float], block_tokens: int) -> SubAgent:
    start_s = float(entry["t"])
    end_s = start_s + float(entry.get("duration_ms", 0)) / 1000.0
    following = after + 1
    waits = following < len(starts) and starts[following] >= end_s
    turns: list[Turn] = []
    last: dict[str, Any] | None = None
    for request in entry["requests"]:
        if request["in"] <= 0:
            continue
        turns.append(_turn(request, last, block_tokens))
        last = request
    return SubAgent(
        name=str(entry["agent_id"]),
        after=after,
        joined_by=following if waits else None,
        delay_s=max(0.0, start_s - ends[after]) if after >= 0 else start_s,
        system_tokens=int(entry.get("tool_tokens", 0)) + int(entry.get("system_tokens", 0)),
        turns=tuple(turns),
    )


def _recorded_s(entry: dict[str, Any]) -> float:
    """Seconds that the recorded request took; estimated from its output where the trace does not say."""
    recorded = entry.get("api_time")
    return float(recorded) if recorded is not None else float(entry["out"]) / DECODE_TOKENS_PER_S_ASSUMED


def _blocks(ids: list[int]) -> "array[int]":
    return array("Q", ids)


def _reason(error: Exception) -> str:
    return f"field {error} is missing" if isinstance(error, KeyError) else str(error)
