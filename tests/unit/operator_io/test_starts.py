"""Cold starts as the leader remembers them, and since when a replica's present start lasts."""

from typing import Any

from shoal_operator.reconcile import starts
from shoal_operator.reconcile.observe import EnginePod, Group
from shoal_operator.reconcile.outcome import Key

KEY = Key("ModelService", "ns", "m")
BUDGET_S = 900.0


def pod(uid: str, ready_at_s: float | None, created_at_s: float = 100.0, restarts: int = 0) -> EnginePod:
    return EnginePod(
        name=f"{uid}-0",
        uid=uid,
        replica=uid,
        node="n",
        ip=None,
        ready=ready_at_s is not None,
        started=ready_at_s is not None,
        restarts=restarts,
        terminating=False,
        unschedulable=None,
        created_at_s=created_at_s,
        scheduled_at_s=created_at_s,
        ready_at_s=ready_at_s,
        waiting=None,
        last_end=None,
    )


def group(engine: EnginePod | None, name: str = "g") -> Group:
    fields: dict[str, Any] = {
        "name": name,
        "uid": name,
        "number": 0,
        "revision": "abc",
        "revision_hash": "abc",
        "render_version": "1",
        "gpu": "B200",
        "created_at_s": 100.0,
        "drain_since_s": None,
        "deleting": False,
        "manifest": {},
    }
    return Group(**fields, pod=engine)


def seen(*engines: EnginePod) -> starts.Starts:
    found = starts.Starts()
    found.note(KEY, [group(one, one.uid) for one in engines], budget_s=BUDGET_S, now_s=0.0)
    return found


def test_assumed_until_one_is_seen_and_at_least_its_budget() -> None:
    assert seen(pod("a", None)).cold_start_s(KEY, budget_s=BUDGET_S) == starts.ASSUMED_S
    big = seen(pod("a", None)).cold_start_s(KEY, budget_s=3000.0)
    assert big * 1.5 == 3000.0, "no start is late before its start-up probe gives up"


def test_measured_from_the_pod_of_those_that_never_restarted() -> None:
    assert seen(pod("a", 130.0)).cold_start_s(KEY, budget_s=BUDGET_S) == 30.0
    assert seen(pod("a", 100.0)).cold_start_s(KEY, budget_s=BUDGET_S) == 1.0
    again = pod("a", 5030.0, created_at_s=5000.0)
    assert seen(again).cold_start_s(KEY, budget_s=BUDGET_S) == 30.0, "a second Pod of an old replica"
    assert seen(pod("a", 130.0), pod("b", 900.0, restarts=2)).cold_start_s(KEY, budget_s=BUDGET_S) == 30.0


def test_readiness_that_comes_back_is_no_start() -> None:
    found = seen(pod("a", 130.0))
    found.note(KEY, [group(pod("a", 800.0))], budget_s=BUDGET_S, now_s=800.0)
    assert found.cold_start_s(KEY, budget_s=BUDGET_S) == 30.0
    late = seen(pod("a", 90_000.0))
    assert late.cold_start_s(KEY, budget_s=BUDGET_S) == starts.ASSUMED_S, "seen by a new leader only"


def test_starts_of_replicas_that_are_gone_count_and_are_bounded() -> None:
    found = starts.Starts()
    for number in range(200):
        one = pod(f"p{number}", 100.0 + number)
        found.note(KEY, [group(one, one.uid)], budget_s=BUDGET_S, now_s=0.0)
    assert 190.0 <= found.cold_start_s(KEY, budget_s=BUDGET_S) <= 199.0
    assert len(found._took[KEY]) == starts.KEPT
    many = [group(pod(f"q{number}", 130.0), f"q{number}") for number in range(100)]
    found.note(KEY, many, budget_s=BUDGET_S, now_s=0.0)
    assert set(found._took[KEY]) == {one.name for one in many}, "what runs is never measured anew"


def test_present_start_begins_with_the_pod_or_when_it_was_missed() -> None:
    found = starts.Starts()
    assert found.begun_s(KEY, group(pod("a", None, created_at_s=700.0))) == 700.0
    gone = group(None)
    found.note(KEY, [gone], budget_s=BUDGET_S, now_s=1000.0)
    found.note(KEY, [gone], budget_s=BUDGET_S, now_s=1500.0)
    assert found.begun_s(KEY, gone) == 1000.0
    found.note(KEY, [group(pod("a", None))], budget_s=BUDGET_S, now_s=1600.0)
    found.note(KEY, [gone], budget_s=BUDGET_S, now_s=1700.0)
    assert found.begun_s(KEY, gone) == 1700.0
    found.forget(KEY)
    assert found.begun_s(KEY, gone) == 100.0
