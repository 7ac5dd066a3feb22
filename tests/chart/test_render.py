"""What the chart renders: goldens of the defaults, Kubernetes' own schemas, rights, hardening."""

import os
import tomllib
from collections import defaultdict
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from shoal_api import keys
from shoal_operator import settings
from shoal_operator.kube import access
from shoal_testing import chart
from shoal_testing.apiserver import Tool
from shoal_testing.chart import CHECKOUT, CI_VALUES

pytestmark = pytest.mark.chart

GOLDENS = CHECKOUT / "tests" / "golden" / "chart"
VALUES = [None, *CI_VALUES]

Rights = dict[tuple[str, str], set[str]]


def _named(path: Path | None) -> str:
    return path.name if path else "defaults"


def _rendered(helm: Tool, values: Path | None) -> list[chart.Object]:
    return chart.rendered(helm, *(("--values", values) if values else ()))


def test_defaults_are_the_goldens(helm: Tool) -> None:
    """One small file an object; UPDATE_GOLDEN=1 writes them anew."""
    objects = _rendered(helm, None)
    made = {
        f"{one['kind'].lower()}-{one['metadata']['name']}.yaml": yaml.safe_dump(one, sort_keys=False, width=110)
        for one in objects
    }
    assert len(made) == len(objects)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDENS.mkdir(parents=True, exist_ok=True)
        for stale in set(path.name for path in GOLDENS.iterdir()) - set(made):
            (GOLDENS / stale).unlink()
        for name, text in made.items():
            (GOLDENS / name).write_text(text)
    assert made == {path.name: path.read_text() for path in GOLDENS.iterdir()}


@pytest.mark.parametrize("values", VALUES, ids=_named)
def test_objects_follow_kubernetes_schemas(helm: Tool, values: Path | None) -> None:
    for document in _rendered(helm, values):
        if document["apiVersion"].split("/")[0] not in (keys.GROUP, "monitoring.coreos.com"):
            kubernetes_validate.validate(document, "1.37.0", strict=True)


@pytest.mark.parametrize("values", VALUES, ids=_named)
def test_every_object_says_whose_it_is(helm: Tool, values: Path | None) -> None:
    for document in _rendered(helm, values):
        labels = document["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "shoal"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        cluster_scoped = document["kind"].startswith("Cluster")
        assert ("namespace" in document["metadata"]) is not cluster_scoped


def _granted(rules: list[chart.Object]) -> Rights:
    rights: Rights = defaultdict(set)
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                rights[group, resource] |= set(rule["verbs"])
    return dict(rights)


def _used(wanted: tuple[access.Access, ...]) -> Rights:
    rights: Rights = defaultdict(set)
    for one in wanted:
        rights[one.group, one.resource] |= set(one.verbs)
    return dict(rights)


def test_rights_are_the_verbs_that_the_operator_uses(helm: Tool) -> None:
    objects = _rendered(helm, None)
    assert _granted(chart.one(objects, "ClusterRole", "shoal-operator")["rules"]) == _used(access.ACCESS)
    assert _granted(chart.one(objects, "Role")["rules"]) == _used(access.LEASE_ACCESS)


def test_rights_in_one_namespace_are_the_same_together(helm: Tool) -> None:
    objects = chart.rendered(helm, "--set", "watchNamespace=team-a")
    wide = _granted(chart.one(objects, "ClusterRole", "shoal-operator")["rules"])
    fleet = chart.one(objects, "Role", "shoal-operator-fleet")
    assert fleet["metadata"]["namespace"] == "team-a"
    narrow = _granted(fleet["rules"])
    assert not set(wide) & set(narrow)
    assert {**wide, **narrow} == _used(access.ACCESS)
    assert {group for group, _ in wide} == {"", "shoal.dev", "apiextensions.k8s.io"}
    assert ("", "pods") in narrow


def test_no_right_is_a_wildcard(helm: Tool) -> None:
    for document in _rendered(helm, None):
        for rule in document.get("rules", ()):
            assert "*" not in rule["apiGroups"] + rule["resources"] + rule["verbs"]


@pytest.mark.parametrize("values", VALUES, ids=_named)
def test_operator_takes_its_arguments(helm: Tool, values: Path | None) -> None:
    """The command line is one that the operator's own parser takes, and ports and names agree with it."""
    pod = chart.one(_rendered(helm, values), "Deployment")["spec"]["template"]["spec"]
    container = pod["containers"][0]
    environment = {one["name"]: one.get("value", f"<{one['name']}>") for one in container["env"]}
    arguments = [argument.replace("$(POD_IP)", "127.1.2.3") for argument in container["args"]]
    parsed = settings.parse(arguments, environment)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert parsed.host == "127.1.2.3"
    assert (parsed.metrics_port, parsed.health_port) == (ports["metrics"], ports["health"])
    assert parsed.identity == "<POD_NAME>"
    assert parsed.namespace == "<POD_NAMESPACE>"
    assert parsed.router_image.startswith(("shoal/router:", "registry.example.com/ml/shoal-router@sha256:"))
    lease = chart.one(_rendered(helm, values), "Lease")
    assert lease["metadata"]["name"] == parsed.lease_name


def test_one_operator_has_no_disruption_budget(helm: Tool) -> None:
    """With one replica the budget would hold up every node drain."""
    kinds = [document["kind"] for document in chart.rendered(helm, "--set", "operator.replicas=1")]
    assert "PodDisruptionBudget" not in kinds


POD_MANIFESTS = {
    "shoal-routers": "router/deployment-shoal-router-default.yaml",
    "shoal-engines": "quickstart/statefulset-*.yaml",
}


@pytest.mark.parametrize("name", POD_MANIFESTS)
def test_pod_monitors_find_what_the_operator_renders(helm: Tool, name: str) -> None:
    """Against the operator's own goldens: labels, port names, and labels that become labels of the series."""
    monitor = chart.one(chart.rendered(helm, "--set", "metrics.podMonitor.enabled=true"), "PodMonitor", name)["spec"]
    [manifest] = (CHECKOUT / "tests" / "golden" / "manifests").glob(POD_MANIFESTS[name])
    pod = yaml.safe_load(manifest.read_text())["spec"]["template"]
    labels = pod["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert set(monitor["podTargetLabels"]) <= set(labels)
    ports = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
    assert {endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]} <= ports


def test_version_is_the_packages(helm: Tool) -> None:
    version = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["version"]
    described = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())
    assert (described["version"], described["appVersion"]) == (version, version)
