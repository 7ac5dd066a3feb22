"""Pods for tests of the node agent: short manifests, and kubectl in one namespace."""

import json
from typing import Any

from shoal_testing.apiserver import Tool
from shoal_testing.nodeagent import wait_until

Object = dict[str, Any]
POD_IP = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
UNBUFFERED = {"name": "PYTHONUNBUFFERED", "value": "1"}


def container(name: str = "main", **fields: Any) -> Object:
    return {"name": name, "image": "python:3.11", "env": [POD_IP, UNBUFFERED], **fields}


def shell(script: str, **fields: Any) -> Object:
    return container(command=["sh", "-c", script], **fields)


def pod(name: str, *containers: Object, **spec: Any) -> Object:
    meta = {"name": name, "labels": {"app": name}}
    defaults = {"terminationGracePeriodSeconds": 5}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {**defaults, "containers": [*containers], **spec},
    }


class Cluster:
    """kubectl in one namespace."""

    def __init__(self, kubectl: Tool, namespace: str) -> None:
        self._kubectl = kubectl
        self.namespace = namespace

    def __call__(self, *arguments: str, **options: Any) -> str:
        return self._kubectl(*arguments, "-n", self.namespace, **options).stdout

    def apply(self, *objects: Object) -> None:
        self("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def get(self, kind: str, name: str) -> Object | None:
        text = self("get", kind, name, "-o", "json", "--ignore-not-found")
        return json.loads(text) if text.strip() else None

    def status(self, name: str) -> Object:
        found = self.get("pod", name)
        return {} if found is None else found.get("status", {})

    def container(self, name: str, index: int = 0) -> Object:
        statuses = self.status(name).get("containerStatuses") or [{}]
        return statuses[index]

    def wait_ready(self, name: str) -> None:
        self("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=30s")

    def wait_phase(self, name: str, phase: str) -> None:
        self("wait", f"pod/{name}", f"--for=jsonpath={{.status.phase}}={phase}", "--timeout=30s")

    def events(self, name: str) -> list[tuple[str, str]]:
        found = json.loads(self("get", "events", "-o", "json", f"--field-selector=involvedObject.name={name}"))
        return [(each["reason"], each["message"]) for each in found["items"]]

    def wait_event(self, name: str, reason: str) -> str:
        wait_until(lambda: any(each[0] == reason for each in self.events(name)), f"event {reason} on {name}")
        return next(message for kind, message in self.events(name) if kind == reason)
