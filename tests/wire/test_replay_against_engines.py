"""The committed sample against simulated engines: every token as it must be, and a killed engine counted."""

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from shoal_cli.replay import check, client, command, drive, results, run, trace
from shoal_testing import engines, waiting

pytestmark = pytest.mark.wire

SAMPLES = Path(__file__).parents[2] / "examples" / "traces"
PROFILE: dict[str, Any] = {"profile": "kimi-k2.5-b200", "env": {"SHOAL_SIM_LOAD_SECONDS": "0"}}


def plan(url: str, **pace: object) -> run.Plan:
    return run.Plan(
        trace=trace.read(SAMPLES / "coding-agents-sample.jsonl.gz", limit=6),
        settings=client.Settings(url=url, expected=check.expectation()),
        pace=drive.Pace(speedup=1000.0, **pace),  # type: ignore[arg-type]
        model=None,
        sessions=3,
    )


async def test_every_turn_is_answered_exactly_and_the_cache_is_used_as_the_trace_allows() -> None:
    with engines.engines(1, speedup=200.0, **PROFILE) as fleet:
        summary = await run.run(plan(fleet[0].url, turns_max=40), quiet())
    assert (summary.requests, summary.completed, summary.failed) == (40, 40, 0)
    assert summary.errors == {}
    # One engine with room for all of it is the infinite cache; the template's marks make the small difference.
    assert summary.hit_rate is not None
    assert summary.hit_rate == pytest.approx(summary.hit_rate_bound, abs=0.01)
    assert summary.ttft_s.samples == 40


async def test_killed_engine_is_counted_and_the_replay_goes_on() -> None:
    with engines.engines(1, speedup=20.0, **PROFILE) as fleet:
        recorder = results.Recorder()
        async with run.connections(8) as session:
            made = plan(fleet[0].url, turns_max=12)
            sender = client.Client(session, made.settings, recorder.began_s)
            driver = drive.Driver(sender, recorder, model=engines.MODEL, pace=made.pace)
            work = asyncio.create_task(driver.finish(driver.sessions(made.trace.conversations, count=3)))
            await waiting.until(lambda: len(recorder.outcomes) >= 2 and recorder.in_flight > 0)
            fleet[0].kill()
            async with asyncio.timeout(20):
                await work
        summary = results.summarize(recorder.outcomes, wall_s=1.0, speedup=1.0, gpus=None)
    assert summary.completed >= 2
    assert summary.failed == 12 - summary.completed
    assert set(summary.errors) <= {"connect", "disconnected", "stream_cut", "no_end"}
    assert recorder.in_flight == recorder.sessions_active == 0


def test_command_replays_mooncake_and_writes_the_report(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    with engines.engines(1, speedup=500.0, **PROFILE) as fleet:
        arguments = ["--trace", str(SAMPLES / "mooncake-sample.jsonl"), "--url", fleet[0].url, "--limit", "20"]
        arguments += ["--speedup", "50", "--verify", "--gpus", "8", "--json", str(report)]
        done = CliRunner().invoke(command.replay, arguments)
    assert done.exit_code == 0, done.output
    written = json.loads(report.read_text())
    assert (written["requests"], written["failed"]) == (20, 0)
    assert written["hit_rate_bound"] <= written["hit_rate"] + 0.02
    assert written["tokens_per_gpu_per_minute"] > 0


def test_failed_requests_are_the_exit_status(tmp_path: Path) -> None:
    with engines.engines(1, speedup=500.0) as fleet:
        fleet[0].fault(reject=True)
        arguments = ["--trace", str(SAMPLES / "mooncake-sample.jsonl"), "--url", fleet[0].url, "--limit", "2"]
        done = CliRunner().invoke(command.replay, [*arguments, "--speedup", "50", "--retries", "0"])
    assert done.exit_code == 1
    assert "failed" in done.output


def test_model_must_be_named_where_the_endpoint_is_not_there() -> None:
    url = f"http://127.0.0.1:{engines.free_port()}"
    done = CliRunner().invoke(command.replay, ["--trace", str(SAMPLES / "mooncake-sample.jsonl"), "--url", url])
    assert done.exit_code == 1
    assert "Error: " in done.output


def quiet() -> Console:
    return Console(file=io.StringIO())
