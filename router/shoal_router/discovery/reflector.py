"""A local copy of one Kubernetes collection: list, then watch, for ever.

What is known stays in force while kube-apiserver is away, slow or wrong: the copy changes only by a list or an event
that arrived whole. A watch that the server ended is resumed; one that is too old (410) or broken starts with a list.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import httpx
import orjson

from shoal_router import log
from shoal_router.discovery.access import Access

BACKOFF_FIRST_S: Final = 0.2
BACKOFF_MAX_S: Final = 3.0
WATCH_S: Final = 60
"""Short, so that a watch over a connection that died without a word is noticed within a minute and a half."""
_TIMEOUT: Final = httpx.Timeout(10.0, connect=3.0, read=10.0)
_WATCH_TIMEOUT: Final = httpx.Timeout(10.0, connect=3.0, read=WATCH_S + 15.0)
PAGE: Final = 500

Object = dict[str, Any]


class ResourceExpiredError(Exception):
    """The resource version is too old to watch from."""


class Reflector:
    """`on_change` is called with all objects by name after the first list and after every change."""

    def __init__(
        self, access: Access, path: str, selector: dict[str, str], on_change: Callable[[dict[str, Object]], None]
    ) -> None:
        self._access = access
        self._path = path
        self._selector = selector
        self._on_change = on_change
        self._objects: dict[str, Object] = {}
        self._version = ""
        self._failing = False

    async def run(self) -> None:
        backoff_s = BACKOFF_FIRST_S
        async with httpx.AsyncClient(
            base_url=self._access.server, verify=self._access.verify, timeout=_TIMEOUT, trust_env=False
        ) as client:
            while True:
                began_s = time.monotonic()
                try:
                    if not self._version:
                        await self._list(client)
                    await self._watch(client)
                except ResourceExpiredError:
                    self._version = ""
                except (httpx.HTTPError, httpx.StreamError, OSError, ValueError, KeyError) as error:
                    self._version = ""
                    self._failed(error)
                # After a watch that ended well too: a server that ends each at once must not be asked in a loop.
                if time.monotonic() - began_s > BACKOFF_MAX_S:
                    backoff_s = BACKOFF_FIRST_S
                await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))
                backoff_s = min(BACKOFF_MAX_S, backoff_s * 2)

    def _failed(self, error: Exception) -> None:
        if not self._failing:
            log.warning(
                "kube-apiserver cannot be read, what is known stays in force", path=self._path, error=repr(error)
            )
        self._failing = True

    async def _list(self, client: httpx.AsyncClient) -> None:
        objects: dict[str, Object] = {}
        page: dict[str, str] = {"limit": str(PAGE)}
        while True:
            answer = await client.get(self._path, params={**self._selector, **page}, headers=self._access.headers())
            if answer.status_code == 410:
                raise ResourceExpiredError
            answer.raise_for_status()
            listed = orjson.loads(answer.content)
            objects.update((item["metadata"]["name"], item) for item in listed["items"])
            if not listed["metadata"].get("continue"):
                break
            page["continue"] = listed["metadata"]["continue"]
        self._version = listed["metadata"]["resourceVersion"]
        if self._failing:
            log.info("kube-apiserver can be read again", path=self._path)
        self._failing = False
        self._objects = objects
        self._on_change(self._objects)

    async def _watch(self, client: httpx.AsyncClient) -> None:
        params = {
            **self._selector,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(WATCH_S),
        }
        async with client.stream(
            "GET", self._path, params=params, headers=self._access.headers(), timeout=_WATCH_TIMEOUT
        ) as answer:
            if answer.status_code == 410:
                raise ResourceExpiredError
            answer.raise_for_status()
            async for event in _events(answer):
                self._apply(event["type"], event["object"])

    def _apply(self, kind: str, item: Object) -> None:
        if kind == "ERROR":
            if item.get("code") == 410:
                raise ResourceExpiredError
            raise ValueError(f"watch failed: {item.get('message')}")
        metadata = item["metadata"]
        self._version = metadata["resourceVersion"]
        if kind == "BOOKMARK":
            return
        if kind == "DELETED":
            self._objects.pop(metadata["name"], None)
        else:
            self._objects[metadata["name"]] = item
        self._on_change(self._objects)


async def _events(answer: httpx.Response) -> AsyncIterator[Any]:
    async for line in answer.aiter_lines():
        if line:
            yield orjson.loads(line)
