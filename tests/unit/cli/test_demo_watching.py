"""What the demo tells and records as objects change, fed by hand as the watch would."""

import asyncio
from typing import Any

import pytest

from shoal_api import state
from shoal_cli.demo import environment, stage, watch


def service(
    ready: int, desired: int, *, generation: int = 1, reason: str = "Available", ok: str = "True"
) -> dict[str, Any]:
    return {
        "metadata": {"name": "coder", "generation": generation},
        "spec": {"model": {"servedName": "coder"}},
        "status": {
            "observedGeneration": 1,
            "replicas": {"ready": ready, "desired": desired},
            "conditions": [{"type": "Ready", "status": ok, "reason": reason, "message": "so it is"}],
            "replicaDetails": [{"name": "coder-1-0", "phase": "Ready", "gpu": "B200", "node": "n"}],
            "scaling": {"desired": desired, "reason": "Backlog"},
        },
    }


def pod(name: str, component: str, *, address: str = "127.9.1.1", restarts: int = 0) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"shoal.dev/router": "default", "app.kubernetes.io/component": component}},
        "status": {"podIP": address, "containerStatuses": [{"restartCount": restarts}]},
    }


@pytest.fixture
def told() -> tuple[watch.Fleet, list[str]]:
    lines: list[str] = []
    return watch.Fleet(None, None, "shoal", stage.Stage(lines.append)), lines  # type: ignore[arg-type]


def test_every_change_of_the_count_is_a_point_and_an_event(told: tuple[watch.Fleet, list[str]]) -> None:
    fleet, lines = told
    for item in (service(0, 3), service(2, 3), service(2, 3), service(3, 4)):
        fleet._on_service("MODIFIED", item)
    assert [(point.ready, point.desired) for point in fleet.points] == [(0, 3), (2, 3), (3, 4)]
    assert any("replicas wanted: 3 -> 4 (Backlog)" in line for line in lines)
    assert any("replicas ready: 0 -> 2 of 3" in line for line in lines)


def test_conditions_are_told_when_they_change(told: tuple[watch.Fleet, list[str]]) -> None:
    fleet, lines = told
    fleet._on_services([service(0, 3, reason="Starting", ok="False")])
    fleet._on_service("MODIFIED", service(0, 3, reason="Starting", ok="False"))
    fleet._on_service("MODIFIED", service(3, 3))
    assert [line for line in lines if "Ready=" in line][-1].endswith("Ready=True Available: so it is")
    assert sum("Ready=False Starting" in line for line in lines) == 1


def test_ready_is_about_the_spec_in_force(told: tuple[watch.Fleet, list[str]]) -> None:
    fleet, _ = told
    fleet._on_service("ADDED", service(3, 3, generation=2))
    assert not fleet.ready
    fleet._on_service("MODIFIED", service(3, 3))
    assert fleet.ready


def test_restarted_container_is_told(told: tuple[watch.Fleet, list[str]]) -> None:
    fleet, lines = told
    fleet._on_pods([pod("coder-1-0-0", "engine")])
    fleet._on_pod("MODIFIED", pod("coder-1-0-0", "engine", restarts=1))
    fleet._on_pod("DELETED", pod("coder-1-0-0", "engine"))
    assert sum("started again" in line for line in lines) == 1
    assert fleet.pods == {}


def test_routers_are_not_the_engines_behind_them(told: tuple[watch.Fleet, list[str]]) -> None:
    fleet, _ = told
    fleet._on_pods([pod("engine", "engine"), pod("router", "router"), pod("new", "router", address="")])
    assert [one["metadata"]["name"] for one in fleet.router_pods()] == ["router"]


def test_rows_join_status_and_router(told: tuple[watch.Fleet, list[str]]) -> None:
    fleet, _ = told
    fleet._on_service("ADDED", service(1, 1))
    assert fleet.rows()[0].in_flight is None
    replica = state.ReplicaState(name="coder-1-0", state="Routable", in_flight_tokens=50, kv_tokens_max=200)
    fleet.router = state.ServiceState(name="coder", replicas=(replica,))
    assert (fleet.rows()[0].in_flight, fleet.rows()[0].kv_share) == (0, 0.25)


async def test_wait_ends_with_the_change_or_with_its_deadline(told: tuple[watch.Fleet, list[str]]) -> None:
    fleet, _ = told
    waiting = asyncio.create_task(fleet.until(lambda: fleet.ready, 10.0))
    await asyncio.sleep(0)
    fleet._on_service("ADDED", service(3, 3))
    async with asyncio.timeout(5):
        assert await waiting
    assert not await fleet.until(lambda: False, 0.01)


def test_this_machine_can_run_the_demo() -> None:
    root = environment.checkout()
    assert root is not None
    assert environment.gaps(root) == []
