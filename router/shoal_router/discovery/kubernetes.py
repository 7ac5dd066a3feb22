"""Discovery from Kubernetes: Pods with the label `shoal.dev/service` in the namespace, and the Router's route table.

Two watches of the router's own; nothing depends on the operator being there.
"""

import asyncio

import pydantic

from shoal_api import keys, routes
from shoal_router import log
from shoal_router.discovery import pods
from shoal_router.discovery.access import Access
from shoal_router.discovery.reflector import Object, Reflector
from shoal_router.discovery.target import Sink, Target


class Kubernetes:
    def __init__(self, access: Access, namespace: str, router: str, sink: Sink) -> None:
        self._sink = sink
        self._config_map = keys.routes_config_map(router)
        self._text: str | None = None
        self._targets: dict[str, Target] | None = None
        self._read: dict[str, tuple[Object, Target | None]] = {}
        """Each Pod as it was last read: an event about one of a thousand must not cost the reading of all."""
        root = f"/api/v1/namespaces/{namespace}"
        self._reflectors = (
            Reflector(access, f"{root}/pods", {"labelSelector": keys.LABEL_SERVICE}, self._on_pods),
            Reflector(
                access,
                f"{root}/configmaps",
                {"fieldSelector": f"metadata.name={self._config_map}"},
                self._on_config_map,
            ),
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())

    def _on_pods(self, objects: dict[str, Object]) -> None:
        before = self._read
        self._read = {
            name: known if (known := before.get(name)) is not None and known[0] is pod else (pod, pods.target(pod))
            for name, pod in objects.items()
        }
        found = pods.by_name(one for _, one in self._read.values())
        if found != self._targets:
            self._targets = found
            self._sink.on_targets(found)

    def _on_config_map(self, objects: dict[str, Object]) -> None:
        """A table that is gone or not valid leaves the last one in force: an operator's mistake stops no traffic."""
        text = objects.get(self._config_map, {}).get("data", {}).get(keys.ROUTES_KEY)
        if text is None:
            log.warning("no route table", config_map=self._config_map)
            return
        if text == self._text:
            return
        self._text = text
        try:
            table = routes.RouteTable.model_validate_json(text)
        except pydantic.ValidationError as error:
            log.warning("route table is not valid, the last one stays in force", error=str(error))
            return
        self._sink.on_table(table)
