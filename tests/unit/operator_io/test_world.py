"""What the operator reads where it may read one namespace only."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from shoal_operator.kube import resources
from shoal_operator.kube.client import Client
from shoal_operator.kube.resources import Object, Resource
from shoal_operator.reconcile.world import World


class Reads:
    """Answers with nothing, and remembers what was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None]] = []

    async def list_objects(self, resource: Resource, namespace: str | None = None, **_: Any) -> list[Object]:
        self.asked.append((resource.plural, namespace))
        return []

    async def pages(self, resource: Resource, namespace: str | None = None, **_: Any) -> AsyncIterator[list[Object]]:
        self.asked.append((resource.plural, namespace))
        yield []


@pytest.mark.parametrize("namespace", [None, "team-a"])
def test_pods_are_read_where_the_operator_has_rights(namespace: str | None) -> None:
    reads = Reads()

    async def look() -> None:
        world = World(cast("Client", reads), namespace=namespace)
        await world.gpus()
        await world.router_pods()

    asyncio.run(look())
    pods = [place for plural, place in reads.asked if plural == resources.PODS.plural]
    assert pods == [namespace, namespace]
