"""Kubernetes Events about our objects: one on each edge, with the reason of the condition that changed."""

import datetime
import logging
import uuid

from shoal_operator.kube import errors, resources
from shoal_operator.kube.client import Client
from shoal_operator.kube.resources import Object

log = logging.getLogger(__name__)

MESSAGE_CHARS_MAX = 1000


class Recorder:
    def __init__(self, client: Client, *, instance: str) -> None:
        self._client = client
        self._instance = instance

    async def record(self, about: Object, *, reason: str, message: str, warning: bool) -> None:
        """Post one Event. A lost Event is logged and forgotten: the condition says the same."""
        meta = about["metadata"]
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        namespace = meta.get("namespace") or "default"  # where Events about cluster-scoped objects live
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name']}.{uuid.uuid4().hex[:16]}", "namespace": namespace},
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "name": meta["name"],
                "namespace": meta.get("namespace", ""),
                "uid": meta["uid"],
            },
            "reason": reason,
            "message": message[:MESSAGE_CHARS_MAX],
            "type": "Warning" if warning else "Normal",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": {"component": "shoal-operator"},
            "reportingComponent": "shoal.dev/operator",
            "reportingInstance": self._instance,
        }
        try:
            await self._client.create(resources.EVENTS, event)
        except errors.NotLeadingError:
            raise
        except errors.KubeError as error:
            if "being terminated" in error.message:
                return  # nobody reads Events of a namespace that goes
            log.warning("Event not posted", extra={"reason": reason, "error": str(error)})
