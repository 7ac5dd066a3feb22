"""The committed sample through a router and two engines: sessions stay where their cache is, and a killed engine costs
only the streams that it had begun."""

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from shoal_cli.replay import check, client, drive, results, run, trace
from shoal_cli.replay.outcome import Ending
from shoal_testing import engines, routers, waiting

pytestmark = pytest.mark.wire

SAMPLE = Path(__file__).parents[2] / "examples" / "traces" / "coding-agents-sample.jsonl.gz"
SETTINGS: dict[str, Any] = {"profile": "kimi-k2.5-b200", "env": {"SHOAL_SIM_LOAD_SECONDS": "0"}}


async def test_hit_rate_through_the_router_is_near_the_bound() -> None:
    with engines.engines(2, speedup=100.0, **SETTINGS) as fleet, routers.router(named(fleet)) as router:
        plan = run.Plan(
            trace=trace.read(SAMPLE, limit=6),
            settings=client.Settings(url=router.url, expected=check.expectation()),
            pace=drive.Pace(speedup=200.0, turns_max=90),
            model=None,
            sessions=6,
        )
        summary = await run.run(plan, Console(file=io.StringIO()))
    assert (summary.requests, summary.completed, summary.errors) == (90, 90, {})
    assert summary.hit_rate is not None
    assert summary.hit_rate_bound is not None
    assert summary.hit_rate > summary.hit_rate_bound - 0.05
    assert set(summary.replicas) == {"r0", "r1"}
    assert sum(summary.replicas.values()) == 90


async def test_killed_engine_ends_its_streams_with_an_error_event_and_fails_nothing() -> None:
    with engines.engines(2, speedup=6.0, **SETTINGS) as fleet, routers.router(named(fleet)) as router:
        recorder = results.Recorder()
        async with run.connections(64) as session:
            sender = client.Client(session, client.Settings(url=router.url), recorder.began_s)
            pace = drive.Pace(speedup=100.0, turns_max=36)
            driver = drive.Driver(sender, recorder, model=engines.MODEL, pace=pace)
            conversations = trace.read(SAMPLE, limit=12).conversations
            work = asyncio.create_task(driver.finish(driver.sessions(conversations, count=12)))
            await waiting.until(lambda: len(recorder.outcomes) >= 12 and recorder.in_flight >= 8, 20.0)
            busiest = max(router.service_state()["replicas"], key=lambda replica: int(replica["in_flight_requests"]))
            fleet[int(busiest["name"][1:])].kill()
            async with asyncio.timeout(25):
                await work
    report = results.summarize(recorder.outcomes, wall_s=1.0, speedup=1.0, gpus=None)
    assert (report.requests, report.failed) == (36, 0)
    broken = [outcome for outcome in recorder.outcomes if outcome.ending is Ending.ERROR_EVENT]
    assert {outcome.replica for outcome in broken} <= {busiest["name"]}
    assert broken
    assert all(outcome.tokens_seen > 0 for outcome in broken)


def named(fleet: list[engines.SimulatedEngine]) -> dict[str, str]:
    return {f"r{number}": one.url for number, one in enumerate(fleet)}
