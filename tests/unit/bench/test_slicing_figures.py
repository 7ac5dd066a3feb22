"""From answers to figures, rows, details, verdicts, tables and plots of bench-slicing."""

from dataclasses import replace
from pathlib import Path

import pytest

from shoal_bench import results
from shoal_bench.slicing import detail, engine, measures, pictures, report, routers, runs, targets
from shoal_bench.slicing.__main__ import main
from shoal_bench.slicing.engine import Counters
from shoal_bench.slicing.http import Answer
from shoal_bench.slicing.load import Kind, Load
from shoal_bench.slicing.play import Played, Sent
from shoal_bench.slicing.routers import SliceCounters
from shoal_bench.slicing.runs import Run

GPU = "NVIDIA H200"


def sent(at_s: float, tokens: list[float], cold: bool = False, error: str | None = None) -> Sent:
    ended_s = tokens[-1] if tokens else at_s
    return Sent(cold, 0, Answer(at_s, tokens, ended_s, 100, 50, len(tokens), {}, error))


PLAYED = Played(
    load=Load(measured_s=10.0),
    began_s=100.0,
    sent=(
        sent(100.0, [103.0, 103.5], cold=True),
        sent(101.0, [101.5, 101.75, 103.75]),
        sent(102.0, [103.5, 103.75, 104.0]),
        sent(103.0, [103.25, 109.0], error="no end in 6 s"),
    ),
    lead_in=(sent(99.0, [99.5, 100.5]), sent(98.0, [], error="HTTP 500: ")),
    cpu_s=1.0,
    wall_s=10.0,
)


def figures(before: Counters | None = None, after: Counters | None = None) -> dict[str, float]:
    return measures.figures(PLAYED, before or Counters(0.0), after or Counters(10.0), None, 10.0)


def test_times_are_of_good_answers_silences_of_all() -> None:
    found = figures()
    assert found["warm_ttft_s_mean"] == pytest.approx(1.0)
    assert (found["warm_ttft_s_p50"], found["warm_ttft_s_p99"]) == (0.5, 1.5)
    assert found["cold_ttft_s_mean"] == pytest.approx(3.0)
    assert found["silence_s_max"] == pytest.approx(5.75)
    assert found["silences_300ms"] == 2
    assert found["cold_silence_s_max"] == pytest.approx(0.5)
    assert found["warm_tokens_per_s"] == pytest.approx(2 / 2.25)


def test_failures_are_counted_wherever_they_are_and_tokens_where_they_come() -> None:
    found = figures()
    assert (found["turns"], found["cold_prompts"], found["failures"]) == (2, 1, 2)
    # 2 of the cold prompt, 3 + 3 + 2 of turns, and one of the lead-in that came in the measured time.
    assert found["output_tokens_per_s"] == pytest.approx(1.1)


def test_what_an_engine_does_not_report_has_no_figure() -> None:
    assert "engine_busy_share" not in figures()
    before, after = Counters(0.0, 1.0, 2.0, 100.0), Counters(10.0, 6.0, 4.0, 400.0)
    found = figures(before, after)
    assert (found["engine_prefill_share"], found["engine_busy_share"]) == (0.5, 0.8)
    assert found["prefill_tokens"] == 300.0


def test_slices_are_counted_from_the_start_of_the_measured_time() -> None:
    none = SliceCounters(None, None, None, None, None)
    later = SliceCounters(7.0, 1.0, None, 0.5, 2.0)
    assert later.since(none).figures() == {
        "slices": 7.0,
        "sliced_prompts": 1.0,
        "slice_added_s": 0.5,
        "slice_saved_s": 2.0,
    }
    assert SliceCounters(9.0, 2.0, 0.0, 1.0, 4.0).since(later).slices == 2.0
    assert none.since(none).figures() == {}


def test_all_measures_have_a_unit() -> None:
    counted = SliceCounters(1.0, 1.0, 1.0, 1.0, 1.0)
    full = measures.figures(PLAYED, Counters(0.0, 0.0, 0.0, 0.0), Counters(9.0, 1.0, 1.0, 1.0), counted, 9.0)
    assert set(full) == set(measures.UNITS)


