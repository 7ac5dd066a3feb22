"""Changes of the spec while replicas serve: surge, delete-first, acknowledged drains, edits and restarts in between."""

import pytest

from shoal_api import keys
from shoal_testing import operatorprocess
from shoal_testing.cluster import Object, until
from shoal_testing.operatorprocess import Operator
from shoal_testing.stage import Place, Stage

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240)]

LONGER = {"contextLength": 65536}


def revision(place: Place) -> str:
    return str(place.status()["currentRevision"])


def revisions(place: Place) -> set[str]:
    return {one["metadata"]["labels"][keys.LABEL_REVISION] for one in place.sets()}


def draining(place: Place) -> list[Object]:
    return [one for one in place.sets() if keys.ANNOTATION_DRAIN_SINCE in (one["metadata"].get("annotations") or {})]


def all_new(place: Place, old: str, count: int) -> None:
    until(lambda: revision(place) != old, "a new revision")
    until(lambda: revisions(place) == {revision(place)} and len(place.sets()) == count, "only new replicas are left")
    place.ready(count)


def test_surge_replaces_one_by_one_and_never_goes_below(place: Place, operator_process: Operator) -> None:
    place.add_node()
    place.service(replicas=2, rollout={"maxSurge": 1, "maxUnavailable": 0})
    old = place.ready(2)["currentRevision"]
    fewest: list[int] = []

    def done() -> bool:
        fewest.append(place.status()["replicas"]["ready"])
        return revisions(place) == {revision(place)} and revision(place) != old and len(place.sets()) == 2

    place.patch(model=LONGER)
    until(done, "the rollout ends")
    place.ready(2)
    assert min(fewest) >= 2
    assert place.status()["servingRevision"] == revision(place)


def test_delete_first_where_there_is_no_room_for_a_surge(place: Place, operator_process: Operator) -> None:
    place.service(replicas=2, rollout={"maxSurge": 1, "maxUnavailable": 1})  # two of four GPUs: the node is full
    old = str(place.ready(2)["currentRevision"])
    most: list[int] = []

    def done() -> bool:
        most.append(len(place.sets()))
        return revisions(place) == {revision(place)} and revision(place) != old and len(place.sets()) == 2

    place.patch(model=LONGER)
    until(done, "the rollout ends")
    assert max(most) == 2
    place.ready(2)


def test_no_room_and_nothing_may_be_missing_is_held_with_the_reason(place: Place, operator_process: Operator) -> None:
    place.service(replicas=2, rollout={"maxSurge": 1, "maxUnavailable": 0})
    old = place.ready(2)["currentRevision"]
    place.patch(model=LONGER)
    until(lambda: place.condition("Progressing").get("reason") == "NoSpareGPU", "the rollout is held")
    assert revisions(place) == {old}
    assert place.condition("Progressing")["status"] == "False"
    assert operator_process.metric("shoal_operator_holds", reason="NoSpareGPU") >= 1
    place.patch(rollout={"maxUnavailable": 1})
    all_new(place, old, 2)


def test_edit_in_mid_rollout_goes_on_to_the_newest_and_a_revert_keeps_what_serves(
    place: Place, stage: Stage, operator_process: Operator
) -> None:
    place.add_node()
    place.service(replicas=2)
    first = place.ready(2)["currentRevision"]
    kept = place.set_names()
    stage.held_back.add(place.namespace)  # what starts now never becomes ready
    place.patch(model=LONGER)
    until(lambda: len(place.sets()) == 3, "a surge replica")
    second = revision(place)
    place.patch(model={"contextLength": 16384})
    until(lambda: revision(place) not in (first, second), "a third revision")
    until(lambda: revisions(place) == {first, revision(place)}, "the second is given up")
    assert kept <= place.set_names()
    place.patch(model={"contextLength": 32768})
    until(lambda: place.set_names() == kept, "the revert leaves what served")
    until(lambda: revision(place) == first, "the first revision is the current one again")
    stage.held_back.discard(place.namespace)
    place.ready(2)


