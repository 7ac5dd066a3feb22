"""Plots: valid SVG, the same bytes for the same figures."""

from pathlib import Path
from xml.etree import ElementTree

from shoal_bench import plots


def test_bars_name_every_router_and_repeat_exactly(tmp_path: Path) -> None:
    values = {"shoal": 3.0, "peer": 1.0}
    for name in ("one.svg", "two.svg"):
        plots.bars(tmp_path / name, "Title", values, limits=("peer",), spread={"shoal": (2.0, 4.0)})

    first = (tmp_path / "one.svg").read_text()
    assert first == (tmp_path / "two.svg").read_text()
    text = " ".join(ElementTree.fromstring(first).itertext())
    assert all(word in text for word in ("Title", "shoal", "peer"))


def test_lines_name_their_series(tmp_path: Path) -> None:
    plots.lines(tmp_path / "x.svg", "Title", {"a": ([0, 1], [1, 2]), "b": ([0, 1], [2, 1])}, y_label="s", step=True)

    text = " ".join(ElementTree.fromstring((tmp_path / "x.svg").read_text()).itertext())
    assert {"a", "b", "s"} <= set(text.split())
