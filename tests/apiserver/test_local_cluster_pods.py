"""Pods on the node agent, seen through the real control plane: what a user of a local cluster relies on."""

import concurrent.futures
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal_local import faults
from shoal_local.identity import ADDRESS_ANNOTATION
from shoal_local.node_agent import NodeAgent
from shoal_testing.apiserver import Tool
from shoal_testing.nodeagent import wait_until
from shoal_testing.pods import POD_IP, Cluster, Object, container, pod, shell

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("local_cluster")]

SERVE = ["python3", "-m", "http.server", "8000", "--bind", "$(POD_IP)", "--directory", "/srv/pages"]


@pytest.fixture
def cluster(kubectl: Tool, namespace: str) -> Cluster:
    return Cluster(kubectl, namespace)


def config_map(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def test_stateful_set_behind_load_balancer(cluster: Cluster) -> None:
    probe = {"httpGet": {"path": "/page", "port": "web"}, "periodSeconds": 1}
    serving = container(
        command=SERVE,
        ports=[{"name": "web", "containerPort": 8000}],
        readinessProbe=probe,
        resources={"limits": {"nvidia.com/gpu": "2"}},
        volumeMounts=[{"name": "pages", "mountPath": "/srv/pages"}],
    )
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "containers": [serving],
            "volumes": [{"name": "pages", "configMap": {"name": "pages"}}],
        },
    }
    workload = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "web"},
        "spec": {
            "serviceName": "web",
            "replicas": 2,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "web"}},
            "template": template,
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 8080, "targetPort": "web"}]},
    }
    cluster.apply(config_map("pages", page="from the config map"), workload, service)
    cluster("rollout", "status", "statefulset/web", "--timeout=40s")
    first, second = cluster.get("pod", "web-0") or {}, cluster.get("pod", "web-1") or {}
    assert first["spec"]["nodeName"] == "b200-0"
    assert first["status"]["podIP"] != second["status"]["podIP"]
    found = cluster.get("service", "web") or {}
    assert found["status"]["loadBalancer"]["ingress"][0]["ip"] == "127.0.0.1"
    url = f"http://{found['metadata']['annotations'][ADDRESS_ANNOTATION]}/page"
    # As with kube-proxy, who forwards hears a moment later than we that Pods are ready.
    wait_until(lambda: answers(url), "the load balancer forwards")
    assert [httpx.get(url, trust_env=False).text for _ in range(6)] == ["from the config map"] * 6
    logs = [cluster("logs", name) for name in ("web-0", "web-1")]
    # probes come from the machine as well; only requests for the Service are spread over both
    assert all("GET /page" in text for text in logs)
    cluster("delete", "statefulset", "web", "--timeout=30s")
    wait_until(lambda: cluster.get("pod", "web-0") is None, "web-0 deleted")


def test_logs_of_this_run_and_the_one_before(cluster: Cluster) -> None:
    cluster.apply(pod("crash", shell("echo one; echo two; echo started at $(date +%N); sleep 0.5; exit 3")))
    wait_until(lambda: cluster.container("crash").get("restartCount", 0) >= 2, "two restarts")
    previous = cluster("logs", "crash", "--previous")
    assert previous.startswith("one\ntwo\nstarted at")
    assert cluster("logs", "crash", "--previous", "--tail=1").startswith("started at")
    seen: list[Object] = []

    def waits() -> bool:
        seen.append(cluster.container("crash"))
        return bool(seen[-1].get("state", {}).get("waiting", {}).get("reason") == "CrashLoopBackOff")

    wait_until(waits, "CrashLoopBackOff")
    last = seen[-1]["lastState"]["terminated"]
    assert (last["exitCode"], last["reason"]) == (3, "Error")
    assert "restarting failed container" in cluster.wait_event("crash", "BackOff")


def empty_dir(cluster: Cluster, local_cluster: NodeAgent, name: str) -> Path:
    """Where the volume `state` of a Pod is on this machine."""
    found = cluster.get("pod", name) or {}
    (folder,) = local_cluster.settings.folder.glob(f"**/pods/*_{found['metadata']['uid']}/volumes/state")
    return folder


def test_logs_follow_ends_with_the_container(cluster: Cluster, local_cluster: NodeAgent) -> None:
    script = (
        "echo line 1; until test -f /state/go; do sleep 0.1; done; sleep 0.2; for i in 2 3 4; do echo line $i; done"
    )
    spec = shell(script, volumeMounts=[{"name": "state", "mountPath": "/state"}])
    cluster.apply(pod("talk", spec, volumes=[{"name": "state", "emptyDir": {}}], restartPolicy="Never"))
    wait_until(lambda: "running" in cluster.container("talk").get("state", {}), "talk runs")
    with concurrent.futures.ThreadPoolExecutor(1) as follower:
        followed = follower.submit(cluster, "logs", "-f", "talk")
        (empty_dir(cluster, local_cluster, "talk") / "go").touch()
        assert followed.result().splitlines() == [f"line {i}" for i in range(1, 5)]
    cluster.wait_phase("talk", "Succeeded")
    assert cluster.container("talk")["state"]["terminated"]["reason"] == "Completed"


