"""Events on Pods, Services and claims, as a kubelet writes them; repeats raise the count of the first one.

Sending never blocks or fails a Pod: events go through a bounded queue, and what does not fit is dropped and logged.
"""

import asyncio
import collections
import logging
import uuid
from dataclasses import dataclass
from typing import Any, Final, Literal

from shoal_local import clock
from shoal_local.kube import ERRORS, Kube, KubeError

log = logging.getLogger(__name__)

_QUEUE_MAX: Final = 1000
_REMEMBERED_MAX: Final = 2000
_MESSAGE_CHARS_MAX: Final = 1000

Kind = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class _Event:
    subject: tuple[tuple[str, str], ...]
    namespace: str
    kind: Kind
    reason: str
    message: str


def reference(subject: dict[str, Any], kind: str, field_path: str | None = None) -> dict[str, str]:
    """An involvedObject."""
    meta = subject["metadata"]
    made = {"apiVersion": "v1", "kind": kind, "name": meta["name"], "uid": meta["uid"]}
    if "namespace" in meta:
        made["namespace"] = meta["namespace"]
    return made | ({"fieldPath": field_path} if field_path else {})


class Recorder:
    """Takes events from anywhere in the agent; `run` sends them."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._queue: asyncio.Queue[_Event] = asyncio.Queue(_QUEUE_MAX)
        self._sent: collections.OrderedDict[_Event, tuple[str, int]] = collections.OrderedDict()

    def record(self, subject: dict[str, str], kind: Kind, reason: str, message: str) -> None:
        """Notes an event on the object that `reference` names."""
        namespace = subject.get("namespace", "default")
        event = _Event(tuple(sorted(subject.items())), namespace, kind, reason, message[:_MESSAGE_CHARS_MAX])
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            log.warning("Event dropped, too many are waiting: %s %s", reason, message)

    async def run(self) -> None:
        """Sends for ever."""
        while True:
            event = await self._queue.get()
            try:
                await self._send(event)
            except ERRORS as error:
                log.info("Event not sent: %s %s: %s", event.reason, event.message, error)

    async def _send(self, event: _Event) -> None:
        path = f"/api/v1/namespaces/{event.namespace}/events"
        known = self._sent.get(event)
        if known is not None:
            name, count = known[0], known[1] + 1
            try:
                await self._kube.patch(f"{path}/{name}", {"count": count, "lastTimestamp": clock.now()})
            except KubeError as error:
                if error.status != 404:  # events expire after an hour
                    raise
            else:
                self._remember(event, name, count)
                return
        subject = dict(event.subject)
        name = f"{subject['name']}.{uuid.uuid4().hex[:16]}"
        now = clock.now()
        body = {
            "metadata": {"name": name, "namespace": event.namespace},
            "involvedObject": subject,
            "type": event.kind,
            "reason": event.reason,
            "message": event.message,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": "shoal-local"},
            "reportingComponent": "shoal-local",
        }
        await self._kube.create(path, body)
        self._remember(event, name, 1)

    def _remember(self, event: _Event, name: str, count: int) -> None:
        self._sent[event] = (name, count)
        self._sent.move_to_end(event)
        while len(self._sent) > _REMEMBERED_MAX:
            self._sent.popitem(last=False)
