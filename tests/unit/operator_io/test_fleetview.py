"""What the operator believes about a replica, from its Pod and from what routers say."""

from typing import Any

import pytest

from shoal_api.state import RouterState
from shoal_operator.domain import fleet
from shoal_operator.kube.routers import Answer, RouterPod
from shoal_operator.reconcile import fleetview
from shoal_operator.reconcile.observe import EnginePod, Group
from shoal_operator.reconcile.routerview import RouterView, Said

REPLICA = "m-abc-0"


def pod(**fields: Any) -> EnginePod:
    given: dict[str, Any] = {
        "name": f"{REPLICA}-0",
        "uid": "uid",
        "replica": REPLICA,
        "node": "n",
        "ip": "127.0.0.9",
        "ready": True,
        "started": True,
        "restarts": 0,
        "terminating": False,
        "unschedulable": None,
        "created_at_s": 100.0,
        "scheduled_at_s": 100.0,
        "ready_at_s": 130.0,
        "waiting": None,
        "last_end": None,
    }
    return EnginePod(**{**given, **fields})


def group(engine: EnginePod | None, **fields: Any) -> Group:
    given: dict[str, Any] = {
        "name": REPLICA,
        "uid": "set",
        "number": 0,
        "revision": "abc",
        "revision_hash": "abcdef",
        "render_version": "1",
        "gpu": "B200",
        "created_at_s": 100.0,
        "drain_since_s": None,
        "deleting": False,
        "manifest": {},
        "pod": engine,
    }
    return Group(**{**given, **fields})


def said(*replicas: dict[str, Any], name: str = "r", age_s: float = 0.0, synced: bool = True) -> Said:
    router = RouterPod("ns", "default", name, "127.0.0.1")
    state = RouterState.model_validate(
        {
            "router": "default",
            "instance": name,
            "started_at_s": 1.0,
            "discovery_synced": synced,
            "services": [{"name": "m", "replicas": list(replicas)}],
        }
    )
    return Said(router, Answer(router, 0.0, state=state), age_s, failing=False)


def silent(name: str = "s") -> Said:
    router = RouterPod("ns", "default", name, "127.0.0.2")
    return Said(router, None, float("inf"), failing=True)


def replica(state: str, in_flight: int = 0, uid: str = "uid") -> dict[str, Any]:
    return {"name": REPLICA, "state": state, "in_flight_requests": in_flight, "uid": uid}


@pytest.mark.parametrize(
    ("engine", "want"),
    [
        (None, fleet.Phase.PENDING),
        (pod(node=None), fleet.Phase.PENDING),
        (pod(ready=False, started=False), fleet.Phase.STARTING),
        (pod(), fleet.Phase.READY),
        (pod(ready=False), fleet.Phase.NOT_READY),
        (pod(ready=False, started=False, restarts=1), fleet.Phase.NOT_READY),
        (pod(terminating=True), fleet.Phase.NOT_READY),
    ],
)
def test_phase(engine: EnginePod | None, want: fleet.Phase) -> None:
    assert fleetview.phase_of(engine) is want


@pytest.mark.parametrize(
    ("routers", "accepted", "acked", "in_flight"),
    [
        ([], True, True, 0),
        ([silent()], None, False, None),
        ([said(replica("Routable", 2))], True, False, 2),
        ([said(replica("Routable", 2)), silent()], True, False, None),
        ([said(replica("Routable", 2)), said(replica("NotReady"), name="q")], False, False, 2),
        ([said()], False, True, 0),
        ([said(synced=False)], None, False, 0),
        ([said(replica("Routable", 2)), said(name="new", synced=False)], True, False, 2),
        ([said(replica("Draining", 1)), said(replica("Draining", 2), name="q")], False, True, 3),
        ([said(replica("Draining", 1)), said(replica("Routable"), name="q")], False, False, 1),
        ([said(replica("Draining", 0), age_s=60.0)], None, False, None),
        ([said(replica("Routable", 5, uid="earlier"))], False, False, 0),
    ],
)
def test_what_routers_make_known(
    routers: list[Said], accepted: bool | None, acked: bool, in_flight: int | None
) -> None:
    figures = fleetview.figures_of("m", group(pod()), routers)
    assert (figures.accepted, figures.drain_acked, figures.in_flight_requests) == (accepted, acked, in_flight)


def test_replica_is_stalled_only_while_it_is_not_ready_and_long_after_what_is_usual() -> None:
    figures = fleetview.figures_of("m", group(pod()), [])

    def stalled(engine: EnginePod | None, now_s: float) -> bool:
        one = fleetview.replica_of(
            group(engine), figures, now_s=now_s, begun_s=100.0, cold_start_s=2.0, cost_per_hour=0.0
        )
        return one.stalled

    assert not stalled(None, 110.0)
    assert stalled(None, 100.0 + 2 * fleetview.STALL_FLOOR_S)
    assert not stalled(pod(), 100_000.0)
    assert not stalled(pod(ready=False), 100_000.0), "it has served, and may again"
    crashing = pod(ready=False, started=False, restarts=9, waiting="CrashLoopBackOff")
    assert not stalled(crashing, 110.0)
    assert stalled(crashing, 100_000.0), "no supply, although it was started"


def test_pod_on_its_way_out_is_leaving() -> None:
    figures = fleetview.figures_of("m", group(pod()), [])

    def leaving(engine: EnginePod | None) -> bool:
        given = {"now_s": 200.0, "begun_s": 100.0, "cold_start_s": 2.0, "cost_per_hour": 0.0}
        return fleetview.replica_of(group(engine), figures, **given).leaving

    assert leaving(pod(terminating=True))
    assert not leaving(pod())
    assert not leaving(None)


def test_flow_counts_a_minute_and_begins_anew_with_the_process() -> None:
    clock = [0.0]
    view = RouterView(clock=lambda: clock[0])
    router = RouterPod("ns", "default", "r", "127.0.0.1")

    def tell(at_s: float, started_s: float, prompt: int, cached: int, output: int) -> None:
        clock[0] = at_s
        figures = {
            "name": "m",
            "prompt_tokens_total": prompt,
            "cached_tokens_total": cached,
            "output_tokens_total": output,
        }
        state = RouterState.model_validate(
            {"router": "default", "instance": "r", "started_at_s": started_s, "services": [figures]}
        )
        view.update([Answer(router, at_s, state=state)])

    tell(0.0, 1.0, 100, 10, 1)
    assert view.flow("ns", "default", "m") is None
    tell(2.0, 1.0, 300, 110, 11)
    flow = view.flow("ns", "default", "m")
    assert flow is not None
    assert (flow.prompt_tokens, flow.cached_tokens, flow.output_tokens, flow.seconds) == (200, 100, 10, 2.0)
    tell(4.0, 3.5, 50, 0, 0)  # a new process: its counters began at nothing
    assert view.flow("ns", "default", "m") is None
    clock[0] = 100.0
    view.update([Answer(router, 100.0, state=RouterState(router="default", instance="r", started_at_s=3.5))])
    assert not view._totals, "a service that is gone is not remembered"
    view.update([])
    assert view.of("ns", "default") == ()
