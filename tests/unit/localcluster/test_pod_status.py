"""A Pod's status from its containers' states, as a kubelet would have it."""

from dataclasses import replace
from typing import Any

import pytest

from shoal_local.agent import status
from shoal_local.agent.status import Facts, Running, Terminated, View, Waiting
from shoal_local.agent.worker import next_run_of, view_after_restart

NOW = "2026-01-01T00:00:00Z"
LATER = "2026-01-01T00:01:00Z"


def ended(code: int) -> Terminated:
    return Terminated(code, "Completed" if code == 0 else "Error", NOW, NOW)


def view(name: str, state: status.State, **fields: Any) -> View:
    return View(name, "image", state, **fields)


def facts(*mains: View, **fields: Any) -> Facts:
    base = Facts((), mains, frozenset(), "Always", (), "127.70.1.1", "127.70.0.1", NOW)
    return replace(base, **fields)


WAIT = Waiting("ContainerCreating")
CRASH = Waiting("CrashLoopBackOff")
RUN = Running(NOW)

PHASES = {
    "not started": (facts(view("a", WAIT)), "Pending"),
    "running": (facts(view("a", RUN)), "Running"),
    "one still to come": (facts(view("a", RUN), view("b", WAIT)), "Pending"),
    "waiting to be restarted": (facts(view("a", CRASH, last=ended(1))), "Running"),
    "ended but to be restarted": (facts(view("a", ended(0))), "Running"),
    "done": (facts(view("a", ended(0)), restart_policy="Never"), "Succeeded"),
    "failed": (facts(view("a", ended(0)), view("b", ended(1)), restart_policy="Never"), "Failed"),
    "failed, to be tried again": (facts(view("a", ended(1)), restart_policy="OnFailure"), "Running"),
    "init runs": (facts(view("a", WAIT), inits=(view("i", RUN),)), "Pending"),
    "init failed for good": (facts(view("a", WAIT), inits=(view("i", ended(1)),), restart_policy="Never"), "Failed"),
    "init failed, tried again": (facts(view("a", WAIT), inits=(view("i", CRASH, last=ended(1)),)), "Pending"),
    "sidecar helps still": (
        facts(
            view("a", ended(0)),
            inits=(view("s", RUN, started=True),),
            sidecars=frozenset({"s"}),
            restart_policy="Never",
        ),
        "Running",
    ),
    "evicted": (facts(view("a", ended(137)), verdict=("Evicted", "too much")), "Failed"),
    "deleted, ended well": (facts(view("a", ended(0)), stopped=True), "Succeeded"),
    "deleted, killed": (facts(view("a", ended(137)), stopped=True), "Failed"),
}


@pytest.mark.parametrize("case", PHASES)
def test_phase(case: str) -> None:
    given, want = PHASES[case]
    assert status.phase_of(given) == want


def conditions(given: Facts, gates: dict[str, str] | None = None) -> dict[str, str]:
    found = status.conditions_of(given, status.phase_of(given), gates or {})
    return {each["type"]: each["status"] for each in found}


def test_ready_needs_every_container() -> None:
    ready = view("a", RUN, ready=True, started=True)
    assert conditions(facts(ready))["Ready"] == "True"
    assert conditions(facts(ready, view("b", RUN)))["Ready"] == "False"


def test_readiness_gates_hold_ready_but_not_containers_ready() -> None:
    given = facts(view("a", RUN, ready=True, started=True), gates=("x/y",))
    assert conditions(given)["Ready"] == "False"
    assert conditions(given)["ContainersReady"] == "True"
    assert conditions(given, {"x/y": "True"})["Ready"] == "True"


def test_sidecar_that_is_not_ready_holds_ready() -> None:
    given = facts(view("a", RUN, ready=True), inits=(view("s", RUN, started=True),), sidecars=frozenset({"s"}))
    assert conditions(given)["Initialized"] == "True"
    assert conditions(given)["Ready"] == "False"


def test_transition_times_change_with_the_status_only() -> None:
    known = [{"type": "Ready", "status": "False", "lastTransitionTime": NOW}]
    same = status.with_times([{"type": "Ready", "status": "False"}], known, LATER)
    other = status.with_times([{"type": "Ready", "status": "True"}], known, LATER)
    assert (same[0]["lastTransitionTime"], other[0]["lastTransitionTime"]) == (NOW, LATER)


def test_ended_pod_shows_no_container_ready() -> None:
    given = facts(view("a", ended(0), ready=True, started=True), restart_policy="Never")
    rendered = status.render_status(given, {}, NOW)
    assert rendered["phase"] == "Succeeded"
    assert rendered["containerStatuses"][0]["ready"] is False


def test_container_found_running_by_a_new_agent_counts_as_lost() -> None:
    known = {"state": {"running": {"startedAt": NOW}}, "restartCount": 2}
    found = view_after_restart("a", "image", known)
    assert (found.restarts, next_run_of(found)) == (2, 3)
    assert found.last is not None
    assert (found.last.exit_code, found.last.reason) == (137, "ContainerStatusUnknown")


def test_container_found_ended_by_a_new_agent_stays_ended() -> None:
    known = {"state": ended(0).render(), "restartCount": 2}
    found = view_after_restart("a", "image", known)
    assert (found.state, found.restarts, next_run_of(found)) == (ended(0), 2, 3)


def test_container_that_never_ran_begins_with_run_zero() -> None:
    for known in (None, {"state": {"waiting": {}}, "restartCount": 0}):
        assert next_run_of(view_after_restart("a", "image", known)) == 0
