"""Flame graphs: boxes lie on their callers, narrow ones are left out, the file is XML."""

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from shoal_bench.hotpath import flame, record, stages

FOUND = Counter({("uvloop", "b"): 30, ("uvloop", "a", "kernel write"): 50, ("uvloop",): 19, ("uvloop", "c"): 1})


def test_boxes_lie_on_their_callers() -> None:
    drawn = {one.name: one for one in flame.boxes(flame.tree(FOUND), share_min=0.02)}
    assert {name: (one.start, one.share, one.depth) for name, one in drawn.items()} == {
        "all": (0.0, 1.0, 0),
        "uvloop": (0.0, 1.0, 1),
        "a": (0.0, 0.5, 2),
        "kernel write": (0.0, 0.5, 3),
        "b": (0.5, 0.3, 2),
    }
    assert drawn["kernel write"].stage == stages.WRITES
    assert drawn["a"].stage == stages.LOOP  # nobody knows it, so its caller decides


def test_nothing_seen_is_an_empty_picture() -> None:
    assert list(flame.boxes(flame.tree({}))) == []
    ElementTree.fromstring(flame.render("none", {}))


def test_the_file_is_xml_and_says_what_it_shows() -> None:
    text = flame.render("small & <fast>", Counter({("uvloop", "m:<lambda>"): 1, ("uvloop", "x.y:C.method"): 3}))
    root = ElementTree.fromstring(text)
    titles = [one.text for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert "x.y:C.method: 75.0%, kernel: reads; event loop" in titles
    assert "m:<lambda>: 25.0%, kernel: reads; event loop" in titles
    assert all(float(one.attrib["width"]) <= flame.WIDTH for one in root.iter("{http://www.w3.org/2000/svg}rect"))


def test_names_are_shortened_from_the_left() -> None:
    name = "server.connection:Connection._read_head"
    assert flame.shortened(name, 60) == name
    assert flame.shortened(name, 30) == "Connection._read_head"
    assert flame.shortened(name, 12) == "_read_head"
    assert flame.shortened(name, 6) == "_read…"
    assert flame.shortened(name, 3) == ""


def test_a_refused_profiler_is_told_from_a_broken_one() -> None:
    refused = record.refusal("Error: Permission Denied: Try running again with elevated permissions by going 'sudo'")
    assert refused is not None
    assert "ptrace" in refused
    assert record.refusal("Error: Failed to find python version from target process") is None


def test_the_profiler_s_command() -> None:
    words = record.argv(7, 20, Path("stacks.txt"))
    assert words[0].endswith("py-spy")
    assert {"--native", "--pid", "7", "--duration", "20", "stacks.txt"} <= set(words)
