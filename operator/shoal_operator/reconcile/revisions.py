"""Revisions as ControllerRevisions: the record from which an old one is rendered again after the spec has moved on.

One object a revision, owned by the ModelService, made before its first replica and kept while replicas of it run; a few
stay longer for `kubectl get controllerrevisions`.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pydantic

from shoal_api import keys
from shoal_operator.domain import revision, values
from shoal_operator.kube import errors, resources
from shoal_operator.kube.client import Client
from shoal_operator.kube.resources import Object
from shoal_operator.reconcile import observe
from shoal_operator.reconcile.outcome import Key
from shoal_operator.render import bundle

log = logging.getLogger(__name__)

KEPT: Final = 5


@dataclass(frozen=True, slots=True)
class Recorded:
    """A revision that can be rendered: the service as it was, and its rendering."""

    service: values.Service
    revision: revision.Revision


class Revisions:
    """Reads once a service and process, then remembers."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[Key, dict[str, Recorded]] = {}

    def forget(self, key: Key) -> None:
        self._known.pop(key, None)

    def forget_all(self) -> None:
        self._known.clear()

    async def known(self, key: Key, owner_uid: str) -> dict[str, Recorded]:
        """Recorded revisions by their short hash."""
        if key not in self._known:
            found = [_read(item) for item in await self._list(key, owner_uid)]
            self._known[key] = {one.revision.short: one for one in found if one is not None}
        return self._known[key]

    async def _list(self, key: Key, owner_uid: str) -> list[Object]:
        """Ours only: StatefulSets have ControllerRevisions too, with copies of our labels and annotations on them."""
        labels = {keys.LABEL_MANAGED_BY: keys.FIELD_MANAGER, keys.LABEL_SERVICE: key.name}
        items = await self._client.list_objects(resources.CONTROLLER_REVISIONS, key.namespace, labels=labels)
        return [item for item in items if observe.owned_by(item, owner_uid)]

    async def record(
        self, key: Key, service: values.Service, current: revision.Revision, owner: values.Owner, *, number: int
    ) -> None:
        """Make sure that the revision is recorded; one that exists is left as it is (its data is immutable)."""
        known = await self.known(key, owner.uid)
        if current.short in known:
            return
        manifest = bundle.render_controller_revision(service, current, number, owner)
        try:
            await self._client.create(resources.CONTROLLER_REVISIONS, manifest)
        except errors.ConflictError:
            log.debug("Revision is recorded already", extra={"key": str(key), "revision": current.short})
        known[current.short] = Recorded(service, current)

    async def prune(self, key: Key, owner_uid: str, live: Iterable[str]) -> None:
        """Delete records of revisions that nothing runs, oldest first, beyond a few."""
        items = await self._list(key, owner_uid)
        keep = set(live)
        idle = [item for item in items if item["metadata"].get("labels", {}).get(keys.LABEL_REVISION) not in keep]
        idle.sort(key=lambda item: int(item.get("revision") or 0), reverse=True)
        for item in idle[KEPT:]:
            await self._client.delete(resources.CONTROLLER_REVISIONS, item)
            self._known.get(key, {}).pop(item["metadata"]["labels"].get(keys.LABEL_REVISION, ""), None)


def _read(item: Object) -> Recorded | None:
    """None for a record of a newer operator's, or of one that somebody has edited."""
    annotations = item["metadata"].get("annotations") or {}
    digest, version = annotations.get(keys.ANNOTATION_REVISION), annotations.get(keys.ANNOTATION_RENDER_VERSION)
    if digest is None or version not in revision.RENDER_VERSIONS:
        return None
    try:
        service = revision.restore(item.get("data") or {})
    except pydantic.ValidationError as error:
        log.warning("Recorded revision is not readable", extra={"name": item["metadata"]["name"], "error": str(error)})
        return None
    return Recorded(service, revision.Revision(digest, version))