def test_curves_go_from_the_least_to_the_greatest() -> None:
    found = measures.curve([1.0, 2.0, 9.0])
    assert (found[0], found[50], found[-1], len(found)) == (1.0, 2.0, 9.0, measures.CURVE_POINTS + 1)
    assert measures.curve([]) == []


def run(router: str, number: int = 1, kind: Kind = "ids", **found: float) -> Run:
    values = {"turns": 100.0, "failures": 0.0, **found}
    cpu = {"router": 0.1, "client": 0.2, "machine": 0.4}
    return Run(router, kind, number, values, [0.1, 0.2], [3.0], {}, cpu)


RUNS = [
    run("shoal", 1, warm_ttft_s_mean=0.1, cold_ttft_s_mean=4.8, slices=42.0),
    run("shoal", 2, warm_ttft_s_mean=0.3, cold_ttft_s_mean=4.8, slices=44.0),
    run("shoal-whole", 1, warm_ttft_s_mean=1.6, cold_ttft_s_mean=3.2),
    run("sglang-router", 1, warm_ttft_s_mean=1.5),
    run("shoal", 1, "chat", warm_ttft_s_mean=0.25),
]
ROWS = runs.rows(RUNS, engine.SIMULATED)


def test_rows_are_medians_with_their_spread() -> None:
    [mean] = [one for one in ROWS if (one["router"], one["measure"]) == ("shoal", "warm_ttft_s_mean")]
    assert mean == {
        "router": "shoal",
        "engine": "simulated",
        "measure": "warm_ttft_s_mean",
        "value": 0.2,
        "unit": "s",
        "min": 0.1,
        "max": 0.3,
        "rounds": 2,
    }
    assert {one["measure"] for one in ROWS if one["measure"].startswith("chat_")} == {
        "chat_turns",
        "chat_failures",
        "chat_warm_ttft_s_mean",
    }


def test_a_run_replaces_its_own_engine_router_and_load_only() -> None:
    new = runs.rows([run("shoal", warm_ttft_s_mean=0.15)], engine.SIMULATED)
    real = runs.rows([run("shoal", warm_ttft_s_mean=0.12, cold_ttft_s_mean=3.7)], GPU)
    found = runs.merged(runs.merged(ROWS, real), new)

    def values(measure: str, router: str, name: str) -> list[float]:
        return [
            one["value"] for one in found if (one["measure"], one["router"], one["engine"]) == (measure, router, name)
        ]

    assert values("warm_ttft_s_mean", "shoal", "simulated") == [0.15]
    assert values("cold_ttft_s_mean", "shoal", "simulated") == []
    assert values("chat_warm_ttft_s_mean", "shoal", "simulated") == [0.25]
    assert values("warm_ttft_s_mean", "shoal-whole", "simulated") == [1.6]
    assert values("warm_ttft_s_mean", "shoal", GPU) == [0.12]


def test_targets_are_of_the_engine_that_they_name() -> None:
    real = runs.rows([run("shoal", warm_ttft_s_mean=0.2), run("sglang-router", warm_ttft_s_mean=1.6)], GPU)
    found = {(one.engine, one.target.measure): one for one in targets.judge([*ROWS, *real])}

    assert found["simulated", "warm_ttft_s_mean"].ratio == pytest.approx(0.125)
    assert found["simulated", "warm_ttft_s_mean"].hit
    assert not found["simulated", "cold_ttft_s_mean"].hit
    assert found[GPU, "warm_ttft_s_mean"].theirs == 1.6
    assert set(found) == {
        ("simulated", "warm_ttft_s_mean"),
        ("simulated", "cold_ttft_s_mean"),
        (GPU, "warm_ttft_s_mean"),
    }


def test_targets_are_of_measures_and_routers_that_there_are() -> None:
    for target in targets.TARGETS:
        assert target.measure in measures.UNITS
        assert target.against in routers.ROUTERS


def of_runs(made: list[Run], load: Load | None = None, router: str = "shoal") -> detail.Detail:
    return detail.of_runs(load or Load(), made, {"cores": "2"}, {"version": "9"}, {router: "1.0"})


