"""Registers the nodes and keeps them Ready: a Lease renewed every few seconds, as a kubelet does."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any, Final

from shoal_local import clock, nodes
from shoal_local.kube import ERRORS, STRATEGIC, Kube, KubeError
from shoal_local.nodes import NodeSpec

log = logging.getLogger(__name__)

_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_LEASE_S: Final = 40
_STATUS_EVERY: Final = 30
"""The whole status goes once in so many Lease periods, as from a kubelet (every 5 minutes)."""


class NodeKeeper:
    """Keeps one node."""

    def __init__(
        self, kube: Kube, spec: NodeSpec, address: str, port: int, version: str, lease_period_s: float
    ) -> None:
        self._kube = kube
        self._spec = spec
        self._address = address
        self._port = port
        self._version = version
        self._lease_period_s = lease_period_s
        self.registered = asyncio.Event()
        """Set once the node has been Ready for the first time."""

    async def run(self) -> None:
        """Registers, then renews for ever; an API server that is away is waited for."""
        registered = 0
        while True:
            period_s = self._lease_period_s
            try:
                if registered % _STATUS_EVERY == 0:
                    await self._register()
                await self._renew()
                registered += 1
                self.registered.set()
            except ERRORS as error:
                log.warning("Node %s: %s", self._spec.name, error or type(error).__name__)
                registered, period_s = 0, 0.5
            await asyncio.sleep(period_s)

    async def _register(self) -> None:
        node = nodes.render_node(self._spec)
        path = f"/api/v1/nodes/{self._spec.name}"
        try:
            # Labels of the file are set on every start; taints only once, for controllers add and remove their own.
            labels: Mapping[str, Any] = node["metadata"]["labels"]
            await self._kube.patch(path, {"metadata": {"labels": dict(labels)}})
        except KubeError as error:
            if error.status != 404:
                raise
            with contextlib.suppress(KubeError):
                await self._kube.create("/api/v1/nodes", node)
        now = clock.now()
        status = nodes.render_node_status(self._spec, self._address, self._port, self._version, now)
        known = (await self._kube.get(path)).get("status") or {}
        before = {(each["type"], each["status"]): each["lastTransitionTime"] for each in known.get("conditions") or []}
        for condition in status["conditions"]:
            condition["lastTransitionTime"] = before.get((condition["type"], condition["status"])) or now
        await self._kube.patch(f"{path}/status", {"status": status}, STRATEGIC)

    async def _renew(self) -> None:
        name = self._spec.name
        renewed = {"holderIdentity": name, "leaseDurationSeconds": _LEASE_S, "renewTime": clock.now_micro()}
        try:
            await self._kube.patch(f"{_LEASES}/{name}", {"spec": renewed})
        except KubeError as error:
            if error.status != 404:
                raise
            await self._kube.create(_LEASES, {"metadata": {"name": name}, "spec": renewed})
