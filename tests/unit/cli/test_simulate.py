"""`shoal simulate`: a trace of the repository through small fleets; what it prints, writes and refuses."""

from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from shoal_cli.__main__ import main
from shoal_cli.replay import trace
from shoal_cli.simulate import jobs
from shoal_fleet import prefix
from shoal_testing import markdown

ROOT = Path(__file__).parents[3]
MOONCAKE = ROOT / "examples/traces/mooncake-sample.jsonl"
AGENTS = ROOT / "examples/traces/coding-agents-sample.jsonl.gz"


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["simulate", *map(str, arguments)])


def test_policies_are_compared_and_written(tmp_path: Path) -> None:
    found = []
    for name in ("first.json", "again.json"):
        file = tmp_path / name
        done = _run(
            *("--trace", MOONCAKE, "--limit", 120, "--replicas", 3, "--profile", "study-8k", "--kv-tokens", 500_000),
            *("--policy", "price_and_hold,cache_aware", "--speed", 2, "--json", file),
        )
        assert done.exit_code == 0, done.output
        assert "price_and_hold" in done.output
        assert "TTFT mean" in done.output
        found.append(orjson.loads(file.read_bytes()))
    assert found[0] == found[1]
    assert list(found[0]["runs"]) == ["price_and_hold", "cache_aware"]
    for one in found[0]["runs"].values():
        assert (one["requests"], one["failed"]) == (120, 0)
        assert one["ttft_s"]["p50"] > 0


def test_the_documented_command_runs() -> None:
    commands = [one for one in markdown.commands() if one.words[:2] == ("shoal", "simulate")]
    (command,) = [one for one in commands if one.where.startswith("docs/simulate.md")]
    words = [str(ROOT / word) if word.startswith("examples/") else word for word in command.words[2:]]
    done = _run(*words)
    assert done.exit_code == 0, done.output
    assert "round_robin" in done.output


def test_conversations_run_closed_loop(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    done = _run(
        *("--trace", AGENTS, "--limit", 6, "--turns", 8, "--sessions", 3, "--think-max", 5, "--replicas", 2),
        *("--timing", 15_000, "--kv-tokens", 1_000_000, "--page-tokens", 512, "--json", file),
    )
    assert done.exit_code == 0, done.output
    (one,) = orjson.loads(file.read_bytes())["runs"].values()
    assert one["failed"] == 0
    assert one["hit_rate"] > 0.7


def test_the_scaler_decides_how_many(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    done = _run(
        *("--trace", MOONCAKE, "--limit", 200, "--profile", "kimi-k2.5-h200", "--scale", "1:6", "--cold-start", 10),
        *("--page-tokens", 512, "--json", file),
    )
    assert done.exit_code == 0, done.output
    ready = [tick["ready"] for tick in orjson.loads(file.read_bytes())["scaling"]]
    assert ready[0] == 1
    assert 1 < max(ready) <= 6
    assert "changes of the count" in done.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--policy", "best"), "'best' is none of price_and_hold, price_and_hold_whole, greedy"),
        (("--profile", "gpu9000"), "'gpu9000' is none of tiny,"),
        (("--timing", "8000"), "--timing needs --kv-tokens"),
        (("--timing", "8000", "--kv-tokens", "10000", "--profile", "tiny"), "exclude each other"),
        (("--sessions", "5"), "this trace has arrival times"),
        (("--scale", "4"), "'4' is not MIN:MAX"),
        (("--scale", "4:2"), "'4:2' is not MIN:MAX"),
        (("--scale", "1:4", "--policy", "greedy"), "--scale reads the router's state"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], said: str) -> None:
    done = _run("--trace", MOONCAKE, *arguments)
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


def test_a_file_that_is_no_trace_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text('{"timestamp": 0, "input_length": 10, "output_length": 1, "hash_ids": [1]}\n{"x": 1}\n')
    done = _run("--trace", file)
    assert done.exit_code == 1
    assert "bad.jsonl:2: neither a coding-agent conversation nor a Mooncake request" in done.output


def test_prompts_that_no_engine_holds_are_failures_with_a_reason() -> None:
    done = _run("--trace", MOONCAKE, "--limit", 30, "--kv-tokens", 4096, "--replicas", 1)
    assert done.exit_code == 0
    assert "requests failed: too_long" in done.output


def test_a_turn_begins_with_what_the_one_before_sent() -> None:
    """Loose tokens after the last whole block are the first of the next turn's block, as `shoal replay` sends them."""
    told = jobs.of_trace(trace.read(AGENTS, limit=3))
    for one in told.conversations:
        for before, after in zip(one.turns, one.turns[1:], strict=False):
            assert len(before.job.blocks) * before.job.block_tokens >= before.job.input_tokens
            shared = len(before.job.blocks) if after.job.blocks[: len(before.job.blocks)] == before.job.blocks else 0
            pages = [prefix.page_hashes(turn.job, 64) for turn in (before, after)]
            if shared:
                assert pages[1][: len(pages[0])] == pages[0]


def test_sub_agents_keep_their_parents_ids_and_have_sessions_of_their_own(tmp_path: Path) -> None:
    row = {
        "id": "one",
        "block_size": 64,
        "requests": [
            {"t": 0.0, "type": "n", "in": 130, "out": 5, "hash_ids": [1, 2], "api_time": 1.0},
            {
                "t": 2.0,
                "type": "subagent",
                "agent_id": "a",
                "duration_ms": 4000,
                "requests": [{"t": 2.0, "type": "n", "in": 128, "out": 5, "hash_ids": [1, 9]}],
            },
            {"t": 20.0, "type": "n", "in": 192, "out": 5, "hash_ids": [1, 2, 3], "api_time": 1.0},
        ],
    }
    file = tmp_path / "one.jsonl"
    file.write_bytes(orjson.dumps(row) + b"\n")
    (told,) = jobs.of_trace(trace.read(file)).conversations
    (agent,) = told.subagents
    first, second = told.turns[0].job, agent.turns[0].job
    assert (agent.after, agent.joined_by, agent.delay_s) == (0, 1, 1.0)
    assert (second.scope, second.parent) == (first.scope, first.session)
    assert second.session != first.session
    assert prefix.page_hashes(first, 64)[0] == prefix.page_hashes(second, 64)[0]
    assert list(first.blocks) == [1, 2, 3]
    assert jobs.of_trace(trace.read(file), subagents=False).requests == 2
    assert jobs.of_trace(trace.read(file), turns_max=1).requests == 2
