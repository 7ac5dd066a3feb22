"""Both public formats, plain and gzipped, and what is said about files that are neither."""

import gzip
import json
from pathlib import Path

import pytest

from shoal_cli.replay import trace

CONVERSATION = {
    "id": "trace_1",
    "block_size": 64,
    "hash_id_scope": "local",
    "tool_tokens": 100,
    "system_tokens": 28,
    "requests": [
        {"t": 0.0, "type": "n", "in": 200, "out": 10, "hash_ids": [1, 2, 3], "api_time": 2.0, "think_time": 0.0},
        {
            "t": 4.0,
            "type": "subagent",
            "agent_id": "agent_1",
            "duration_ms": 3000,
            "tool_tokens": 7,
            "system_tokens": 1,
            "requests": [{"t": 0.0, "type": "n", "in": 70, "out": 5, "hash_ids": [9], "api_time": 1.0}],
        },
        {"t": 8.0, "type": "s", "in": 300, "out": 0, "hash_ids": [1, 2, 3, 4]},
        {"t": 9.0, "type": "s", "in": 0, "out": 5, "hash_ids": []},
        {"t": 20.0, "type": "n", "in": 310, "out": 3, "hash_ids": [1, 2, 3, 4], "think_time": 5.0},
    ],
}
REQUEST = {"timestamp": 1500, "input_length": 600, "output_length": 7, "hash_ids": [0, 1]}


def write(path: Path, *rows: object, packed: bool = False) -> Path:
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_conversation_is_read_with_its_times(tmp_path: Path, packed: bool) -> None:
    read = trace.read(write(tmp_path / "t", CONVERSATION, packed=packed))
    assert read.kind == "coding-agent"
    (conversation,) = read.conversations
    assert conversation.system_tokens == 128
    assert [turn.input_tokens for turn in conversation.turns] == [200, 300, 310]
    assert [turn.output_tokens for turn in conversation.turns] == [10, 1, 3]
    # Given, worked out from the start and duration of the turn before, given.
    assert [turn.think_s for turn in conversation.turns] == [0.0, 6.0, 5.0]
    assert conversation.requests() == 4


def test_subagent_starts_after_its_parent_and_is_waited_for(tmp_path: Path) -> None:
    (conversation,) = trace.read(write(tmp_path / "t", CONVERSATION)).conversations
    (agent,) = conversation.subagents
    assert (agent.after, agent.joined_by, agent.delay_s, agent.system_tokens) == (0, 1, 2.0, 8)


def test_subagent_that_outlives_the_next_turn_is_not_waited_for(tmp_path: Path) -> None:
    row = json.loads(json.dumps(CONVERSATION))
    row["requests"][1]["duration_ms"] = 60_000
    (conversation,) = trace.read(write(tmp_path / "t", row)).conversations
    assert conversation.subagents[0].joined_by is None


def test_mooncake_is_read_in_order_of_time(tmp_path: Path) -> None:
    read = trace.read(write(tmp_path / "t", REQUEST, {**REQUEST, "timestamp": 0}))
    assert read.kind == "mooncake"
    assert [one.at_s for one in read.arrivals] == [0.0, 1.5]
    assert read.arrivals[0].turn.input_tokens == 600


def test_limit_reads_the_first_lines_only(tmp_path: Path) -> None:
    assert len(trace.read(write(tmp_path / "t", *[REQUEST] * 5), limit=2).arrivals) == 2


@pytest.mark.parametrize(
    ("rows", "want"),
    [
        pytest.param([], "no requests", id="empty"),
        pytest.param([{"a": 1}], "t:1: neither", id="unknown"),
        pytest.param([REQUEST, CONVERSATION], "both formats", id="mixed"),
        pytest.param([[1]], "t:1: not a JSON object", id="list"),
        pytest.param([{**REQUEST, "input_length": 2000}], "t:1: 2 hash ids do not make 2000 tokens", id="short"),
        pytest.param([{**REQUEST, "output_length": "x"}], "t:1: ", id="type"),
        pytest.param([{**CONVERSATION, "requests": []}], "without requests", id="no turns"),
        pytest.param([{"requests": [], "id": "x"}], "field 'block_size' is missing", id="no block size"),
        pytest.param([{**REQUEST, "hash_ids": [-1, 2]}], "t:1: ", id="negative id"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_line(tmp_path: Path, rows: list[object], want: str) -> None:
    with pytest.raises(trace.TraceError, match=want):
        trace.read(write(tmp_path / "t", *rows))


def test_bytes_that_are_no_json_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"{nonsense\n")
    with pytest.raises(trace.TraceError, match="t:1: not JSON"):
        trace.read(tmp_path / "t")


def test_committed_samples_are_what_the_demo_needs() -> None:
    samples = Path(__file__).parents[3] / "examples" / "traces"
    agents = trace.read(samples / "coding-agents-sample.jsonl.gz")
    assert len(agents.conversations) >= 40
    assert max(turn.input_tokens for one in agents.conversations for turn in one.turns) <= 120_000
    assert len(trace.read(samples / "mooncake-sample.jsonl").arrivals) == 500
    small = ("coding-agents-sample.jsonl.gz", "mooncake-sample.jsonl")
    assert sum((samples / name).stat().st_size for name in small) < 500_000
    assert sum(path.stat().st_size for path in samples.iterdir()) < 4_000_000  # those of the routing benchmark, too
