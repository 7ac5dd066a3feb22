"""From an applied ModelService to what Kubernetes runs: created, refused, scaled, deleted."""

import pytest

from shoal_api import keys
from shoal_api.routes import RouteTable
from shoal_testing import markdown
from shoal_testing.apiserver import Tool
from shoal_testing.cluster import until
from shoal_testing.operatorprocess import Operator
from shoal_testing.stage import Place

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240), pytest.mark.usefixtures("operator_process")]


def test_service_becomes_replicas_that_it_owns(place: Place) -> None:
    created = place.service(replicas=2)
    place.ready(2)
    for one in place.sets():
        assert one["spec"]["replicas"] == 1
        owner = one["metadata"]["ownerReferences"][0]
        assert (owner["uid"], owner["controller"]) == (created["metadata"]["uid"], True)
        assert "finalizers" not in one["metadata"]
        service = place.cluster.get("Service", one["metadata"]["name"], place.namespace)
        assert service is not None
        assert service["metadata"]["ownerReferences"][0]["uid"] == one["metadata"]["uid"]
    item = place.cluster.get("ModelService", "m", place.namespace)
    assert item is not None
    assert "finalizers" not in item["metadata"]
    assert not item["metadata"].get("annotations")
    status = item["status"]
    assert status["url"] == f"http://shoal-router-default.{place.namespace}.svc:8080"
    assert {one["phase"] for one in status["replicaDetails"]} == {"Ready"}
    conditions = {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}
    assert conditions["Accepted"] == ("True", "Accepted")
    assert conditions["Ready"] == ("True", "Available")
    assert {one["observedGeneration"] for one in status["conditions"]} == {item["metadata"]["generation"]}


def test_router_gets_processes_rights_and_the_route_table(place: Place) -> None:
    place.service(replicas=1)
    place.ready(1)
    stored = place.cluster.get("ConfigMap", keys.routes_config_map("default"), place.namespace)
    assert stored is not None
    table = RouteTable.model_validate_json(stored["data"][keys.ROUTES_KEY])
    assert [(one.name, one.served_name) for one in table.services] == [("m", "model-m")]
    assert table.services[0].revision == place.status()["currentRevision"]
    name = "shoal-router-default"
    for kind in ("Deployment", "Service", "ServiceAccount", "Role", "RoleBinding", "PodDisruptionBudget"):
        assert place.cluster.get(kind, name, place.namespace) is not None, kind

    def router_ready() -> bool:
        router = place.cluster.get("Router", "default", place.namespace)
        assert router is not None
        status = router.get("status", {})
        return status.get("replicas", {}).get("summary") == "1/1" and status.get("models") == ["model-m"]

    until(router_ready, "the Router reports its processes and models")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"hardware": [{"gpu": "GPU-nobody-has", "gpusPerReplica": 4}]}, "GPUPoolMissing"),
        ({"router": "nowhere"}, "RouterMissing"),
        ({"speculative": {"draftModel": "none"}}, "DraftModelMissing"),
        ({"engine": {"version": "0.1.0"}}, "EngineVersionUnsupported"),
        ({"engine": {"args": {"no-such-flag": 1}}}, "EngineArgsInvalid"),
    ],
)
def test_refused_spec_creates_nothing_and_says_why(
    place: Place, stage: object, kubectl: Tool, change: dict[str, object], reason: str
) -> None:
    place.service(**change)
    until(lambda: place.condition("Accepted").get("status") == "False", "the spec is refused")
    assert place.condition("Accepted")["reason"] == reason
    assert place.condition("Accepted")["message"]
    assert place.sets() == []
    shown = kubectl("get", "msvc", "m", "-n", place.namespace).stdout
    assert reason in shown

    def told() -> bool:
        return any(one["reason"] == reason for one in place.cluster.list("Event", place.namespace))

    until(told, "an Event tells the reason")


def test_service_without_room_is_held_with_the_reason_and_takes_nothing(place: Place) -> None:
    place.service(hardware=[{"gpu": place.gpu, "gpusPerReplica": 8}], replicas=1)
    place.ready(1)
    place.service("other", replicas=1)
    until(lambda: place.condition("Ready", "other").get("reason") == "NoSpareGPU", "the second is held")
    assert len(place.sets()) == 1
    hold = place.status("other")["rollout"]["hold"]
    assert hold["gate"] == "NoSpareGPU"
    place.add_node()
    place.ready(1, "other")


