"""The control plane by itself: it is a real Kubernetes, and kube-apiserver can go and come back."""

import json

import pytest

from shoal_local.controlplane import ControlPlane
from shoal_testing.apiserver import Tool

pytestmark = pytest.mark.apiserver


def test_version_is_a_release(kubectl: Tool) -> None:
    said = json.loads(kubectl("version", "-o", "json").stdout)
    assert said["serverVersion"]["gitVersion"] == "v1.37.2"


def test_helm_sees_the_cluster(helm: Tool, namespace: str) -> None:
    assert json.loads(helm("list", "-n", namespace, "-o", "json").stdout) == []


def test_apiserver_restart_keeps_objects(control_plane: ControlPlane, kubectl: Tool, namespace: str) -> None:
    kubectl("create", "configmap", "kept", "-n", namespace, "--from-literal=a=b")
    control_plane.stop_apiserver()
    try:
        assert kubectl("get", "namespaces", check=False).returncode != 0
    finally:
        control_plane.start_apiserver()
    assert kubectl("get", "configmap", "kept", "-n", namespace, "-o", "jsonpath={.data.a}").stdout == "b"


def test_apiserver_alone_answers(api_kubectl: Tool) -> None:
    assert "default" in api_kubectl("get", "namespaces", "-o", "name").stdout
