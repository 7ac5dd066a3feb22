"""The control plane by itself: it is a real Kubernetes."""

import json

import pytest

from shoal_testing.apiserver import Tool

pytestmark = pytest.mark.apiserver


def test_version_is_a_release(kubectl: Tool) -> None:
    said = json.loads(kubectl("version", "-o", "json").stdout)
    assert said["serverVersion"]["gitVersion"] == "v1.37.2"


def test_helm_sees_the_cluster(helm: Tool, namespace: str) -> None:
    assert json.loads(helm("list", "-n", namespace, "-o", "json").stdout) == []


def test_apiserver_alone_answers(api_kubectl: Tool) -> None:
    assert "default" in api_kubectl("get", "namespaces", "-o", "name").stdout
