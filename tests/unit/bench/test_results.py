"""Rows: medians and spread, files, and how two runs are put together."""

import json
import math
from pathlib import Path

import pytest

from shoal_bench import results


def test_row_of_several_samples_has_median_and_spread() -> None:
    row = results.row([3.0, 1.0, 2.0], "ms", router="a", measure="m")

    assert row == {"router": "a", "measure": "m", "value": 2.0, "unit": "ms", "min": 1.0, "max": 3.0, "rounds": 3}


def test_row_of_one_sample_claims_no_spread() -> None:
    assert results.row([0.5], "ms", router="a") == {"router": "a", "value": 0.5, "unit": "ms"}


@pytest.mark.parametrize("samples", [[], [math.nan], [1.0, math.inf]])
def test_what_is_no_sample_makes_no_row(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="not samples"):
        results.row(samples, "ms")


@pytest.mark.parametrize(
    ("value", "want"), [(123456.0, 123500.0), (0.0012345, 0.001234), (0.0, 0.0), (-9876.54, -9877.0), (12.0, 12.0)]
)
def test_rounded_keeps_four_digits(value: float, want: float) -> None:
    assert results.rounded(value) == pytest.approx(want)


@pytest.mark.parametrize(("share", "want"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1)])
def test_percentile_is_the_nearest_rank(share: float, want: float) -> None:
    assert results.percentile(range(100, 0, -1), share) == want


def test_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no values"):
        results.percentile([], 0.5)


def test_rows_survive_a_file_one_a_line(tmp_path: Path) -> None:
    rows = [results.row([1.0], "ms", router="a"), results.row([2.0, 4.0], "ms", router="b")]
    path = tmp_path / "folder" / "rows.json"

    results.write(path, rows)

    assert results.read(path) == rows
    assert json.loads(path.read_text()) == rows
    assert len(path.read_text().splitlines()) == 4
    assert [one.name for one in path.parent.iterdir()] == ["rows.json"]


def test_no_rows_are_a_file_too(tmp_path: Path) -> None:
    results.write(tmp_path / "rows.json", [])

    assert results.read(tmp_path / "rows.json") == []
    assert results.read(tmp_path / "missing.json") == []


def test_value_of_one_row_is_found_and_of_two_refused() -> None:
    rows = [results.row([1.0], "s", router="a", run=1), results.row([2.0], "s", router="a", run=2)]

    assert results.value(rows, router="a", run=2) == 2.0
    assert results.value(rows, router="b") is None
    with pytest.raises(ValueError, match="2 rows"):
        results.value(rows, router="a")


def test_merge_replaces_rows_of_the_same_key() -> None:
    old = [results.row([1.0], "s", router="a", measure="m"), results.row([2.0], "s", router="b", measure="m")]
    new = [results.row([9.0], "s", router="a", measure="m")]

    merged = results.merge(old, new, ("router", "measure"))

    assert [(one["router"], one["value"]) for one in merged] == [("b", 2.0), ("a", 9.0)]


def test_machine_says_what_a_reader_needs_and_not_its_name() -> None:
    facts = results.machine()

    assert {"CPU", "cores", "memory", "kernel", "Python", "date", "commit"} == set(facts)
    assert all(facts.values())