def test_liveness_exec_probe_restarts_and_startup_probe_gates(cluster: Cluster, local_cluster: NodeAgent) -> None:
    probe = {"exec": {"command": ["sh", "-c", "test ! -f /state/sick"]}, "periodSeconds": 1, "failureThreshold": 1}
    startup = {"exec": {"command": ["test", "-f", "/state/up"]}, "periodSeconds": 1, "failureThreshold": 60}
    spec = shell(
        "sleep 600",
        livenessProbe=probe,
        startupProbe=startup,
        volumeMounts=[{"name": "state", "mountPath": "/state"}],
    )
    cluster.apply(pod("sick", spec, volumes=[{"name": "state", "emptyDir": {}}], terminationGracePeriodSeconds=1))
    wait_until(lambda: "running" in cluster.container("sick").get("state", {}), "sick runs")
    assert cluster.container("sick")["started"] is False
    folder = empty_dir(cluster, local_cluster, "sick")
    (folder / "up").touch()
    cluster.wait_ready("sick")
    (folder / "sick").touch()
    wait_until(lambda: cluster.container("sick").get("restartCount", 0) >= 1, "restarted by its liveness probe")
    (folder / "sick").unlink()
    assert "failed liveness probe" in cluster.wait_event("sick", "Killing")


def test_pre_stop_and_sigterm_within_grace(cluster: Cluster, local_cluster: NodeAgent) -> None:
    script = "trap 'echo got TERM; sleep 0.2; echo done; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo stopping > /shared/hook"]}}}
    volumes = [{"name": "shared", "hostPath": {"path": str(local_cluster.settings.folder), "type": "Directory"}}]
    cluster.apply(
        pod(
            "polite",
            shell(script, lifecycle=hook, volumeMounts=[{"name": "shared", "mountPath": "/shared"}]),
            volumes=volumes,
        )
    )
    cluster.wait_ready("polite")
    cluster("delete", "pod", "polite", "--timeout=30s")
    assert cluster.get("pod", "polite") is None
    assert (local_cluster.settings.folder / "hook").read_text() == "stopping\n"
    kept = list((local_cluster.settings.folder / "logs" / "pods").glob(f"{cluster.namespace}_polite_*.log"))
    assert kept[0].read_text() == "up\ngot TERM\ndone\n"


def test_deaf_container_is_killed_after_its_grace(cluster: Cluster) -> None:
    cluster.apply(pod("deaf", shell("trap '' TERM; while :; do sleep 0.1; done"), terminationGracePeriodSeconds=1))
    cluster.wait_ready("deaf")
    cluster("delete", "pod", "deaf", "--timeout=30s")
    assert cluster.get("pod", "deaf") is None


def test_second_deletion_may_be_less_patient(cluster: Cluster) -> None:
    cluster.apply(pod("deaf", shell("trap '' TERM; while :; do sleep 0.1; done"), terminationGracePeriodSeconds=300))
    cluster.wait_ready("deaf")
    cluster("delete", "pod", "deaf", "--wait=false")
    cluster("delete", "pod", "deaf", "--grace-period=1", "--timeout=30s")
    assert cluster.get("pod", "deaf") is None


def test_empty_dir_over_its_limit_evicts(cluster: Cluster) -> None:
    volumes = [{"name": "small", "emptyDir": {"medium": "Memory", "sizeLimit": "64Ki"}}]
    mounts = [{"name": "small", "mountPath": "/small"}]
    script = "head -c 200000 /dev/zero > /small/big; exec sleep 600"
    cluster.apply(pod("greedy", shell(script, volumeMounts=mounts), volumes=volumes))
    cluster.wait_phase("greedy", "Failed")
    status = cluster.status("greedy")
    assert (status["reason"], status["message"]) == (
        "Evicted",
        'Usage of EmptyDir volume "small" exceeds the limit "64Ki".',
    )


def test_job_is_tried_until_it_succeeds(cluster: Cluster) -> None:
    mounts = [{"name": "kept", "mountPath": "/kept"}]
    script = "test -f /kept/once && exit 0; touch /kept/once; exit 5"
    template = {
        "spec": {
            "restartPolicy": "OnFailure",
            "containers": [shell(script, volumeMounts=mounts)],
            "volumes": [{"name": "kept", "emptyDir": {}}],
        }
    }
    cluster.apply(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"}, "spec": {"template": template}}
    )
    cluster("wait", "job/work", "--for=condition=Complete", "--timeout=30s")


