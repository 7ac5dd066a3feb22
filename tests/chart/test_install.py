"""The chart on a real cluster: installed under restricted Pod Security, upgraded, and gone without a trace."""

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml

from shoal_api import crd
from shoal_testing import objects
from shoal_testing.apiserver import Tool
from shoal_testing.chart import CHART, CHECKOUT

pytestmark = pytest.mark.chart

LISTED = (
    "all,configmaps,secrets,serviceaccounts,roles,rolebindings,poddisruptionbudgets,leases,"
    "routers.shoal.dev,modelservices.shoal.dev,draftmodels.shoal.dev"
)
KUBERNETES_OWN = {"configmap/kube-root-ca.crt", "serviceaccount/default"}


@dataclass(frozen=True)
class Site:
    """One release in a namespace of its own, under restricted Pod Security."""

    helm: Tool
    kubectl: Tool
    namespace: str

    @property
    def release(self) -> str:
        return self.namespace

    def install(self, *arguments: str) -> str:
        return self.helm("install", self.release, CHART, "-n", self.namespace, *arguments).stdout

    def left(self) -> set[str]:
        """Everything in the namespace, and what is cluster-wide of the release."""
        selector = f"app.kubernetes.io/instance={self.release}"
        inside = self.kubectl("get", LISTED, "-n", self.namespace, "-o", "name").stdout.split()
        outside = self.kubectl("get", "clusterroles,clusterrolebindings", "-l", selector, "-o", "name").stdout.split()
        return {*inside, *outside} - KUBERNETES_OWN

    def hold_lease(self) -> str:
        """Write the Lease as the leading operator does."""
        lease = f"lease/{self.release}-operator"
        patch = json.dumps({"spec": {"holderIdentity": "operator-1", "leaseDurationSeconds": 15}})
        self.kubectl("patch", lease, "-n", self.namespace, "--type=merge", "-p", patch)
        return lease

    def wait_for(self, what: str, condition: str, deadline_s: float = 20.0) -> None:
        """Wait until `kubectl get` of something with a JSONPath says what is wanted."""
        path, want = condition.split("=")
        ends = time.monotonic() + deadline_s
        while True:
            said = self.kubectl("get", what, "-n", self.namespace, "-o", f"jsonpath={path}", check=False).stdout
            if said == want:
                return
            assert time.monotonic() < ends, f"{what} {path} is {said!r}, not {want!r}"
            time.sleep(0.1)


@pytest.fixture
def site(helm: Tool, kubectl: Tool) -> Iterator[Site]:
    name = f"shoal-{uuid.uuid4().hex[:6]}"
    kubectl("create", "namespace", name)
    kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    try:
        yield Site(helm, kubectl, name)
    finally:
        helm("uninstall", name, "-n", name, "--ignore-not-found", check=False)
        kubectl("delete", "namespace", name, "--wait=false", check=False)


def test_install_makes_operator_and_default_router(site: Site) -> None:
    notes = site.install()
    assert f"http://shoal-router-default.{site.namespace}.svc:8080" in notes
    for kind in crd.KINDS:
        established = site.kubectl("get", "crd", kind.name, "-o", "json").stdout
        assert json.loads(established)["spec"]["names"]["kind"] == kind.kind
    assert (
        site.kubectl("get", "router", "default", "-n", site.namespace, "-o", "jsonpath={.spec.replicas}").stdout == "2"
    )


def test_pods_are_admitted_under_restricted_pod_security(site: Site) -> None:
    site.install()
    deployment = f"deployment/{site.release}-operator"
    site.wait_for(deployment, "{.status.unavailableReplicas}=2")
    pods = site.kubectl("get", "pods", "-n", site.namespace, "-o", "name").stdout.split()
    assert len(pods) == 2


