"""From objects as the API gives them to the values that decisions are made from. Pure; no client here.

What is missing in an object becomes None, never a guess: a Pod without conditions is not ready, and its age is unknown.
"""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from shoal_api import keys
from shoal_operator.kube.resources import Object
from shoal_operator.kube.routers import RouterPod

_FAILING_WAITS: Final = frozenset(
    {
        "CrashLoopBackOff",
        "ImagePullBackOff",
        "ErrImagePull",
        "ErrImageNeverPull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
"""Reasons of a waiting container that do not pass by waiting."""
RESTARTS_FAILING: Final = 3
"""So many restarts without once being ready are a failure too, even between two back-offs."""


@dataclass(frozen=True, slots=True)
class Termination:
    """How a container ended."""

    reason: str
    exit_code: int | None
    message: str
    at: str

    def __str__(self) -> str:
        code = "" if self.exit_code is None else f"exit {self.exit_code}"
        return " ".join(part for part in (code, self.reason if self.reason != "Error" else "") if part)


@dataclass(frozen=True, slots=True)
class EnginePod:
    """The Pod of one replica group."""

    name: str
    uid: str
    replica: str
    node: str | None
    ip: str | None
    ready: bool
    started: bool
    """Its start-up probe has passed in the present life of the container."""
    restarts: int
    terminating: bool
    unschedulable: str | None
    """The scheduler's own words, where it found no node."""
    created_at_s: float | None
    scheduled_at_s: float | None
    ready_at_s: float | None
    waiting: str | None
    last_end: Termination | None

    @property
    def failing(self) -> str | None:
        """Why its container keeps dying; None while it does not."""
        if self.waiting in _FAILING_WAITS:
            return self.waiting if self.last_end is None else f"{self.waiting}: {self.last_end}"
        if not self.ready and self.restarts >= RESTARTS_FAILING and self.last_end is not None:
            return f"{self.restarts} restarts: {self.last_end}"
        return None


@dataclass(frozen=True, slots=True)
class Group:
    """One replica group: a StatefulSet, and its Pod where there is one."""

    name: str
    uid: str
    number: int
    revision: str
    revision_hash: str
    render_version: str
    gpu: str
    created_at_s: float
    drain_since_s: float | None
    deleting: bool
    manifest: Object
    pod: EnginePod | None = None


def time_s(text: str | None) -> float | None:
    """Unix seconds of an RFC 3339 time; None for none, and for what is not one."""
    if not text:
        return None
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def rfc3339(at_s: float) -> str:
    """RFC 3339 in UTC, whole seconds, as Kubernetes writes it."""
    return datetime.datetime.fromtimestamp(at_s, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def labels_of(item: Object) -> dict[str, str]:
    return item.get("metadata", {}).get("labels") or {}


def owned_by(item: Object, uid: str) -> bool:
    """Whether the object's controller is the one with this uid."""
    references: list[Object] = item.get("metadata", {}).get("ownerReferences") or []
    return any(reference.get("uid") == uid and reference.get("controller") for reference in references)


def pod_of(item: Object) -> EnginePod:
    meta, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or []}
    container = _engine_status(status)
    ready = conditions.get("Ready", {})
    scheduled = conditions.get("PodScheduled", {})
    unschedulable = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    return EnginePod(
        name=meta["name"],
        uid=meta["uid"],
        replica=labels_of(item).get(keys.LABEL_REPLICA, ""),
        node=spec.get("nodeName"),
        ip=status.get("podIP"),
        ready=ready.get("status") == "True",
        started=bool(container.get("started")),
        restarts=int(container.get("restartCount") or 0),
        terminating="deletionTimestamp" in meta,
        unschedulable=str(scheduled.get("message") or "no node fits") if unschedulable else None,
        created_at_s=time_s(meta.get("creationTimestamp")),
        scheduled_at_s=time_s(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else None,
        ready_at_s=time_s(ready.get("lastTransitionTime")) if ready.get("status") == "True" else None,
        waiting=((container.get("state") or {}).get("waiting") or {}).get("reason"),
        last_end=_last_end(container),
    )


def _engine_status(status: Object) -> dict[str, Any]:
    for one in status.get("containerStatuses") or []:
        if one.get("name") == keys.ENGINE_CONTAINER:
            return dict(one)
    return {}


def _last_end(container: dict[str, Any]) -> Termination | None:
    for state in (container.get("state") or {}, container.get("lastState") or {}):
        ended = state.get("terminated")
        if ended is not None:
            return Termination(
                reason=str(ended.get("reason") or ""),
                exit_code=ended.get("exitCode"),
                message=str(ended.get("message") or "")[-2000:].strip(),
                at=str(ended.get("finishedAt") or ""),
            )
    return None


def group_of(item: Object) -> Group | None:
    """None for a StatefulSet that is not one of ours (its name or labels do not say what it is)."""
    meta = item["metadata"]
    labels, annotations = labels_of(item), meta.get("annotations") or {}
    number = meta["name"].rpartition("-")[2]
    revision = labels.get(keys.LABEL_REVISION)
    if not number.isdecimal() or revision is None:
        return None
    return Group(
        name=meta["name"],
        uid=meta["uid"],
        number=int(number),
        revision=revision,
        revision_hash=annotations.get(keys.ANNOTATION_REVISION, revision),
        render_version=annotations.get(keys.ANNOTATION_RENDER_VERSION, ""),
        gpu=labels.get(keys.LABEL_GPU, ""),
        created_at_s=time_s(meta.get("creationTimestamp")) or 0.0,
        drain_since_s=time_s(annotations.get(keys.ANNOTATION_DRAIN_SINCE)),
        deleting="deletionTimestamp" in meta,
        manifest=item,
    )


def groups_of(sets: Iterable[Object], pods: Iterable[Object], owner_uid: str) -> tuple[Group, ...]:
    """The replica groups of one ModelService, each with its Pod: of two of one name, the one that is not going."""
    by_replica: dict[str, EnginePod] = {}
    for pod in map(pod_of, pods):
        known = by_replica.get(pod.replica)
        if known is None or known.terminating:
            by_replica[pod.replica] = pod
    found = []
    for item in sets:
        group = group_of(item) if owned_by(item, owner_uid) else None
        if group is not None:
            found.append(_with_pod(group, by_replica.get(group.name)))
    return tuple(sorted(found, key=lambda one: (one.revision, one.number)))


def lingering(pods: Iterable[Object], groups: Iterable[Group]) -> frozenset[tuple[str, int]]:
    """(revision, number) of Pods that are there though their StatefulSet is not: a new one of that name would have to
    wait for their end."""
    known = {group.name for group in groups}
    found = set()
    for labels in map(labels_of, pods):
        replica, revision = labels.get(keys.LABEL_REPLICA, ""), labels.get(keys.LABEL_REVISION)
        number = replica.rpartition("-")[2]
        if replica not in known and revision is not None and number.isdecimal():
            found.add((revision, int(number)))
    return frozenset(found)


def _with_pod(group: Group, pod: EnginePod | None) -> Group:
    fields = {name: getattr(group, name) for name in group.__slots__}
    return Group(**{**fields, "pod": pod})


def router_pods_of(items: Iterable[Object]) -> tuple[RouterPod, ...]:
    """Router processes that may be sending requests: running, even if not ready or on their way out."""
    found = []
    for item in items:
        status, labels = item.get("status") or {}, labels_of(item)
        ip, router = status.get("podIP"), labels.get(keys.LABEL_ROUTER)
        if status.get("phase") == "Running" and ip and router:
            found.append(RouterPod(item["metadata"]["namespace"], router, item["metadata"]["name"], ip))
    return tuple(sorted(found))