def details() -> dict[str, detail.Detail]:
    ids = {engine.SIMULATED: of_runs(RUNS[:4])}
    return detail.merged(ids, {engine.SIMULATED: of_runs(RUNS[4:], Load(kind="chat"), "smg")})


def test_details_keep_what_was_not_run_again() -> None:
    found = details()[engine.SIMULATED]
    assert set(found["loads"]) == {"ids", "chat"}
    assert found["versions"] == {"shoal": "1.0", "smg": "1.0"}
    assert found["loads"]["ids"]["routers"]["shoal"]["rounds"] == 2
    again = detail.merged(details(), {engine.SIMULATED: of_runs([run("smg")]), GPU: of_runs([run("shoal")])})
    assert set(again[engine.SIMULATED]["loads"]["ids"]["routers"]) == {"shoal", "shoal-whole", "sglang-router", "smg"}
    assert set(again[GPU]["loads"]) == {"ids"}


def test_details_survive_their_file(tmp_path: Path) -> None:
    path = tmp_path / "detail.json"
    assert detail.read(path) == {}
    detail.write(path, details())
    assert detail.read(path) == details()


def test_tables_show_medians_spread_and_misses() -> None:
    text = report.text(ROWS, details())
    assert "0.2 (0.1 to 0.3)" in text
    assert "**missed**" in text
    assert "slicing-simulated.svg" in text
    assert "Failures" not in text


def test_failures_and_strain_are_said() -> None:
    worse = replace(RUNS[0], errors={"HTTP 503: full": 3}, cpu={"router": 0.9})
    found = {engine.SIMULATED: of_runs([worse])}
    text = report.text(runs.rows([worse], engine.SIMULATED), found)
    assert "shoal: 3 x HTTP 503: full" in text
    assert "shoal †" in text


def test_plots_are_written_for_every_engine(tmp_path: Path) -> None:
    rows = [*ROWS, *runs.rows([run("shoal", warm_ttft_s_mean=0.2)], GPU)]
    found = details() | {GPU: of_runs([run("shoal")])}
    made = pictures.write(tmp_path, rows, found)
    assert {path.name for path in made} == {
        "slicing-simulated.svg",
        "slicing-simulated-distribution.svg",
        "slicing-nvidia-h200.svg",
        "slicing-nvidia-h200-distribution.svg",
    }
    assert all(path.read_text().lstrip().startswith("<?xml") for path in made)


def test_the_order_moves_on_every_round() -> None:
    assert [runs.rotated("abc", by) for by in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]


def test_metrics_are_summed_and_missing_is_not_zero() -> None:
    page = '# HELP m x\nm{a="1",mode="x"} 2\nm{a="2",mode="y"} 3.5\nm_other 9\nplain 4\n'
    assert engine.total(page, "m") == 5.5
    assert engine.total(page, "m", 'mode="y"') == 3.5
    assert engine.total(page, "plain") == 4.0
    assert engine.total(page, "absent") is None


def test_shoal_with_and_without_slices_differ_in_the_route_table_only() -> None:
    ours, whole = routers.ROUTERS["shoal"], routers.ROUTERS["shoal-whole"]
    assert (ours.program, whole.program) == ("shoal", "shoal")
    assert (ours.service, whole.service) == ({"slicing": "Auto"}, {"slicing": "Off"})


def test_figures_taken_elsewhere_are_put_beside_those_at_hand(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    results.write(here / "slicing.json", ROWS)
    detail.write(here / "slicing-detail.json", details())
    real = runs.rows([run("shoal", warm_ttft_s_mean=0.2)], GPU)
    results.write(there / "slicing.json", real)
    detail.write(there / "slicing-detail.json", {GPU: of_runs([run("shoal")])})

    assert main(["--out", str(here), "--merge", str(there)]) == 0

    assert results.read(here / "slicing.json") == [*ROWS, *real]
    assert set(detail.read(here / "slicing-detail.json")) == {engine.SIMULATED, GPU}
    text = (here / "slicing.md").read_text()
    assert "A real engine: NVIDIA H200" in text
    assert "slicing-nvidia-h200.svg" in text


def test_nothing_is_drawn_where_there_is_nothing(tmp_path: Path) -> None:
    assert main(["--out", str(tmp_path), "--render"]) == 1
