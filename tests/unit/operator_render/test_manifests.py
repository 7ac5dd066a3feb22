"""Manifests: golden files, strict schema validation, and what every rendering must hold."""

import copy
import json
from typing import Any

import kubernetes_validate
import pytest
import yaml

from shoal_api import keys, routes
from shoal_api.router import RouterSpec
from shoal_operator.domain import revision, values
from shoal_operator.render import bundle, engine, meta, router
from shoal_testing import services
from shoal_testing.golden import Golden

KUBERNETES = "1.33"
ROUTER_OWNER = values.Owner("shoal.dev/v1alpha1", "Router", "default", "5f6f9a3e-0000-4000-8000-000000000002")
ROUTER_SPEC = RouterSpec.model_validate({"resources": {"requests": {"cpu": "1", "memory": "512Mi"}}})
TABLE = routes.RouteTable(generation="0123", services=(routes.Service(name="m", served_name="tiny-llama"),))


def of_service(case: str) -> list[dict[str, Any]]:
    service = services.service(case)
    current = revision.current(service, None, None)
    return bundle.render_all(service, current, list(enumerate(service.profiles)), services.OWNER)


def of_router() -> list[dict[str, Any]]:
    made = router.render_router("default", "team", ROUTER_SPEC, "shoal/router:dev", ROUTER_OWNER)
    return [*made, router.render_route_table("default", "team", TABLE, ROUTER_OWNER)]


def manifests_of(case: str) -> list[dict[str, Any]]:
    return of_router() if case == "router" else of_service(case)


def as_files(manifests: list[dict[str, Any]]) -> dict[str, str]:
    return {
        f"{one['kind'].lower()}-{one['metadata']['name']}.yaml": yaml.safe_dump(one, sort_keys=False, width=120)
        for one in manifests
    }


@pytest.mark.parametrize("case", ["quickstart", "kimi-nvfp4", "llama-pvc", "router"])
def test_manifests_are_the_golden_ones(golden: Golden, case: str) -> None:
    golden.check_folder(f"manifests/{case}", as_files(manifests_of(case)))


@pytest.mark.parametrize("case", [*services.CASES, "router"])
def test_manifests_are_valid_kubernetes_objects(case: str) -> None:
    for manifest in manifests_of(case):
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_controller_revision_restores_its_service() -> None:
    for case in services.CASES:
        service = services.service(case)
        current = revision.current(service, None, None)
        manifest = bundle.render_controller_revision(service, current, 3, services.OWNER)
        restored = revision.restore(json.loads(json.dumps(manifest["data"])))
        assert restored == service
        assert engine.render_replica(restored, current, 0, restored.profiles[0]) == engine.render_replica(
            service, current, 0, service.profiles[0]
        )


@pytest.mark.parametrize("case", [*services.CASES, "router"])
def test_every_object_has_its_owner_and_label(case: str) -> None:
    for manifest in manifests_of(case):
        metadata = manifest["metadata"]
        assert metadata["namespace"] == "team"
        assert metadata["labels"][keys.LABEL_MANAGED_BY] == "shoal"
        (owner,) = metadata["ownerReferences"]
        assert owner["controller"] is True
        # Needs rights on the owner's finalizers where the API enforces permissions on owner references.
        assert "blockOwnerDeletion" not in owner


@pytest.mark.parametrize("case", services.CASES)
def test_labels_are_short_enough(case: str) -> None:
    service = services.service(case, name="a" * 63)
    current = revision.current(service, None, None)
    for manifest in bundle.render_all(service, current, [(99999, service.profiles[0])]):
        assert all(len(value) <= 63 for value in manifest["metadata"]["labels"].values())


def test_rendering_shares_nothing_between_calls_or_objects() -> None:
    for case in (*services.CASES, "router"):
        first, second = manifests_of(case), manifests_of(case)
        want = copy.deepcopy(second)
        for manifest in first:
            manifest["metadata"]["labels"]["changed"] = "yes"
            manifest["metadata"]["ownerReferences"].clear()
        assert second == want
        labelled = [one["metadata"] for one in second]
        labelled[0]["labels"]["changed"] = "yes"
        assert all("changed" not in one["labels"] for one in labelled[1:])


def test_unknown_render_version_is_refused() -> None:
    service = services.service("quickstart")
    with pytest.raises(ValueError, match="render version '9'"):
        engine.render_replica(service, revision.Revision("0" * 64, "9"), 0, service.profiles[0])


