"""Rows, targets and failures of bench-router from made-up samples."""

import pytest

from shoal_bench.router import measure, report


def collected(**shoal: float) -> report.Collected:
    made = report.Collected()
    ours = measure.Taken(samples={"small_rps": 30000.0, "cpu_us_per_chunk": 10.0, "rss_mb": 50.0, **shoal})
    made.add("shoal", "cache_aware", 0, ours)
    made.add("fast", "cache_aware", 0, measure.Taken(samples={"small_rps": 10000.0, "cpu_us_per_chunk": 12.0}))
    made.add("slow", "cache_aware", 0, measure.Taken(samples={"small_rps": 5000.0, "cpu_us_per_chunk": 11.0}))
    made.add("shoal-interpreted", "cache_aware", 0, measure.Taken(samples={"small_rps": 20000.0, "rss_mb": 49.0}))
    made.add("nginx", "round_robin", 0, measure.Taken(samples={"small_rps": 90000.0}))
    made.add(measure.DIRECT, "", 0, measure.Taken(samples={"small_rps": 99000.0}))
    return made


def met(made: report.Collected) -> dict[str, str]:
    rows = report.rows(made)
    return {target.measure: report.judge(target, rows)[2] for target in report.TARGETS}


def test_best_peer_is_no_bound_and_not_ourselves_in_any_build() -> None:
    rows = report.rows(collected())

    assert report.best_peer(rows, "small_rps", high_is_good=True) == ("fast", 10000.0)
    assert report.best_peer(rows, "cpu_us_per_chunk", high_is_good=False) == ("slow", 11.0)
    assert report.best_peer(rows, "rss_mb", high_is_good=False) is None


@pytest.mark.parametrize(("rps", "want"), [(25000.0, "yes"), (24990.0, "no")])
def test_factor_of_the_best_peer_decides(rps: float, want: str) -> None:
    assert met(collected(small_rps=rps))["small_rps"] == want


@pytest.mark.parametrize(("mb", "want"), [(80.0, "yes"), (80.1, "no")])
def test_bound_decides(mb: float, want: str) -> None:
    assert met(collected(rss_mb=mb))["rss_mb"] == want


def test_what_was_not_measured_is_not_met() -> None:
    assert met(collected())["rss_mb_10000_streams"] == "not measured"


def test_rounds_become_one_row_with_their_spread() -> None:
    made = collected()
    made.add("shoal", "cache_aware", 1, measure.Taken(samples={"small_rps": 20000.0}))

    row = next(one for one in report.rows(made) if one["router"] == "shoal" and one["measure"] == "small_rps")

    assert (row["value"], row["min"], row["max"], row["rounds"]) == (25000.0, 20000.0, 30000.0, 2)
    assert {"router", "measure", "value", "unit"} <= set(row)


def test_added_latency_says_at_which_rate_and_over_what() -> None:
    made = report.Collected()
    facts = {"at_rps": 1234.0, "direct_ms_p50": 0.04, "direct_ms_p99": 0.4}
    made.add("shoal", "cache_aware", 0, measure.Taken({"added_ms_p50": 0.1, "added_ms_p99": 0.9}, {}, facts))

    assert [(one["at_rps"], one.get("direct_ms_p99")) for one in report.rows(made)] == [(1234.0, None), (1234.0, 0.4)]


def test_failed_measure_has_a_sentence_and_no_row() -> None:
    made = collected()
    made.add("slow", "cache_aware", 0, measure.Taken(failures={"prompt350k_rps": "no\nanswer"}))
    rows = report.rows(made)

    text = report.block(rows, made.failures, {"CPU": "x"}, "where", pictures=False)

    assert not [one for one in rows if one["measure"] == "prompt350k_rps"]
    assert "- slow, prompt350k_rps, round 1: no answer" in text


@pytest.mark.parametrize(
    ("cores", "want"),
    [
        ({4, 7}, measure.Place(4, (7, 7), 7)),
        ({0, 1, 2}, measure.Place(0, (1, 1), 2)),
        ({0, 1, 2, 3, 4}, measure.Place(0, (1, 2), 3)),
    ],
)
def test_router_always_has_a_core_to_itself(cores: set[int], want: measure.Place) -> None:
    assert measure.place(cores) == want


def test_one_core_is_too_few() -> None:
    with pytest.raises(ValueError, match="two cores"):
        measure.place({3})


def test_entry_names_a_policy_or_takes_the_default() -> None:
    assert measure.entry("smg") == measure.Entry("smg", "cache_aware")
    assert measure.entry("vllm-router:round_robin").label == "vllm-router, round robin"
    assert measure.entry("nginx").label == "nginx"
    for wrong in ("unheard-of", "sglang-router:least_loaded"):
        with pytest.raises(ValueError, match="no"):
            measure.entry(wrong)
