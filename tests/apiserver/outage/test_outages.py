"""Parts of a cluster that go and come back: kube-apiserver, and the node agent."""

import signal

import pytest

from shoal_local import faults
from shoal_local.controlplane import ControlPlane
from shoal_local.node_agent import NodeAgent
from shoal_testing.apiserver import Tool
from shoal_testing.nodeagent import wait_until
from shoal_testing.pods import Cluster, pod, shell

pytestmark = [pytest.mark.apiserver, pytest.mark.slow, pytest.mark.timeout(120)]


def test_apiserver_restart_keeps_objects(control_plane: ControlPlane, kubectl: Tool, namespace: str) -> None:
    kubectl("create", "configmap", "kept", "-n", namespace, "--from-literal=a=b")
    control_plane.stop_apiserver()
    try:
        assert kubectl("get", "namespaces", check=False).returncode != 0
    finally:
        control_plane.start_apiserver()
    assert kubectl("get", "configmap", "kept", "-n", namespace, "-o", "jsonpath={.data.a}").stdout == "b"


@pytest.fixture
def cluster(kubectl: Tool, namespace: str) -> Cluster:
    return Cluster(kubectl, namespace)


def test_silent_agent_makes_nodes_not_ready(cluster: Cluster, local_cluster: NodeAgent) -> None:
    def ready() -> set[str]:
        text = cluster("get", "nodes", "-o", 'jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}')
        return set(text.split())

    wait_until(lambda: ready() == {"True"}, "nodes Ready")
    local_cluster.stop()
    try:
        wait_until(lambda: ready() == {"Unknown"}, "nodes not Ready", timeout_s=60.0)
    finally:
        local_cluster.start()
    wait_until(lambda: ready() == {"True"}, "nodes Ready again")


def test_pods_go_on_while_the_api_server_is_away(
    cluster: Cluster, local_cluster: NodeAgent, control_plane: ControlPlane
) -> None:
    cluster.apply(pod("alone", shell("exec sleep 600")), pod("leaving", shell("exec sleep 600")))
    cluster.wait_ready("alone")
    cluster.wait_ready("leaving")
    folder = local_cluster.settings.folder.parent
    target = faults.find_container(folder, "alone", cluster.namespace, None)
    control_plane.stop_apiserver()
    try:
        faults.send(target, signal.SIGKILL)

        def restarted() -> bool:
            running = [each for each in faults.running_containers(folder) if each.namespace == cluster.namespace]
            return any(each.pod == "alone" and each.pid != target.pid for each in running)

        wait_until(restarted, "restarted without an API server")
    finally:
        control_plane.start_apiserver()
    wait_until(lambda: cluster.container("alone").get("restartCount") == 1, "the restart is reported")
    cluster.wait_ready("alone")
    cluster("delete", "pod", "leaving", "--timeout=30s")