def test_files_of_volumes_are_at_their_paths_and_follow_changes(cluster: Cluster) -> None:
    projected = {
        "sources": [
            {"configMap": {"name": "settings", "items": [{"key": "a", "path": "conf/a.txt"}]}},
            {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        ]
    }
    script = "cat /etc/shoal/conf/a.txt; echo; cat /etc/shoal/labels; echo; cat /etc/hosts; hostname; sleep 600"
    mounts = [{"name": "all", "mountPath": "/etc/shoal"}, {"name": "scratch", "mountPath": "/scratch"}]
    read = {
        "exec": {"command": ["grep", "-q", "second", "/etc/shoal/conf/a.txt"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
    }
    cluster.apply(
        config_map("settings", a="first"),
        pod(
            "files",
            shell(script, volumeMounts=mounts, readinessProbe=read),
            volumes=[
                {"name": "all", "projected": projected},
                {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
            ],
        ),
    )
    wait_until(lambda: "files" in cluster("logs", "files", check=False).splitlines(), "it has printed its host name")
    text = cluster("logs", "files")
    assert text.startswith('first\napp="files"\n')
    assert f"{cluster.status('files')['podIP']}\tfiles\n" in text
    cluster.apply(config_map("settings", a="second"))
    cluster.wait_ready("files")


def test_service_account_token_works_against_the_api(cluster: Cluster) -> None:
    script = (
        "import json, os, pathlib, ssl, urllib.request as r\n"
        "d = pathlib.Path('/var/run/secrets/kubernetes.io/serviceaccount')\n"
        "u = f\"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}\"\n"
        "b = json.dumps({'apiVersion': 'authentication.k8s.io/v1', 'kind': 'SelfSubjectReview'}).encode()\n"
        "q = r.Request(u + '/apis/authentication.k8s.io/v1/selfsubjectreviews', data=b, headers={\n"
        "  'Authorization': 'Bearer ' + (d / 'token').read_text(), 'Content-Type': 'application/json'})\n"
        "a = r.urlopen(q, context=ssl.create_default_context(cafile=str(d / 'ca.crt')))\n"
        "print(json.load(a)['status']['userInfo']['username'], (d / 'namespace').read_text())\n"
    )
    cluster.apply(pod("who", container(command=["python3", "-c", script]), restartPolicy="Never"))
    cluster.wait_phase("who", "Succeeded")
    assert cluster("logs", "who").split() == [f"system:serviceaccount:{cluster.namespace}:default", cluster.namespace]


def test_environment_with_references_and_expansion(cluster: Cluster) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"token": "s3cret"}}
    env = [
        POD_IP,
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
        {"name": "URL", "value": "http://$(POD_IP):$(PORT)/$(UNKNOWN)/$$(NODE)"},
    ]
    spec = {
        "name": "main",
        "image": "python",
        "command": ["sh", "-c"],
        "args": ["echo $TOKEN $NODE $MEMORY $URL $(PORT)"],
        "env": env,
        "envFrom": [{"configMapRef": {"name": "settings"}}],
        "resources": {"limits": {"memory": "64Mi"}},
    }
    cluster.apply(config_map("settings", PORT="30000"), secret, pod("env", spec, restartPolicy="Never"))
    cluster.wait_phase("env", "Succeeded")
    address = cluster.status("env")["podIP"]
    want = ["s3cret", "cpu-0", "64", f"http://{address}:30000/$(UNKNOWN)/$(NODE)", "30000"]
    assert cluster("logs", "env").split() == want


def test_missing_config_map_is_a_reason_and_heals(cluster: Cluster) -> None:
    spec = shell("sleep 600", envFrom=[{"configMapRef": {"name": "late"}}])
    cluster.apply(pod("waits", spec))
    wait_until(
        lambda: (
            cluster.container("waits").get("state", {}).get("waiting", {}).get("reason") == "CreateContainerConfigError"
        ),
        "CreateContainerConfigError",
    )
    assert "'late' not found" in cluster.container("waits")["state"]["waiting"]["message"]
    cluster.apply(config_map("late", A="1"))
    cluster.wait_ready("waits")


def test_unknown_image_and_missing_program_have_reasons(cluster: Cluster) -> None:
    unknown = {"name": "main", "image": "nowhere/nothing:1"}
    cluster.apply(pod("no-image", unknown), pod("no-program", container(command=["not-there"]), restartPolicy="Never"))
    wait_until(
        lambda: cluster.container("no-image").get("state", {}).get("waiting", {}).get("reason") == "ErrImagePull",
        "ErrImagePull",
    )
    assert "known: python" in cluster.container("no-image")["state"]["waiting"]["message"]
    cluster.wait_phase("no-program", "Failed")
    ended = cluster.container("no-program")["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert "not-there" in ended["message"]


def test_init_containers_run_in_order_before_a_sidecar_and_the_rest(cluster: Cluster) -> None:
    mounts = [{"name": "shared", "mountPath": "/shared"}]

    def step(name: str, script: str, **fields: Any) -> Object:
        return container(name, command=["sh", "-c", script], volumeMounts=mounts, **fields)

    inits = [
        step("one", "sleep 0.3; echo one >> /shared/order"),
        step(
            "helper",
            "echo helper >> /shared/order; touch /shared/helping; sleep 600",
            restartPolicy="Always",
            startupProbe={"exec": {"command": ["test", "-f", "/shared/helping"]}, "periodSeconds": 1},
        ),
        step("two", "echo two >> /shared/order"),
    ]
    main = step("main", "echo main >> /shared/order; cat /shared/order")
    cluster.apply(
        pod("ordered", main, initContainers=inits, volumes=[{"name": "shared", "emptyDir": {}}], restartPolicy="Never")
    )
    cluster.wait_phase("ordered", "Succeeded")
    assert cluster("logs", "ordered", "-c", "main").split() == ["one", "helper", "two", "main"]
    states = {each["name"]: each["state"] for each in cluster.status("ordered")["initContainerStatuses"]}
    assert states["one"]["terminated"]["exitCode"] == 0
    assert "terminated" in states["helper"]


def test_claim_is_a_folder_that_outlives_the_pod(cluster: Cluster) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    mounts = [{"name": "data", "mountPath": "/models"}]
    writer = pod(
        "writer", shell("echo kept > /models/file", volumeMounts=mounts), volumes=volumes, restartPolicy="Never"
    )
    # the storage class is the agent's, and a claim made before it exists would not get it
    wait_until(lambda: "local-folder" in cluster("get", "storageclass", "-o", "name"), "the storage class")
    cluster.apply(claim, writer)
    cluster.wait_phase("writer", "Succeeded")
    cluster("delete", "pod", "writer", "--timeout=30s")
    reader = pod("reader", shell("cat /models/file", volumeMounts=mounts), volumes=volumes, restartPolicy="Never")
    cluster.apply(reader)
    cluster.wait_phase("reader", "Succeeded")
    assert cluster("logs", "reader") == "kept\n"


def test_read_only_root_and_what_cannot_be_given(cluster: Cluster) -> None:
    script = "touch /srv/x 2>/dev/null || echo read-only; touch /scratch/y && echo written"
    spec = shell(
        script,
        volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}],
        securityContext={"readOnlyRootFilesystem": True, "privileged": True},
    )
    cluster.apply(pod("locked", spec, volumes=[{"name": "scratch", "emptyDir": {}}], restartPolicy="Never"))
    cluster.wait_phase("locked", "Succeeded")
    assert cluster("logs", "locked").split() == ["read-only", "written"]
    assert "privileged" in cluster.wait_event("locked", "LocalClusterDiffers")


def test_killed_container_comes_back_in_place(cluster: Cluster, local_cluster: NodeAgent) -> None:
    cluster.apply(pod("victim", shell("echo $$; exec sleep 600")))
    cluster.wait_ready("victim")
    folder = local_cluster.settings.folder.parent
    target = faults.find_container(folder, "victim", cluster.namespace, None)
    faults.send(target, signal.SIGKILL)
    wait_until(lambda: cluster.container("victim").get("restartCount") == 1, "one restart")
    last = cluster.container("victim")["lastState"]["terminated"]
    assert (last["exitCode"], last["signal"]) == (137, 9)
    cluster.wait_ready("victim")


def test_forced_deletion_leaves_no_process(cluster: Cluster, local_cluster: NodeAgent) -> None:
    cluster.apply(pod("forced", shell("trap '' TERM; while :; do sleep 0.1; done")))
    cluster.wait_ready("forced")
    target = faults.find_container(local_cluster.settings.folder.parent, "forced", cluster.namespace, None)
    cluster("delete", "pod", "forced", "--force", "--grace-period=0")
    wait_until(lambda: not Path(f"/proc/{target.pid}").exists(), "the process has gone")


@pytest.mark.slow
def test_agent_restart_takes_pods_up_again(cluster: Cluster, local_cluster: NodeAgent) -> None:
    cluster.apply(pod("lasting", shell("sleep 600")), pod("ended", shell("echo once"), restartPolicy="Never"))
    cluster.wait_ready("lasting")
    cluster.wait_phase("ended", "Succeeded")
    before = cluster.status("lasting")["podIP"]
    local_cluster.stop()
    local_cluster.start()
    wait_until(lambda: cluster.container("lasting").get("restartCount") == 1, "started again")
    cluster.wait_ready("lasting")
    assert cluster.status("lasting")["podIP"] == before
    assert cluster.container("lasting")["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert cluster.container("ended")["restartCount"] == 0
    cluster("delete", "pod", "lasting", "ended", "--timeout=30s")
