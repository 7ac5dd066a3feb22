"""bench-slicing on loopback: a small load through Shoal to a traced engine. Counts, never times."""

from dataclasses import replace
from pathlib import Path

import pytest

from shoal_bench.slicing import engine, load, play, routers, runs, timeline
from shoal_bench.slicing.load import Load
from shoal_testing import routerbuild

pytestmark = pytest.mark.wire

SMALL = Load(
    sessions=3,
    context_tokens=512,
    turn_tokens=64,
    out_tokens=8,
    think_min_s=0.05,
    think_max_s=0.2,
    cold_tokens=12_288,
    cold_out_tokens=4,
    cold_every_s=1.5,
    lead_in_s=0.3,
    measured_s=2.0,
)


@pytest.mark.parametrize("kind", ["ids", "chat"])
def test_a_run_gives_all_figures(tmp_path: Path, kind: load.Kind) -> None:
    trace = tmp_path / "trace.jsonl"
    with engine.simulated(tmp_path, ("shoal_bench.slicing.traced", str(trace))) as behind:
        bench = runs.Bench(behind, tmp_path, routers.Programs(shoal_folder=routerbuild.folder()))
        sized = replace(SMALL, kind=kind, chars_per_token=engine.chars_per_token(behind))
        [made] = bench.rounds(sized, [routers.WHOLE], 1)

    found = made.figures
    assert made.errors == {}
    assert found["failures"] == 0
    assert found["turns"] >= 3
    assert found["cold_prompts"] == len(load.cold_times(sized, 1))
    assert found["cold_ttft_s_mean"] > 0
    assert 0 < found["engine_prefill_share"] <= found["engine_busy_share"] <= 1.05
    assert found.get("slices", 0) == 0
    assert found["prefill_tokens"] > found["cold_prompts"] * 12_000
    assert set(made.cpu) == {"router", "engine", "client", "machine"}
    steps = timeline.steps(trace.read_text().splitlines())
    computed = sum(tokens for step in steps for _, tokens, _ in step.pieces)
    assert computed >= found["prefill_tokens"]
    if kind == "ids":
        marks = {mark for step in steps for mark, _, _ in step.pieces}
        assert timeline_mark(sized) in marks


def timeline_mark(sized: Load) -> str:
    parts = load.cold(sized, engine.MODEL, 1, 0).body(1).partition(b"[")[2].split(b",")
    return load.mark([int(one) for one in parts[:4]])


async def test_contexts_that_are_not_filled_end_the_run(tmp_path: Path) -> None:
    with engine.simulated(tmp_path) as behind:
        url = behind.url
    with pytest.raises(play.LoadError, match="3 contexts"):
        await play.play(SMALL, url, engine.MODEL, 1)


def test_an_engine_that_runs_already_is_asked_for_its_model(tmp_path: Path) -> None:
    with engine.simulated(tmp_path) as behind:
        found = engine.running("NVIDIA H200", behind.url)
        engine.flush(found)
        assert engine.about(found)["page size"] == "64"
        assert (found.name, found.model, found.process) == ("NVIDIA H200", engine.MODEL, None)
    with pytest.raises(engine.EngineError):
        engine.running("NVIDIA H200", behind.url)