def test_replica_goes_only_when_routers_know_and_it_is_empty(place: Place, operator_process: Operator) -> None:
    place.service(replicas=2)
    place.ready(2)
    place.traffic.deaf = True
    place.traffic.in_flight = {name: 3 for name in place.set_names()}
    place.patch(replicas=1)
    until(lambda: len(draining(place)) == 1, "one drains")
    victim = draining(place)[0]["metadata"]["name"]

    def shown() -> bool:
        detail = next(one for one in place.status()["replicaDetails"] if one["name"] == victim)
        return detail["phase"] == "Draining" and detail.get("draining", {}).get("streams") == 3

    until(shown, "status shows what it still does")
    assert victim in place.set_names(), "no router has acknowledged"
    place.traffic.deaf = False
    polls = operator_process.metric("shoal_operator_router_poll_total", result="ok")
    until(lambda: operator_process.metric("shoal_operator_router_poll_total", result="ok") > polls + 4, "more answers")
    assert victim in place.set_names(), "acknowledged, not empty"
    failed = operator_process.metric("shoal_operator_router_poll_total", result="failed")
    place.traffic.dead = True
    # An answer may be on its way: it must not be one that says empty.
    until(
        lambda: operator_process.metric("shoal_operator_router_poll_total", result="failed") > failed + 1, "no answer"
    )
    place.traffic.in_flight = {}
    until(lambda: operator_process.metric("shoal_operator_router_poll_total", result="failed") > failed + 14, "silence")
    assert victim in place.set_names(), "a router that does not answer is not an empty one"
    place.traffic.dead = False
    until(lambda: victim not in place.set_names(), "acknowledged and empty: it goes")
    place.ready(1)


def test_drain_ends_at_its_deadline(place: Place, operator_process: Operator) -> None:
    place.service(replicas=1, rollout={"drainTimeout": "3s"})
    place.ready(1)
    place.traffic.in_flight = {name: 1 for name in place.set_names()}
    place.patch(replicas=0)
    until(lambda: place.sets() == [], "the deadline ends it")
    until(lambda: place.condition("Ready").get("reason") == "ScaledToZero", "nothing is wanted")


def test_demand_that_comes_back_keeps_the_draining_replica(place: Place, operator_process: Operator) -> None:
    place.service(replicas=2)
    place.ready(2)
    kept = place.set_names()
    place.traffic.in_flight = {name: 1 for name in kept}
    place.patch(replicas=1)
    until(lambda: len(draining(place)) == 1, "one drains")
    place.patch(replicas=2)
    until(lambda: draining(place) == [], "it is wanted again")
    place.ready(2)
    assert place.set_names() == kept


@pytest.mark.slow
def test_operator_killed_in_mid_rollout_loses_nothing(
    place: Place, stage: Stage, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """SIGKILL while a replica drains; the next process goes on from the annotation, not from the beginning."""
    folder = tmp_path_factory.mktemp("killed")
    lease = ("--lease-name", f"lease-{place.namespace}", "--watch-namespace", place.namespace)
    place.add_node()
    with operatorprocess.operator(stage.operator_kubeconfig, folder, "same", *lease) as first:
        place.service(replicas=2, rollout={"maxSurge": 1, "maxUnavailable": 0})
        old = place.ready(2)["currentRevision"]
        place.traffic.in_flight = {name: 1 for name in place.set_names()}
        place.patch(model=LONGER)
        until(lambda: len(draining(place)) == 1, "an old one drains")
        since = draining(place)[0]["metadata"]["annotations"][keys.ANNOTATION_DRAIN_SINCE]
        first.process.kill()
        first.process.wait(5)
    with operatorprocess.operator(stage.operator_kubeconfig, folder, "same", *lease) as second:
        until(lambda: second.leading, "the next process leads")
        polls = second.metric("shoal_operator_router_poll_total", result="ok")
        until(lambda: second.metric("shoal_operator_router_poll_total", result="ok") > polls + 2, "it has looked")
        assert [one["metadata"]["annotations"][keys.ANNOTATION_DRAIN_SINCE] for one in draining(place)] == [since]
        place.traffic.in_flight = {}
        all_new(place, old, 2)
