"""Which keys an event concerns. Pure bookkeeping over what watches said last; a wrong entry costs one useless look.

An event about anything only ever becomes keys. Events that change nothing a reconciler reads (a status of our own, a
Pod's probe time) are told from others by a fingerprint and dropped. Events of a listing (a watch that began anew) are
never dropped, because objects may have gone unseen while nobody watched.
"""

from collections.abc import Hashable
from typing import Any, Final

from shoal_api import keys
from shoal_operator.kube import resources
from shoal_operator.kube.resources import Object, Resource
from shoal_operator.reconcile import gpus, observe
from shoal_operator.reconcile.outcome import Key

OWN_KINDS: Final = (resources.MODEL_SERVICES, resources.ROUTERS, resources.DRAFT_MODELS, resources.GPU_POOLS)
_BY_KIND: Final = {resource.kind: resource for resource in resources.ALL}


def resource_of(kind: str) -> Resource:
    return _BY_KIND[kind]


def key_of(item: Object) -> Key:
    meta = item["metadata"]
    return Key(item["kind"], meta.get("namespace") or "", meta["name"])


class Index:
    def __init__(self) -> None:
        self._seen: dict[str, Hashable] = {}
        self._services: dict[Key, tuple[str, str | None, frozenset[str]]] = {}
        self._known: dict[str, set[Key]] = {resource.kind: set() for resource in OWN_KINDS}

    def clear(self) -> None:
        """Before everything is listed anew."""
        self._seen.clear()
        self._services.clear()
        for known in self._known.values():
            known.clear()

    def known(self, kind: str) -> frozenset[Key]:
        """Keys of one of our kinds."""
        return frozenset(self._known[kind])

    def changed(self, item: Object, event: str | None) -> bool:
        """Whether the event says something new. `event` None: from a listing."""
        uid = item["metadata"]["uid"]
        if event == "DELETED":
            self._seen.pop(uid, None)
            return True
        fingerprint = _fingerprint(item)
        same = self._seen.get(uid) == fingerprint
        self._seen[uid] = fingerprint
        return event is None or not same

    def note(self, item: Object, event: str | None) -> None:
        """Remember one of our own kinds, and what it refers to."""
        key = key_of(item)
        if key.kind not in self._known:
            return
        if event == "DELETED":
            self._known[key.kind].discard(key)
            self._services.pop(key, None)
            return
        self._known[key.kind].add(key)
        if key.kind == resources.MODEL_SERVICES.kind:
            self._services[key] = _references(item.get("spec") or {})

    def concerned(self, item: Object) -> set[Key]:
        """Keys to look at because of this object."""
        key = key_of(item)
        match key.kind:
            case resources.MODEL_SERVICES.kind:
                router = _references(item.get("spec") or {})[0]
                return {key, Key(resources.ROUTERS.kind, key.namespace, router)} | self._drafts_of(key)
            case resources.ROUTERS.kind:
                return {key} | self._services_where(key.namespace, router=key.name)
            case resources.DRAFT_MODELS.kind:
                return {key} | self._services_where(key.namespace, draft=key.name)
            case resources.GPU_POOLS.kind:
                gpu = str((item.get("spec") or {}).get("gpu", ""))
                return {key} | self._services_where(None, gpu=gpu)
            case resources.NODES.kind:
                return set(self._known[resources.GPU_POOLS.kind])
            case _:
                return self._owners(item, key.namespace)

    def _owners(self, item: Object, namespace: str) -> set[Key]:
        """Engines belong to their ModelService, although they name their Router too."""
        labels = observe.labels_of(item)
        if service := labels.get(keys.LABEL_SERVICE):
            return {Key(resources.MODEL_SERVICES.kind, namespace, service)}
        if router := labels.get(keys.LABEL_ROUTER):
            return {Key(resources.ROUTERS.kind, namespace, router)}
        return set()

    def _drafts_of(self, key: Key) -> set[Key]:
        draft = self._services.get(key, ("", None, frozenset()))[1]
        return {Key(resources.DRAFT_MODELS.kind, key.namespace, draft)} if draft else set()

    def _services_where(
        self, namespace: str | None, *, router: str | None = None, draft: str | None = None, gpu: str | None = None
    ) -> set[Key]:
        return {
            key
            for key, (its_router, its_draft, its_gpus) in self._services.items()
            if (namespace is None or key.namespace == namespace)
            and (router is None or its_router == router)
            and (draft is None or its_draft == draft)
            and (gpu is None or gpu in its_gpus)
        }


def _references(spec: dict[str, Any]) -> tuple[str, str | None, frozenset[str]]:
    speculative = spec.get("speculative") or {}
    hardware = spec.get("hardware") or []
    gpu_types = frozenset(str(entry.get("gpu")) for entry in hardware)
    return str(spec.get("router") or "default"), speculative.get("draftModel"), gpu_types


def _fingerprint(item: Object) -> Hashable:
    meta = item["metadata"]
    match item["kind"]:
        case resources.PODS.kind:
            if observe.labels_of(item).get(keys.LABEL_COMPONENT) == "router":
                status = item.get("status") or {}
                return status.get("phase"), status.get("podIP"), "deletionTimestamp" in meta
            return observe.pod_of(item)
        case resources.NODES.kind:
            node = gpus.node_of(item)
            return node.ready, frozenset(node.labels.items()), frozenset(node.total.items())
        case resources.DEPLOYMENTS.kind:
            status = item.get("status") or {}
            return meta.get("generation"), status.get("readyReplicas"), status.get("updatedReplicas")
        case resources.CONFIG_MAPS.kind:
            return str(meta["resourceVersion"])
        case _:
            annotations = {
                key: value for key, value in (meta.get("annotations") or {}).items() if key in _OUR_ANNOTATIONS
            }
            return meta.get("generation"), "deletionTimestamp" in meta, frozenset(annotations.items())


_OUR_ANNOTATIONS: Final = frozenset({keys.ANNOTATION_DRAIN_SINCE, keys.ANNOTATION_REVISION})