def test_pods_would_be_refused_without_hardening(site: Site) -> None:
    """The namespace does enforce: the test above would fail for a Pod that asks for too much."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "plain", "namespace": site.namespace},
        "spec": {"containers": [{"name": "plain", "image": "plain"}]},
    }
    done = site.kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod), check=False)
    assert "violates PodSecurity" in done.stderr


def test_router_pods_are_admitted_under_restricted_pod_security(site: Site) -> None:
    """What the operator makes of the default Router, from its own golden."""
    manifest = CHECKOUT / "tests" / "golden" / "manifests" / "router" / "deployment-shoal-router-default.yaml"
    template = yaml.safe_load(manifest.read_text())["spec"]["template"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": "router", "namespace": site.namespace},
        "spec": {**template["spec"], "serviceAccountName": "default"},
    }
    site.wait_for("serviceaccount/default", "{.metadata.name}=default")
    site.kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod))


def test_uninstall_leaves_nothing(site: Site) -> None:
    site.install()
    # As a running operator leaves it: the Lease held, and objects that belong to the Router.
    lease = {"spec": {"holderIdentity": "operator-1", "leaseDurationSeconds": 15}}
    site.kubectl(
        "patch", "lease", f"{site.release}-operator", "-n", site.namespace, "--type=merge", "-p", json.dumps(lease)
    )
    router = json.loads(site.kubectl("get", "router", "default", "-n", site.namespace, "-o", "json").stdout)
    owned = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "default-routes",
            "namespace": site.namespace,
            "ownerReferences": [
                {
                    **{key: router[key] for key in ("apiVersion", "kind")},
                    **{key: router["metadata"][key] for key in ("name", "uid")},
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
    }
    site.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(owned))
    site.helm("uninstall", site.release, "-n", site.namespace)
    # The garbage collector looks for new kinds every 30 s, and only then knows whose the ConfigMap is.
    ends = time.monotonic() + 60
    while site.left():
        assert time.monotonic() < ends, site.left()
        time.sleep(0.1)


def test_uninstall_keeps_model_services(site: Site) -> None:
    site.install()
    service = objects.smallest("ModelService", "coder", site.namespace)
    site.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(service))
    site.helm("uninstall", site.release, "-n", site.namespace)
    assert site.kubectl("get", "modelservices", "-n", site.namespace, "-o", "name").stdout.split() == [
        "modelservice.shoal.dev/coder"
    ]
    site.kubectl("delete", "modelservice", "coder", "-n", site.namespace, "--timeout=10s")


def test_upgrade_keeps_the_lease_holder(site: Site) -> None:
    site.install()
    lease = site.hold_lease()
    site.helm("upgrade", site.release, CHART, "-n", site.namespace, "--set", "operator.logLevel=DEBUG")
    held = site.kubectl("get", lease, "-n", site.namespace, "-o", "jsonpath={.spec.holderIdentity}").stdout
    assert held == "operator-1"


def test_upgrade_on_other_crds_is_refused_with_the_command_that_helps(site: Site) -> None:
    site.install()
    site.kubectl("annotate", "crd", "routers.shoal.dev", f"{crd.SCHEMA_HASH}=old", "--overwrite")
    try:
        done = site.helm("upgrade", site.release, CHART, "-n", site.namespace, check=False)
        assert done.returncode != 0
        assert "routers.shoal.dev in the cluster is another version's" in done.stderr
    finally:
        shown = site.helm("show", "crds", CHART).stdout
        site.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=shown)
    site.helm("upgrade", site.release, CHART, "-n", site.namespace)


def test_every_option_installs(site: Site) -> None:
    """Admission, quota and strict decoding of the whole: the render tests cannot see those."""
    done = site.helm(
        "install",
        site.release,
        CHART,
        "-n",
        site.namespace,
        "--dry-run=server",
        "--values",
        CHART / "ci" / "everything-values.yaml",
        "--set",
        "metrics.podMonitor.enabled=false",
    )
    assert "sessionHeaders" in done.stdout
