"""Keeps a Pod's status in the API equal to what its worker renders, and removes the object at the end.

Sends only differences, one write at a time, and tries again until the API takes them.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from shoal_local.kube import ERRORS, STRATEGIC, Kube, KubeError

log = logging.getLogger(__name__)

_GATHER_S: Final = 0.02
_RETRY_MAX_S: Final = 2.0
Object = dict[str, Any]


class StatusReporter:
    """One for each Pod; `touch` whenever something may have changed."""

    def __init__(self, kube: Kube, pod: Callable[[], Object], render: Callable[[], Object | None]) -> None:
        self._kube = kube
        self._pod = pod
        self._render = render
        self._dirty = asyncio.Event()
        self._dirty.set()
        self._clean = asyncio.Event()
        self._sent: Object | None = None

    def touch(self) -> None:
        """Asks for a look soon."""
        self._dirty.set()
        self._clean.clear()

    async def settle(self, deadline_s: float) -> None:
        """Waits until the status in the API is true, but not for ever: an API server may be away."""
        try:
            await asyncio.wait_for(self._clean.wait(), deadline_s)
        except TimeoutError:
            log.info("Status of %s could not be written before its deletion", self._pod()["metadata"]["name"])

    async def run(self) -> None:
        """Reports until cancelled."""
        while True:
            await self._dirty.wait()
            await asyncio.sleep(_GATHER_S)  # several containers change at once
            self._dirty.clear()
            await self._send()
            if not self._dirty.is_set():
                self._clean.set()

    async def _send(self) -> None:
        retry_s = 0.1
        while True:
            rendered = self._render()
            if rendered is None or rendered == self._sent:
                return
            meta = self._pod()["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
            # The uid makes this fail where a new Pod has taken the name.
            body = {"metadata": {"uid": meta["uid"]}, "status": rendered}
            try:
                await self._kube.patch(path, body, STRATEGIC)
            except KubeError as error:
                if error.status in (404, 409):
                    return
                log.warning("Status of %s refused: %s", meta["name"], error)
            except ERRORS as error:
                log.debug("Status of %s not sent: %s", meta["name"], error)
            else:
                self._sent = rendered
                return
            await asyncio.sleep(retry_s)
            retry_s = min(_RETRY_MAX_S, retry_s * 2)

    async def delete_object(self) -> None:
        """Removes the Pod from the API, which nobody but its kubelet does."""
        meta = self._pod()["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
        retry_s = 0.1
        while True:
            try:
                await self._kube.delete(path, options)
            except KubeError as error:
                if error.status in (404, 409):
                    return
                log.warning("Pod %s not removed: %s", meta["name"], error)
            except ERRORS as error:
                log.debug("Pod %s not removed: %s", meta["name"], error)
            else:
                return
            await asyncio.sleep(retry_s)
            retry_s = min(_RETRY_MAX_S, retry_s * 2)
