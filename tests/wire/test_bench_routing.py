"""One small run of the routing benchmark: two engines, Shoal in compressed time, a few dozen turns."""

from dataclasses import replace
from pathlib import Path

import pytest

from shoal_bench.routing import routers, runs, workloads
from shoal_cli.replay import trace

pytestmark = pytest.mark.wire


def test_a_run_gives_all_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(
        workloads.FULL["agents-20"],
        engines=replace(workloads.STUDY_15K, count=2),
        compression=20.0,
        sessions=4,
        think_max_s=5.0,
        duration_s=100.0,
        ramp_s=5.0,
    )
    sample = trace.read(workloads.TRACES / "coding-agents-sample.jsonl.gz", limit=4)
    monkeypatch.setattr(runs, "trace_of", lambda _: sample)
    record = runs.make(small, routers.ROUTERS["shoal"], 1, tmp_path)
    found = record.figures.measures
    assert (found["failed"], found["cancelled"], found["retried"]) == (0, 0, 0)
    assert found["requests"] >= 12
    assert 0.3 < found["hit_rate"] <= found["hit_rate_bound"] + 0.02
    assert found["ttft_s_p50"] <= found["ttft_s_p99"] <= found["ttft_s_max"]
    assert found["decode_tokens_per_s_per_user"] > 0
    assert set(record.cpu) == {"router", "engines", "client", "machine"}
    assert len(record.spread_at_s) == len(record.spread_requests) > 5
    assert (tmp_path / "logs").is_dir()