def test_engine_pod_is_safe_to_drain() -> None:
    """No probe may kill a draining engine, and the grace period covers the drain budget."""
    stateful_set = of_service("quickstart")[-1]
    pod = stateful_set["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert "tcpSocket" in container["livenessProbe"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert pod["terminationGracePeriodSeconds"] == 1830
    assert stateful_set["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert stateful_set["spec"]["podManagementPolicy"] == "Parallel"


def test_engine_that_failed_its_probes_goes_before_its_drain_budget_is_over() -> None:
    (container,) = of_service("quickstart")[-1]["spec"]["template"]["spec"]["containers"]
    for probe in ("startupProbe", "livenessProbe"):
        assert container[probe]["terminationGracePeriodSeconds"] == engine.FAILED_GRACE_S
    assert "terminationGracePeriodSeconds" not in container["readinessProbe"]


@pytest.mark.parametrize(
    ("version", "path"),
    [
        ("0.5.23", "/ready"),
        ("0.5.24rc1", "/ready"),
        ("0.10.0", "/ready"),
        ("0.5.17", "/health"),
        ("0.4.6.post5", "/health"),
    ],
)
def test_readiness_is_asked_where_the_engine_version_answers(version: str, path: str) -> None:
    service = services.service("quickstart", engine={"version": version, "unchecked": True})
    (_, stateful_set) = engine.render_replica(
        service, revision.current(service, None, None), 0, service.profiles[0], services.OWNER
    )
    (container,) = stateful_set["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == container["startupProbe"]["httpGet"]["path"] == path


@pytest.mark.parametrize("case", ["quickstart", "router"])
def test_budget_does_not_keep_what_does_not_serve(case: str) -> None:
    (budget,) = [one for one in manifests_of(case) if one["kind"] == "PodDisruptionBudget"]
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_startup_budget_follows_the_weights() -> None:
    big, small = services.service("kimi-nvfp4"), services.service("quickstart")
    assert engine.startup_budget_s(big, big.profiles[0]) > 2000
    assert engine.startup_budget_s(small, small.profiles[0]) < 1000


def test_weights_of_claims_and_nodes_are_mounted_read_only() -> None:
    pod = of_service("llama-pvc")[-1]["spec"]["template"]["spec"]
    assert {"name": "model", "persistentVolumeClaim": {"claimName": "weights", "readOnly": True}} in pod["volumes"]
    mounts = {one["name"]: one for one in pod["containers"][0]["volumeMounts"]}
    assert mounts["model"] == {"name": "model", "mountPath": "/models", "readOnly": True}
    pod = of_service("quickstart")[-1]["spec"]["template"]["spec"]
    mounts = {one["name"]: one for one in pod["containers"][0]["volumeMounts"]}
    assert mounts["model"]["mountPath"] == "/models/tiny-llama"


def test_tolerations_and_selector_come_from_the_pool() -> None:
    pod = of_service("llama-pvc")[-1]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "H200"}
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


def test_router_pod_is_restricted() -> None:
    deployment = next(one for one in of_router() if one["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert "runAsUser" not in pod["securityContext"], "OpenShift refuses an id that is not the namespace's"
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["args"] == [
        *("--router", "default", "--namespace", "team", "--host", "$(POD_IP)"),
        *("--port", "8080", "--admin-port", "8081", "--grace-s", "1770"),
    ]
    assert pod["terminationGracePeriodSeconds"] > 1770, "the router ends its streams itself, before the kubelet does"


@pytest.mark.parametrize(
    ("kind", "want"), [("ClusterIP", "ClientIP"), ("NodePort", "ClientIP"), ("LoadBalancer", None)]
)
def test_clients_keep_to_one_router_where_the_service_can_do_that(kind: str, want: str | None) -> None:
    spec = RouterSpec.model_validate({"serviceType": kind})
    made = router.render_router("default", "team", spec, "shoal/router:1")
    service = next(one for one in made if one["kind"] == "Service")
    assert service["spec"].get("sessionAffinity") == want


def test_router_may_read_pods_and_its_own_table_only() -> None:
    role = next(one for one in of_router() if one["kind"] == "Role")
    assert {tuple(rule["resources"]) for rule in role["rules"]} == {("pods",), ("configmaps",)}
    assert role["rules"][1]["resourceNames"] == ["default-routes"]
    assert all(rule["verbs"] == ["get", "list", "watch"] for rule in role["rules"])


def test_route_table_reads_back() -> None:
    manifest = of_router()[-1]
    assert manifest["metadata"]["name"] == "default-routes"
    assert routes.RouteTable.model_validate_json(manifest["data"]["routes.json"]) == TABLE


def test_selectors_find_what_is_labelled() -> None:
    service = services.service("quickstart")
    assert meta.service_selector(service.name) == "shoal.dev/service=m"
    budget, headless, stateful_set = of_service("quickstart")[:3]
    labels = stateful_set["spec"]["template"]["metadata"]["labels"]
    for selector in (
        budget["spec"]["selector"]["matchLabels"],
        headless["spec"]["selector"],
        stateful_set["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()


@pytest.mark.parametrize(
    ("ingress", "want"),
    [
        ([], None),
        ([{}], None),
        ([{"ip": "203.0.113.7"}], "http://203.0.113.7:8080"),
        ([{"ip": "2001:db8::1"}], "http://[2001:db8::1]:8080"),
        ([{"hostname": "lb.example.com", "ip": "203.0.113.7"}], "http://lb.example.com:8080"),
    ],
)
def test_address_of_a_load_balancer_is_one_that_users_reach(ingress: list[dict[str, str]], want: str | None) -> None:
    assert router.balancer_url({"status": {"loadBalancer": {"ingress": ingress}}}) == want
    assert router.balancer_url({}) is None
