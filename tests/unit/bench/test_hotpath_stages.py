"""Stages of stacks: the innermost known frame decides, the table knows only what the router has, shares add up."""

import ast

import pytest

from shoal_bench.hotpath import flame, frames, report, run, stages
from shoal_bench.peers import install

LIBRARIES = {"kernel write", "kernel read", "kernel epoll", "uvloop", "llhttp", "orjson", "xxhash", frames.COLLECTOR}
SUBMIT = "admission.core:ServiceCore.submit"
FINISH = "admission.core:ServiceCore.finish"


@pytest.mark.parametrize(
    ("stack", "stage"),
    [
        (("uvloop",), stages.LOOP),
        (("uvloop", "server.connection:Connection.answer"), stages.RELAYING),
        (("uvloop", "server.connection:Connection.answer", "uvloop", "kernel write"), stages.WRITES),
        (("uvloop", "server.connection:Connection._read_head", "llhttp"), stages.PARSING),
        (("server.frontend:Frontend._open", "orjson"), stages.CHECKS),
        ((SUBMIT, "policy.load:Load.refill"), stages.BINDING),
        ((FINISH, "policy.load:Load.refill"), stages.FINISH),
        ((SUBMIT, "dispatch.exchange:Exchange.on_bound", "mypyc:CPyDict_GetItem"), stages.RELAYING),
        ((FINISH, "freeing Binding"), stages.FREEING),
        (("python:Random.choice",), stages.REST),
        ((), stages.REST),
    ],
)
def test_innermost_known_frame_decides(stack: frames.Stack, stage: str) -> None:
    assert stages.stage_of(stack) == stage


def test_table_names_what_the_router_has() -> None:
    """Who renames a function renames it here."""
    missing = [name for name in stages.names() - LIBRARIES if not _exists(name)]
    assert missing == []


def _exists(name: str) -> bool:
    module, _, member = name.partition(":")
    path = install.ROUTER_SOURCES / "shoal_router" / f"{module.replace('.', '/')}.py"
    if not path.is_file():
        return False
    level: list[ast.stmt] = ast.parse(path.read_text()).body
    for word in filter(None, member.split(".")):
        found = [one for one in level if isinstance(one, ast.ClassDef | ast.FunctionDef) and one.name == word]
        if not found:
            return False
        level = found[0].body
    return True


def test_shares_divide_what_a_request_takes() -> None:
    found = {("uvloop", "kernel write"): 30, (SUBMIT,): 60, ("python:f",): 10}
    parts = {one.stage: one for one in stages.shares(found, 50.0)}
    assert list(parts) == list(stages.STAGES)
    assert parts[stages.WRITES].us == pytest.approx(15.0)
    assert parts[stages.BINDING].share == pytest.approx(0.6)
    assert parts[stages.REST].samples == 10
    assert sum(one.us for one in parts.values()) == pytest.approx(50.0)


def test_no_samples_are_no_profile() -> None:
    with pytest.raises(ValueError, match="without samples"):
        stages.shares({}, 50.0)


def test_own_samples() -> None:
    found = {("uvloop",): 1, ("uvloop", "orjson"): 2, ("a", "orjson"): 4, (): 1}
    assert stages.own(found, 2) == [("orjson", 0.75), ("uvloop", 0.125)]


def test_every_stage_has_a_colour() -> None:
    assert set(flame.COLOURS) == set(stages.STAGES)


def test_rows_and_tables() -> None:
    stacks = frames.fold(["write (libc.so.6) 3", "uv_run (core.c:1) 1"], frozenset())
    found = {"small": report.Taken(stacks, 40.0, 9000.0, 0.99), "small-interpreted": report.Taken(stacks, 80.0, 1.0, 1)}
    made = report.rows(found)
    assert len(made) == 2 * (1 + len(stages.STAGES))
    assert made[0] == {
        "load": "small", "build": "compiled", "stage": "all", "value": 40.0, "unit": "us", "share": 1.0,
        "samples": 4, "per_s": 9000.0, "busy": 0.99,
    }  # fmt: skip
    assert made[1]["value"] == 30.0
    assert made[-1]["build"] == "interpreted"
    table = report.stages_table(found)
    assert "| kernel: writes | 30.0 us (75.0%) | 60.0 us (75.0%) |" in table
    assert "`kernel write` 75.0%" in report.own_table(found)
    assert "hot-path-small.svg" in report.block(found, {}, "here", pictures=True)
    assert "svg" not in report.block(found, {}, "here", pictures=False)


def test_profiles_are_chosen_by_name() -> None:
    assert report.selected("small,chunk") == ["small", "chunk"]
    with pytest.raises(ValueError, match="no profile large"):
        report.selected("large")


def test_quick_profiles_are_shorter() -> None:
    assert run.QUICK.record_s < run.FULL.record_s
