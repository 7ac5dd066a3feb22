"""Markdown tables and the generated part of documents."""

from pathlib import Path

import pytest

from shoal_bench import tables

COMMAND = "make bench-x"


def test_table_aligns_figures_to_the_right() -> None:
    assert tables.table(["", "a"], [["x", "1"]]) == "|  | a |\n| --- | ---: |\n| x | 1 |"


def test_table_refuses_a_short_line() -> None:
    with pytest.raises(ValueError, match="cells"):
        tables.table(["", "a"], [["x"]])


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (None, tables.MISSING),
        (0, "0"),
        (12345.6, "12,346"),
        (123.4, "123"),
        (12.34, "12.3"),
        (0.1234, "0.123"),
        (0.00001234, "0.000012"),
        (-5.5, "-5.5"),
    ],
)
def test_number_has_three_digits_and_no_exponent(value: float | None, want: str) -> None:
    assert tables.number(value) == want


def test_generated_part_is_replaced_and_prose_stays(tmp_path: Path) -> None:
    path = tmp_path / "doc.md"
    tables.write_generated(path, "first \\1", COMMAND, "# Title\n")
    path.write_text(path.read_text() + "\nBy hand.\n")

    tables.write_generated(path, "second", COMMAND)

    text = path.read_text()
    assert text.startswith("# Title\n")
    assert "first" not in text
    assert f"{tables.begin_marker(COMMAND)}\nsecond\n{tables.END_MARKER}" in text
    assert text.endswith("By hand.\n")


def test_document_without_markers_is_left_alone() -> None:
    with pytest.raises(ValueError, match="not one"):
        tables.with_generated("prose", "block", COMMAND)
