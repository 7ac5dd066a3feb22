"""Makes the samples in examples/traces from the public traces; run by hand when the choice below changes.

    python bench/make_trace_samples.py --coding-agents weka-sample.jsonl.gz --mooncake conversation_trace.jsonl

Coding agents: conversations in file order, cut at CONTEXT_TOKENS_MAX and TURNS_MAX, kept where the rest is long enough
to show reuse. Only the fields that the replay reads are kept. Mooncake: the first requests. For the routing benchmark:
the starts of all conversations, however long their prompts, and the first ten minutes of Mooncake. Deterministic.
"""

import argparse
import gzip
from pathlib import Path
from typing import Any

import orjson

from shoal_cli.replay import bound, trace

CONVERSATIONS = 40
CONTEXT_TOKENS_MAX = 110_000
FIRST_TOKENS_MAX = 30_000
TURNS_MAX = 40
TURNS_MIN = 28
HIT_MIN = 0.945
MOONCAKE_REQUESTS = 500
BENCHMARK_TURNS = 40
BENCHMARK_MS = 600_000
REQUEST_FIELDS = ("t", "type", "in", "out", "hash_ids", "api_time", "think_time")
AGENT_FIELDS = ("t", "type", "agent_id", "duration_ms", "tool_tokens", "system_tokens")
CONVERSATION_FIELDS = ("id", "block_size", "hash_id_scope", "tool_tokens", "system_tokens")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--coding-agents", type=Path, required=True)
    parser.add_argument("--mooncake", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("examples/traces"))
    arguments = parser.parse_args()
    chosen = choose(arguments.coding_agents)
    size = pack(arguments.out / "coding-agents-sample.jsonl.gz", chosen)
    with arguments.mooncake.open("rb") as source:
        head = [line for _, line in zip(range(MOONCAKE_REQUESTS), source, strict=False)]
    (arguments.out / "mooncake-sample.jsonl").write_bytes(b"".join(head))
    describe(chosen, size)
    starts = [started(row) for row in trace.rows(arguments.coding_agents)]
    describe(starts, pack(arguments.out / "coding-agents-starts.jsonl.gz", starts))
    slice_ = [row for row in trace.rows(arguments.mooncake) if row["timestamp"] < BENCHMARK_MS]
    size = pack(arguments.out / "mooncake-conversation-10min.jsonl.gz", slice_)
    print(f"{len(slice_)} requests, {size:,} bytes")


def pack(path: Path, rows: list[dict[str, Any]]) -> int:
    """Writes JSON lines, packed; returns the file's size."""
    lines = b"".join(orjson.dumps(row) + b"\n" for row in rows)
    packed = gzip.compress(lines, compresslevel=9, mtime=0)
    path.write_bytes(packed)
    return len(packed)


def choose(path: Path) -> list[dict[str, Any]]:
    chosen: list[dict[str, Any]] = []
    for row in trace.rows(path):
        short = shortened(row)
        if short is not None and hit_share(short) >= HIT_MIN:
            chosen.append(short)
        if len(chosen) == CONVERSATIONS:
            break
    return chosen


def started(row: dict[str, Any]) -> dict[str, Any]:
    """The first turns of a conversation, as long as they are."""
    requests: list[dict[str, Any]] = []
    turns = 0
    for entry in row["requests"]:
        if turns == BENCHMARK_TURNS:
            break
        if entry["type"] == "subagent":
            requests.append(_agent(entry))
        else:
            requests.append(_kept(entry, REQUEST_FIELDS))
            turns += 1
    return {**_kept(row, CONVERSATION_FIELDS), "requests": requests}


def shortened(row: dict[str, Any]) -> dict[str, Any] | None:
    """The start of a conversation; None where it is too long from the first prompt on, or too short altogether."""
    requests: list[dict[str, Any]] = []
    turns = 0
    for entry in row["requests"]:
        if entry["type"] == "subagent":
            requests.append(_agent(entry))
            continue
        if entry["in"] > CONTEXT_TOKENS_MAX or turns == TURNS_MAX:
            break
        turns += 1
        requests.append(_kept(entry, REQUEST_FIELDS))
    if turns < TURNS_MIN or requests[0]["in"] > FIRST_TOKENS_MAX:
        return None
    return {**_kept(row, CONVERSATION_FIELDS), "requests": requests}


def hit_share(row: dict[str, Any]) -> float:
    conversation = trace.conversation(row)
    cache = bound.InfiniteCache(conversation.block_tokens)
    known = sum(cache.insert(turn.blocks, turn.input_tokens) for turn in conversation.turns)
    return known / sum(turn.input_tokens for turn in conversation.turns)


def describe(chosen: list[dict[str, Any]], packed_bytes: int) -> None:
    conversations = [trace.conversation(row) for row in chosen]
    turns = [turn for conversation in conversations for turn in conversation.turns]
    tokens = sum(turn.input_tokens for turn in turns)
    weighted = sum(
        hit_share(row) * sum(turn.input_tokens for turn in conversation.turns)
        for row, conversation in zip(chosen, conversations, strict=True)
    )
    print(
        f"{len(chosen)} conversations, {len(turns)} turns, {sum(len(c.subagents) for c in conversations)} sub-agents, "
        f"{tokens / len(turns):,.0f} tokens in and {sum(t.output_tokens for t in turns) / len(turns):.0f} out a turn, "
        f"infinite-cache hit {weighted / tokens:.3f}, {packed_bytes:,} bytes"
    )


def _agent(entry: dict[str, Any]) -> dict[str, Any]:
    nested = [_kept(request, REQUEST_FIELDS) for request in entry["requests"]]
    return {**_kept(entry, AGENT_FIELDS), "requests": nested}


def _kept(row: dict[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    return {field: row[field] for field in fields if field in row}


if __name__ == "__main__":
    main()
