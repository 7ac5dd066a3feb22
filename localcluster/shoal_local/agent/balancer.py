"""Services of type LoadBalancer: each port gets a forwarder on 127.0.0.1 and the Service its address in status.

Pods are found as kube-proxy would: by the Service's selector, Ready and not terminating. The real address is in the
annotation `shoal.dev/local-address`, for the wanted port may be taken on this machine.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from shoal_local.agent.forwarder import Address, Forwarder
from shoal_local.agent.probe_rules import resolve_port
from shoal_local.identity import ADDRESS_ANNOTATION
from shoal_local.kube import ERRORS, Kube, KubeError, watch_forever

log = logging.getLogger(__name__)

Object = dict[str, Any]
HOST: Final = "127.0.0.1"
_PORTS_TRIED: Final = 200
_UNPRIVILEGED: Final = 1024
_RETRY_S: Final = 1.0


def first_port(wanted: int, configured: Mapping[int, int]) -> int:
    """Where the search for a free local port begins; privileged ports move to 8000 + port."""
    start = configured.get(wanted, wanted)
    return start if start >= _UNPRIVILEGED else 8000 + start


def pod_takes_traffic(pod: Mapping[str, Any], selector: Mapping[str, str]) -> bool:
    """Matches, is Ready, has an address and is not terminating."""
    labels = pod["metadata"].get("labels") or {}
    status = pod.get("status") or {}
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or [])
    return (
        ready
        and bool(status.get("podIP"))
        and not pod["metadata"].get("deletionTimestamp")
        and all(labels.get(key) == value for key, value in selector.items())
    )


def targets_of(service: Mapping[str, Any], port: Mapping[str, Any], pods: list[Object]) -> list[Address]:
    """Addresses behind one port of a Service; a Service without selector has none."""
    selector = service["spec"].get("selector") or {}
    found: list[Address] = []
    for pod in pods:
        if not selector or pod["metadata"]["namespace"] != service["metadata"]["namespace"]:
            continue
        if pod_takes_traffic(pod, selector):
            ports = [each for container in pod["spec"]["containers"] for each in container.get("ports") or []]
            try:
                number = resolve_port(port.get("targetPort") or port["port"], ports)
            except ValueError:
                continue
            found.append((pod["status"]["podIP"], number))
    return sorted(found)


class Balancer:
    """Follows Services and Pods; `run` never ends."""

    def __init__(self, kube: Kube, ports: Mapping[int, int]) -> None:
        self._kube = kube
        self._ports = ports
        self._services: dict[str, Object] = {}
        self._pods: dict[str, Object] = {}
        self._forwarders: dict[tuple[str, int], tuple[Forwarder, int]] = {}
        """By Service uid and port: the forwarder and the local port it listens on."""
        self._dirty = asyncio.Event()

    async def run(self) -> None:
        """Keeps forwarders equal to the Services; all are closed at the end."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(watch_forever(self._kube, "/api/v1/services", self._list_services, self._on_service))
                group.create_task(
                    watch_forever(
                        self._kube, "/api/v1/pods", self._list_pods, self._on_pod, fieldSelector="spec.nodeName!="
                    )
                )
                group.create_task(self._reconcile_forever())
        finally:
            for forwarder, _ in self._forwarders.values():
                await forwarder.close()

    def _list_services(self, services: list[Object]) -> None:
        self._services = {each["metadata"]["uid"]: each for each in services}
        self._dirty.set()

    def _on_service(self, kind: str, service: Object) -> None:
        if kind == "DELETED":
            self._services.pop(service["metadata"]["uid"], None)
        else:
            self._services[service["metadata"]["uid"]] = service
        self._dirty.set()

    def _list_pods(self, pods: list[Object]) -> None:
        self._pods = {each["metadata"]["uid"]: each for each in pods}

    def _on_pod(self, kind: str, pod: Object) -> None:
        if kind == "DELETED":
            self._pods.pop(pod["metadata"]["uid"], None)
        else:
            self._pods[pod["metadata"]["uid"]] = pod

    async def _reconcile_forever(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            try:
                await self._reconcile()
            except (OSError, *ERRORS) as error:
                if not (isinstance(error, KubeError) and error.status in (404, 409)):
                    log.warning("Load balancer: %s", error or type(error).__name__)
                await asyncio.sleep(_RETRY_S)
                self._dirty.set()

    async def _reconcile(self) -> None:
        wanted = {uid: each for uid, each in self._services.items() if each["spec"].get("type") == "LoadBalancer"}
        ports = {(uid, int(port["port"])) for uid, each in wanted.items() for port in _tcp_ports(each)}
        for key in [key for key in self._forwarders if key not in ports]:
            forwarder, _ = self._forwarders.pop(key)
            await forwarder.close()
        for uid, service in wanted.items():
            await self._serve(uid, service)

    async def _serve(self, uid: str, service: Object) -> None:
        addresses = []
        for port in _tcp_ports(service):
            number = int(port["port"])
            if (uid, number) not in self._forwarders:
                self._forwarders[uid, number] = await self._open(uid, number, service)
            addresses.append((number, self._forwarders[uid, number][1]))
        await self._publish(service, addresses)

    async def _open(self, uid: str, number: int, service: Object) -> tuple[Forwarder, int]:
        def targets() -> list[Address]:
            current = self._services.get(uid)
            port = next((each for each in _tcp_ports(current or {}) if int(each["port"]) == number), None)
            return [] if current is None or port is None else targets_of(current, port, list(self._pods.values()))

        meta = service["metadata"]
        start = _known_port(service, number) or first_port(number, self._ports)
        for local in range(start, min(start + _PORTS_TRIED, 65536)):
            forwarder = Forwarder(f"{meta['namespace']}/{meta['name']}:{number}", targets)
            try:
                await forwarder.listen(HOST, local)
            except OSError:
                continue
            log.info("Service %s/%s port %s is at %s:%s", meta["namespace"], meta["name"], number, HOST, local)
            return forwarder, local
        raise OSError(f"no free port from {start} on for Service {meta['namespace']}/{meta['name']}")

    async def _publish(self, service: Object, addresses: list[tuple[int, int]]) -> None:
        meta = service["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/services/{meta['name']}"
        written = ",".join(f"{HOST}:{local}" for _, local in addresses)
        if (meta.get("annotations") or {}).get(ADDRESS_ANNOTATION) != written:
            await self._kube.patch(path, {"metadata": {"annotations": {ADDRESS_ANNOTATION: written}}})
        ingress = [{"ip": HOST, "ipMode": "VIP"}]
        shown = (service.get("status") or {}).get("loadBalancer", {}).get("ingress") or []
        if [each.get("ip") for each in shown] != [HOST]:
            await self._kube.patch(f"{path}/status", {"status": {"loadBalancer": {"ingress": ingress}}})


def _tcp_ports(service: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    ports = (service.get("spec") or {}).get("ports") or []
    return [each for each in ports if each.get("protocol", "TCP") == "TCP"]


def _known_port(service: Mapping[str, Any], number: int) -> int | None:
    """The local port an agent before this one had given to a Service port, so that addresses last."""
    written = (service["metadata"].get("annotations") or {}).get(ADDRESS_ANNOTATION, "")
    for port, address in zip(_tcp_ports(service), written.split(","), strict=False):
        if int(port["port"]) == number and address.rpartition(":")[2].isdecimal():
            return int(address.rpartition(":")[2])
    return None
