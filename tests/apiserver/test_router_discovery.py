"""The router finds engines and its route table on the real kube-apiserver, and needs it no more once it has."""

import base64
import contextlib
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shoal_api import keys
from shoal_local.controlplane import ControlPlane
from shoal_testing import rawhttp
from shoal_testing.apiserver import Tool
from shoal_testing.routers import RunningRouter, router_process, service
from shoal_testing.scripted_engine import Call, ScriptedEngine, chat_event, scripted_engine

pytestmark = [pytest.mark.apiserver, pytest.mark.wire]

_CHAT = "/v1/chat/completions"


def _script(call: Call) -> None:
    call.events(chat_event("a"))


def _ask(one: RunningRouter) -> int:
    body = json.dumps({"model": "tiny-llama", "messages": [{"role": "user", "content": "Hi"}], "stream": True}).encode()
    return rawhttp.exchange(one.host, one.port, rawhttp.post(_CHAT, body), wait_close=False).status


class Namespace:
    """A namespace with what the operator would write into it."""

    def __init__(self, kubectl: Tool) -> None:
        self.name = f"test-{uuid.uuid4().hex[:8]}"
        self._kubectl = kubectl
        kubectl("create", "namespace", self.name)
        # No controller runs here to make it.
        self.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})

    def __call__(self, *arguments: str, **options: Any) -> str:
        return self._kubectl("-n", self.name, *arguments, **options).stdout

    def apply(self, manifest: dict[str, Any]) -> None:
        self("apply", "-f", "-", stdin=json.dumps(manifest))

    def write_table(self, generation: str, **fields: Any) -> None:
        table = {"generation": generation, "services": [service(**fields)]}
        metadata = {"name": keys.routes_config_map("r")}
        data = {keys.ROUTES_KEY: json.dumps(table)}
        self.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})

    def add_pod(self, name: str, engine: ScriptedEngine, ready: bool = True) -> None:
        labels = {
            keys.LABEL_SERVICE: "svc",
            keys.LABEL_REPLICA: name,
            keys.LABEL_GPU: "B200",
            keys.LABEL_REVISION: "r1",
        }
        port = int(engine.url.rpartition(":")[2])
        container = {
            "name": keys.ENGINE_CONTAINER,
            "image": "engine",
            "ports": [{"name": "http", "containerPort": port}],
        }
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"{name}-0", "labels": labels},
                "spec": {"containers": [container], "automountServiceAccountToken": False},
            }
        )
        self.set_ready(name, ready)

    def set_ready(self, name: str, ready: bool) -> None:
        status = {
            "phase": "Running",
            "podIP": "127.0.0.1",
            "podIPs": [{"ip": "127.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        }
        self("patch", "pod", f"{name}-0", "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))

    def delete_pod(self, name: str) -> None:
        self("delete", "pod", f"{name}-0", "--force", "--grace-period=0")


@pytest.fixture
def place(api_kubectl: Tool) -> Namespace:
    return Namespace(api_kubectl)


@contextlib.contextmanager
def _router(place: Namespace, folder: Path, *args: str, env: dict[str, str] | None = None) -> Iterator[RunningRouter]:
    names = ("--router", "r", "--namespace", place.name)
    with router_process(folder, "127.0.0.1", *names, *args, env=env) as one:
        yield one


def _kubeconfig(api_server: ControlPlane) -> tuple[str, str]:
    return "--kubeconfig", str(api_server.kubeconfig)


def test_pods_and_route_table_are_followed(place: Namespace, api_server: ControlPlane, tmp_path: Path) -> None:
    with scripted_engine(_script) as a, scripted_engine(_script) as b:
        place.add_pod("a", a)
        with _router(place, tmp_path, *_kubeconfig(api_server)) as one:
            one.wait(lambda it: "no route table" in it.log.read_text())
            assert one.get("/readyz")[0] == 503
            place.write_table("g1")
            one.wait(lambda it: it.get("/readyz")[0] == 200)
            one.wait_routable("a")
            (replica,) = one.service_state()["replicas"]
            assert (replica["gpu"], replica["revision"], replica["url"]) == ("B200", "r1", a.url)
            assert _ask(one) == 200

            place.add_pod("b", b, ready=False)
            one.wait(lambda it: it.states().get("b") == "NotReady")
            place.set_ready("b", True)
            one.wait_routable("b")

            place.write_table("g2", draining=["a"])
            one.wait(lambda it: it.state()["routes_generation"] == "g2")
            assert one.states() == {"a": "Draining", "b": "Routable"}

            place("delete", "configmap", keys.routes_config_map("r"))
            place.delete_pod("a")
            one.wait(lambda it: it.states() == {"b": "Routable"})
            assert _ask(one) == 200


def test_terminating_pod_gets_nothing_new(place: Namespace, api_server: ControlPlane, tmp_path: Path) -> None:
    with scripted_engine(_script) as a:
        place.write_table("g1")
        place.add_pod("a", a)
        with _router(place, tmp_path, *_kubeconfig(api_server)) as one:
            one.wait_routable("a")
            # A finalizer keeps the Pod in the state that a long grace period gives it on a node.
            place("patch", "pod", "a-0", "--type=merge", "-p", '{"metadata":{"finalizers":["shoal.dev/test"]}}')
            place("delete", "pod", "a-0", "--wait=false", "--force", "--grace-period=0")
            one.wait(lambda it: it.states() == {"a": "Draining"})
            place("patch", "pod", "a-0", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
            one.wait(lambda it: it.states() == {})


def test_another_pod_of_the_same_name_is_another_engine(
    place: Namespace, api_server: ControlPlane, tmp_path: Path
) -> None:
    with scripted_engine(_script) as a, scripted_engine(_script) as successor:
        place.write_table("g1")
        place.add_pod("a", a)
        with _router(place, tmp_path, *_kubeconfig(api_server)) as one:
            one.wait_routable("a")
            before = one.service_state()["replicas"][0]["uid"]
            assert _ask(one) == 200
            place.delete_pod("a")
            place.add_pod("a", successor)
            one.wait(lambda it: it.states() == {"a": "Routable"} and it.service_state()["replicas"][0]["uid"] != before)
            assert _ask(one) == 200
            assert len(successor.requests) == 1


def test_traffic_goes_on_without_kube_apiserver(place: Namespace, api_server: ControlPlane, tmp_path: Path) -> None:
    with scripted_engine(_script) as a, scripted_engine(_script) as b:
        place.write_table("g1")
        place.add_pod("a", a)
        with _router(place, tmp_path, *_kubeconfig(api_server)) as one:
            one.wait_routable("a")
            api_server.stop_apiserver()
            try:
                one.wait(lambda it: "kube-apiserver cannot be read" in it.log.read_text())
                assert all(_ask(one) == 200 for _ in range(20))
                assert one.get("/readyz")[0] == 200
                assert one.state()["routes_generation"] == "g1"
            finally:
                api_server.start_apiserver()
            place.add_pod("b", b)
            one.wait(lambda it: it.states() == {"a": "Routable", "b": "Routable"}, 20)
            assert _ask(one) == 200


def test_service_account_with_the_least_rights_and_a_token_that_is_replaced(
    place: Namespace, api_server: ControlPlane, tmp_path: Path
) -> None:
    place.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "router"}})
    verbs = ["get", "list", "watch"]
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": verbs},
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [keys.routes_config_map("r")],
            "verbs": verbs,
        },
    ]
    group = "rbac.authorization.k8s.io"
    place.apply({"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "router"}, "rules": rules})
    place.apply(
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "router"},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "router"},
            "subjects": [{"kind": "ServiceAccount", "name": "router", "namespace": place.name}],
        }
    )
    config = yaml.safe_load(api_server.kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    account = tmp_path / "account"
    account.mkdir()
    (account / "ca.crt").write_bytes(_authority(cluster, api_server.kubeconfig))
    (account / "token").write_text("not yet a token")
    host, _, port = cluster["server"].removeprefix("https://").partition(":")
    env = {
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
        "SHOAL_VOLUME_VAR_RUN_SECRETS_KUBERNETES_IO_SERVICEACCOUNT": str(account),
    }
    with scripted_engine(_script) as a:
        place.write_table("g1")
        place.add_pod("a", a)
        with _router(place, tmp_path, env=env) as one:
            one.wait(lambda it: "401" in it.log.read_text())
            (account / "token").write_text(place("create", "token", "router"))
            one.wait_routable("a")
            assert _ask(one) == 200


def _authority(cluster: dict[str, str], kubeconfig: Path) -> bytes:
    if "certificate-authority-data" in cluster:
        return base64.b64decode(cluster["certificate-authority-data"])
    return (kubeconfig.parent / cluster["certificate-authority"]).read_bytes()


def test_watches_are_renewed_without_a_gap(place: Namespace, api_server: ControlPlane, tmp_path: Path) -> None:
    """Many changes in a row, some while the list is read: the router ends with the last of them."""
    with scripted_engine(_script) as a:
        place.write_table("g0")
        with _router(place, tmp_path, *_kubeconfig(api_server)) as one:
            for number in range(1, 8):
                place.write_table(f"g{number}")
            place.add_pod("a", a)
            one.wait(lambda it: it.state()["routes_generation"] == "g7")
            one.wait_routable("a")
