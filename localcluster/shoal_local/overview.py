"""What `shoal local status|env|logs` print: read from the cluster's folder and its API, never changed."""

import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx

from shoal_local import child, cluster
from shoal_local.controlplane import ControlPlane
from shoal_local.identity import ADDRESS_ANNOTATION

_FOLLOW_POLL_S: Final = 0.2
_TAIL_BYTES_MAX: Final = 4 * 1024**2


def exports(folder: Path, programs: Path) -> str:
    """Shell lines that point kubectl and helm at the cluster."""
    return "\n".join(
        (
            f"export KUBECONFIG={shlex.quote(str(folder / 'kubeconfig'))}",
            f'export PATH={shlex.quote(str(programs))}:"$PATH"',
            # kubectl caches discovery by address, and ports come back
            f"export KUBECACHEDIR={shlex.quote(str(folder / 'kube-cache'))}",
        )
    )


def describe(folder: Path) -> list[str]:
    """Lines for `shoal local status`."""
    state = cluster.read_state(folder)
    if state is None:
        return [f"No local cluster in {folder}; start one with `shoal local up`"]
    lines = [f"Local cluster in {folder}: {state.phase}{f' ({state.message})' if state.message else ''}"]
    for name, pid in state.pids.items():
        again = state.restarts.get(name, 0)
        lines.append(f"  {name:<24} pid {pid}{f', restarted {again} times' if again else ''}")
    if state.phase == "running":
        lines += _describe_objects(folder)
    return lines


def _describe_objects(folder: Path) -> list[str]:
    settings = cluster.ClusterSettings.model_validate_json(cluster.settings_path(folder).read_text())
    control_plane = ControlPlane(folder, settings.binaries)
    state = cluster.read_state(folder)
    control_plane.port = int(state.url.rpartition(":")[2]) if state is not None else 0
    try:
        with control_plane.client() as client:
            nodes = client.get("/api/v1/nodes").json()["items"]
            pods = client.get("/api/v1/pods").json()["items"]
            services = client.get("/api/v1/services").json()["items"]
    except (httpx.HTTPError, KeyError) as error:
        return [f"kube-apiserver does not answer: {error}"]
    return [
        f"API: {control_plane.url}, kubeconfig {folder / 'kubeconfig'}",
        "Nodes:",
        *(f"  {node_line(node, pods)}" for node in nodes),
        "Endpoints:",
        *(endpoint_lines(services) or ["  none yet (Services of type LoadBalancer appear here)"]),
    ]


def node_line(node: dict[str, Any], pods: list[dict[str, Any]]) -> str:
    """`b200-0 Ready, 3 Pods, nvidia.com/gpu 4 of 8`."""
    name = node["metadata"]["name"]
    conditions = node["status"].get("conditions") or []
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    here = [
        pod
        for pod in pods
        if pod["spec"].get("nodeName") == name and pod["status"].get("phase") not in ("Succeeded", "Failed")
    ]
    parts = [f"{name:<16} {'Ready' if ready else 'NotReady'}", f"{len(here)} Pods"]
    for resource, count in (node["status"].get("capacity") or {}).items():
        if resource.endswith("/gpu"):
            parts.append(f"{resource} {sum(_asked(pod, resource) for pod in here)} of {count} in use")
    return ", ".join(parts)


def _asked(pod: dict[str, Any], resource: str) -> int:
    containers = pod["spec"]["containers"]
    return sum(int(((each.get("resources") or {}).get("limits") or {}).get(resource, 0)) for each in containers)


def endpoint_lines(services: list[dict[str, Any]]) -> list[str]:
    """One line for each local address of a Service."""
    lines = []
    for service in services:
        meta = service["metadata"]
        written = (meta.get("annotations") or {}).get(ADDRESS_ANNOTATION, "")
        for port, address in zip(service["spec"].get("ports") or [], written.split(","), strict=False):
            if address:
                lines.append(f"  http://{address}  Service {meta['namespace']}/{meta['name']} port {port['port']}")
    return lines


def log_files(folder: Path) -> list[Path]:
    """Every log: components, running Pods, Pods that have gone."""
    patterns = ("logs/*.log", "agent/pods/*/containers/*/logs/*.log", "agent/logs/pods/*.log")
    return [path for pattern in patterns for path in sorted(folder.glob(pattern))]


def find_logs(paths: list[Path], name: str) -> list[Path]:
    """Logs of a component or Pod, oldest first."""
    exact = [path for path in paths if path.stem == name and path.parent.name == "logs" and path.suffix == ".log"]
    if exact:
        return exact
    pods = [path for path in paths if any(f"_{name}_" in f"_{part}_" for part in path.parts)]
    return sorted(pods, key=lambda path: path.stat().st_mtime)


def last_lines(path: Path, lines: int) -> str:
    """The end of a log."""
    text = child.tail(path, lines, _TAIL_BYTES_MAX) if lines else ""
    return f"{text}\n" if text else ""


def follow(path: Path) -> Iterator[str]:
    """What is added to a log from now on; ends only with the process."""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        while True:
            chunk = file.read(64 * 1024)
            if chunk:
                yield chunk.decode(errors="replace")
            elif file.tell() > path.stat().st_size:
                file.seek(0)
            else:
                time.sleep(_FOLLOW_POLL_S)
