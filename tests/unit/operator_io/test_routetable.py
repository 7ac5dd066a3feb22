"""The route table that routers get: what it says of a service, and when it is another generation."""

from typing import Any

import pytest

from shoal_api import routes
from shoal_api.conditions import Reason
from shoal_api.modelservice import ModelServiceStatus
from shoal_api.router import RouterSpec
from shoal_operator.reconcile import routetable
from shoal_testing import services


def test_a_known_shape_tells_which_token_ids_exist() -> None:
    service = services.service("kimi-nvfp4")
    entry = routetable.entry(service, revision="aaaaaaaa", draining=(), first_on_its_way=False)
    assert entry.vocab_size == 163840
    assert entry.served_name == service.served_name


@pytest.mark.parametrize(
    ("spec", "slicing", "itl_objective_s"),
    {
        "nothing said": ({}, "Auto", None),
        "slices off": ({"routing": {"slicing": "Off"}}, "Off", None),
        "a promise": ({"replicas": None, "scaling": {"max": 4, "slo": {"itl": "40ms"}}}, "Auto", 0.04),
        "scaling without one": ({"replicas": None, "scaling": {"max": 4}}, "Auto", None),
    }.values(),
)
def test_routers_are_told_whether_to_slice_and_what_streams_were_promised(
    spec: dict[str, Any], slicing: str, itl_objective_s: float | None
) -> None:
    service = services.service("quickstart", **spec)
    entry = routetable.entry(service, revision="aaaaaaaa", draining=(), first_on_its_way=False)
    assert (entry.slicing, entry.itl_objective_s) == (slicing, itl_objective_s)


def test_a_table_written_before_slices_says_auto() -> None:
    """A router of this version may start on the table of an older operator."""
    old = routes.Service.model_validate_json('{"name": "m", "served_name": "tiny", "affinity": "Auto"}')
    assert (old.slicing, old.itl_objective_s) == ("Auto", None)


def test_equal_tables_are_one_generation_and_a_drain_is_another() -> None:
    service = services.service("quickstart")
    calm = routetable.entry(service, revision="aaaaaaaa", draining=(), first_on_its_way=False)
    drains = routetable.entry(service, revision="aaaaaaaa", draining=("m-aaaaaaaa-0",), first_on_its_way=False)
    spec = RouterSpec()
    assert routetable.table(spec, [calm]) == routetable.table(spec, [calm])
    assert routetable.table(spec, [calm]).generation != routetable.table(spec, [drains]).generation


def status(desired: int, ready: int, phases: list[str], gate: Reason | None = None) -> ModelServiceStatus:
    details = [{"name": f"m-{i}", "phase": phase, "revision": "a"} for i, phase in enumerate(phases)]
    hold = None if gate is None else {"gate": gate.value, "reason": "", "since": "2026-01-01T00:00:00Z"}
    counts = {"desired": desired, "ready": ready, "draining": 0, "pending": 0}
    return ModelServiceStatus.model_validate(
        {"replicas": counts, "replicaDetails": details, "rollout": {"step": "", "hold": hold}}
    )


@pytest.mark.parametrize(
    ("seen", "want"),
    {
        "starting": (status(2, 0, ["Starting", "Pending"], Reason.STARTING), True),
        "about to be made": (status(2, 0, []), True),
        "waits for a node": (status(1, 0, ["Pending"], Reason.STARTING), True),
        "restarts after a kill": (status(1, 0, ["NotReady"], Reason.STARTING), True),
        "one starts, one has no room": (status(2, 0, ["Starting", "Pending"], Reason.UNSCHEDULABLE), True),
        "one serves": (status(2, 1, ["Ready", "Starting"]), False),
        "none wanted": (status(0, 0, []), False),
        "no GPU for any": (status(2, 0, [], Reason.NO_SPARE_GPU), False),
        "no node takes it": (status(1, 0, ["Pending"], Reason.UNSCHEDULABLE), False),
        "crashes": (status(1, 0, ["Failed"], Reason.REPLICA_FAILED), False),
        "crashes between two starts": (status(1, 0, ["NotReady"], Reason.REPLICA_FAILED), False),
        "never gets ready": (status(1, 0, ["Starting"], Reason.START_TIMEOUT), False),
        "nothing known": (ModelServiceStatus(), False),
    }.values(),
)
def test_requests_wait_only_for_a_replica_that_can_come(seen: ModelServiceStatus, want: bool) -> None:
    assert routetable.first_on_its_way(seen) is want