def test_younger_service_with_a_taken_name_is_refused_until_the_name_is_free(place: Place) -> None:
    place.service("first", replicas=0)
    until(lambda: place.condition("Accepted", "first").get("status") == "True", "the first is accepted")
    model = {"source": "file:///models/tiny", "servedName": "another", "aliases": ["model-first"]}
    place.service("second", replicas=0, model=model)
    until(lambda: place.condition("Accepted", "second").get("reason") == "NameConflict", "the second is refused")
    assert place.condition("Accepted", "first")["status"] == "True"
    place.cluster.delete("ModelService", "first", place.namespace)
    until(lambda: place.condition("Accepted", "second").get("status") == "True", "the name is free again")


def test_scale_subresource_moves_the_count_and_is_refused_where_scaling_owns_it(place: Place, kubectl: Tool) -> None:
    place.service(replicas=1)
    place.ready(1)
    kubectl("scale", "msvc/m", "--replicas=2", "-n", place.namespace)
    place.ready(2)
    kubectl("scale", "msvc/m", "--replicas=1", "-n", place.namespace)
    place.ready(1)
    until(lambda: len(place.sets()) == 1, "one StatefulSet is left")
    place.service("auto", scaling={"min": 1, "max": 1})
    refused = kubectl("scale", "msvc/auto", "--replicas=2", "-n", place.namespace, check=False)
    assert refused.returncode != 0
    assert "scaling" in refused.stderr


def test_slices_go_off_by_the_page_s_own_command_and_nothing_moves(place: Place, kubectl: Tool) -> None:
    place.service(replicas=1)
    revision = place.ready(1)["currentRevision"]

    def stands() -> list[tuple[str, int]]:
        return [(one["metadata"]["uid"], one["metadata"]["generation"]) for one in place.sets()]

    def told() -> str:
        stored = place.cluster.get("ConfigMap", keys.routes_config_map("default"), place.namespace)
        assert stored is not None
        return RouteTable.model_validate_json(stored["data"][keys.ROUTES_KEY]).services[0].slicing

    def seen() -> bool:
        item = place.cluster.get("ModelService", "m", place.namespace)
        assert item is not None
        return bool(item["status"]["observedGeneration"] == item["metadata"]["generation"])

    before = stands()
    assert told() == "Auto"
    page = [one.words for one in markdown.commands() if one.where.startswith("docs/operations.md:")]
    command = next(words for words in page if words[:2] == ("kubectl", "patch") and "slicing" in words[-1])
    kubectl(*({"NAME": "m", "NAMESPACE": place.namespace}.get(word, word) for word in command[1:]))
    until(lambda: told() == "Off", "routers are told")
    until(seen, "the operator has looked at the change")
    assert stands() == before
    assert place.ready(1)["currentRevision"] == revision


def test_deleted_service_leaves_nothing(place: Place) -> None:
    place.service(replicas=2)
    place.ready(2)
    place.cluster.delete("ModelService", "m", place.namespace)

    def gone() -> bool:
        labels = f"{keys.LABEL_SERVICE}=m"
        kinds = ("StatefulSet", "Service", "Pod", "ControllerRevision", "PodDisruptionBudget")
        return not any(place.cluster.list(kind, place.namespace, labels) for kind in kinds)

    until(gone, "garbage collection takes everything")

    def unrouted() -> bool:
        stored = place.cluster.get("ConfigMap", keys.routes_config_map("default"), place.namespace)
        assert stored is not None
        return not RouteTable.model_validate_json(stored["data"][keys.ROUTES_KEY]).services

    until(unrouted, "the route table forgets it")


def test_label_of_another_manager_stays_and_a_changed_field_of_ours_comes_back(
    place: Place, kubectl: Tool, operator_process: Operator
) -> None:
    place.service(replicas=1)
    place.ready(1)
    name = next(iter(place.set_names()))
    kubectl("label", "statefulset", name, "team=blue", "-n", place.namespace)
    before = operator_process.metric("shoal_operator_apply_conflicts_total", kind="StatefulSet")
    kubectl("patch", "statefulset", name, "-n", place.namespace, "--type=merge", "-p", '{"spec": {"replicas": 0}}')

    def restored() -> bool:
        item = place.cluster.get("StatefulSet", name, place.namespace)
        assert item is not None
        return bool(item["spec"]["replicas"] == 1)

    until(restored, "the replica count is ours")
    item = place.cluster.get("StatefulSet", name, place.namespace)
    assert item is not None
    assert item["metadata"]["labels"]["team"] == "blue"
    assert operator_process.metric("shoal_operator_apply_conflicts_total", kind="StatefulSet") > before
    place.ready(1)


def test_quiet_service_costs_no_writes(place: Place, operator_process: Operator) -> None:
    place.service(replicas=1)
    place.ready(1)
    seen = [operator_process.metric("shoal_operator_writes_total")]

    def still() -> bool:
        seen.append(operator_process.metric("shoal_operator_writes_total"))
        return len(seen) > 20 and seen[-1] == seen[-20]

    until(still, "two seconds pass without a write")
