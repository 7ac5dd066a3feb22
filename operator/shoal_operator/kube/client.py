"""The one way to kube-apiserver: reads, server-side apply, deletes with preconditions, status, events.

`Client` is what reconcilers are written against; `ApiClient` is its implementation on `kubernetes.aio`'s transport
(credentials, TLS, connection pool), with our own paths instead of discovery and plain dicts instead of models.
Writes pass a fence first: a process that has lost the Lease sends nothing. What slips through (frozen between fence and
socket) meets resourceVersion or uid preconditions, or an apply of the very same field manager.
"""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import aiohttp

from shoal_api import keys
from shoal_operator.kube import errors
from shoal_operator.kube.resources import Object, Resource, of_manifest

READ_TIMEOUT_S = 20.0
WRITE_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 3.0
PAGE_OBJECTS = 500


class Client(Protocol):
    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """NotFoundError when there is none."""
        ...

    async def list_objects(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: dict[str, str] | None = None,
        fields: str | None = None,
    ) -> list[Object]:
        """All objects that match. `labels` are equality terms; an empty value means "has the key"."""
        ...

    def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: dict[str, str] | None = None,
        fields: str | None = None,
    ) -> AsyncIterator[list[Object]]:
        """The same page by page, so that a caller who keeps little of each object never holds them all."""
        ...

    async def apply(self, manifest: Object, *, force: bool) -> Object:
        """Server-side apply as manager `shoal`; ConflictError without `force` where another one owns a field."""
        ...

    async def annotate(self, resource: Resource, observed: Object, annotations: dict[str, str | None]) -> Object:
        """Set or (None) remove annotations of the object as observed; ConflictError when it has changed since."""
        ...

    async def delete(self, resource: Resource, observed: Object) -> None:
        """Delete that very object as observed, children in the background; quiet when it is gone already, ConflictError
        when it has changed since."""
        ...

    async def replace_status(self, resource: Resource, observed: Object, status: Object) -> Object:
        """Write the whole status of the object as it was observed; ConflictError when it has changed since."""
        ...

    async def create(self, resource: Resource, manifest: Object) -> Object:
        """ConflictError where the name is taken."""
        ...

    async def replace(self, resource: Resource, manifest: Object) -> Object:
        """Write the object whole; its resourceVersion must still be the stored one, else ConflictError."""
        ...


class ApiClient:
    """`Client` over a `kubernetes.aio.client.ApiClient`. `fence` raises NotLeadingError when writing is not allowed."""

    def __init__(self, transport: Any, *, fence: Callable[[], None] = lambda: None) -> None:
        self._transport = transport
        self._fence = fence

    def fenced(self, fence: Callable[[], None]) -> "ApiClient":
        """The same connection with another fence (the elector itself must be able to write without leading)."""
        return ApiClient(self._transport, fence=fence)

    async def close(self) -> None:
        await self._transport.close()

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        return _without_managed_fields(await self._request("GET", resource.path(namespace, name)))

    async def list_objects(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: dict[str, str] | None = None,
        fields: str | None = None,
    ) -> list[Object]:
        found: list[Object] = []
        async for page in self.pages(resource, namespace, labels=labels, fields=fields):
            found += page
        return found

    async def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: dict[str, str] | None = None,
        fields: str | None = None,
    ) -> AsyncIterator[list[Object]]:
        query: list[tuple[str, str]] = [("limit", str(PAGE_OBJECTS))]
        if labels:
            terms = [key if value == "" else f"{key}={value}" for key, value in sorted(labels.items())]
            query.append(("labelSelector", ",".join(terms)))
        if fields:
            query.append(("fieldSelector", fields))
        token = ""
        while True:
            page_query = [*query, ("continue", token)] if token else query
            page = await self._request("GET", resource.path(namespace), query=page_query)
            # Items of a list do not repeat the list's kind.
            named = {"apiVersion": resource.api_version, "kind": resource.kind}
            yield [named | _without_managed_fields(item) for item in page.get("items", [])]
            token = page.get("metadata", {}).get("continue", "")
            if not token:
                return

    async def apply(self, manifest: Object, *, force: bool) -> Object:
        meta = manifest["metadata"]
        path = of_manifest(manifest).path(meta.get("namespace"), meta["name"])
        query = [("fieldManager", keys.FIELD_MANAGER), ("force", "true" if force else "false")]
        return await self._write("PATCH", path, manifest, query=query, content_type="application/apply-patch+yaml")

    async def annotate(self, resource: Resource, observed: Object, annotations: dict[str, str | None]) -> Object:
        meta = observed["metadata"]
        body = {"metadata": {"resourceVersion": meta["resourceVersion"], "annotations": annotations}}
        path = resource.path(meta.get("namespace"), meta["name"])
        query = [("fieldManager", keys.FIELD_MANAGER)]
        return await self._write("PATCH", path, body, query=query, content_type="application/merge-patch+json")

    async def delete(self, resource: Resource, observed: Object) -> None:
        meta = observed["metadata"]
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            # That very version of it: a replica whose drain was taken back meanwhile must not go by an old decision.
            "preconditions": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]},
        }
        try:
            await self._write("DELETE", resource.path(meta.get("namespace"), meta["name"]), body)
        except errors.NotFoundError:
            return
        except errors.ConflictError as error:
            # An object of the same name but another uid: the one that was meant is gone.
            if "Precondition failed: UID" not in error.message:
                raise

    async def replace_status(self, resource: Resource, observed: Object, status: Object) -> Object:
        meta = observed["metadata"]
        body = {**observed, "status": status}
        path = resource.path(meta.get("namespace"), meta["name"], "status")
        return await self._write("PUT", path, body, query=[("fieldManager", keys.FIELD_MANAGER)])

    async def create(self, resource: Resource, manifest: Object) -> Object:
        path = resource.path(manifest["metadata"].get("namespace"))
        return await self._write("POST", path, manifest, query=[("fieldManager", keys.FIELD_MANAGER)])

    async def replace(self, resource: Resource, manifest: Object) -> Object:
        meta = manifest["metadata"]
        path = resource.path(meta.get("namespace"), meta["name"])
        return await self._write("PUT", path, manifest, query=[("fieldManager", keys.FIELD_MANAGER)])

    async def _write(
        self,
        method: str,
        path: str,
        body: Object,
        *,
        query: list[tuple[str, str]] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        self._fence()
        return await self._request(
            method, path, body=body, query=query, content_type=content_type, timeout_s=WRITE_TIMEOUT_S
        )

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: Object | None = None,
        query: list[tuple[str, str]] | None = None,
        content_type: str = "application/json",
        timeout_s: float = READ_TIMEOUT_S,
    ) -> Object:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        try:
            request = await self._transport.param_serialize(
                method,
                path,
                query_params=query or [],
                header_params={"Accept": "application/json", "Content-Type": content_type},
                body=body,
                auth_settings=["BearerToken"],
            )
            answer = await self._transport.call_api(*request, _request_timeout=timeout)
            data = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise errors.UnavailableError(f"{method} {path}: {error!r}") from error
        if answer.status >= 400:
            raise _error(answer.status, answer.headers.get("Retry-After"), data)
        parsed: Object = json.loads(data)
        return parsed


def _without_managed_fields(item: Object) -> Object:
    """Half of an object's bytes, read by nobody here; left out of a write, the server keeps its own."""
    item.get("metadata", {}).pop("managedFields", None)
    return item


def _error(status: int, retry_after: str | None, data: bytes) -> errors.KubeError:
    try:
        parsed = json.loads(data)
    except ValueError:
        parsed = None
    parsed = parsed if isinstance(parsed, dict) else {}
    message = parsed.get("message") or data[:500].decode("utf-8", "replace")
    try:
        retry_after_s = float(retry_after) if retry_after is not None else None
    except ValueError:
        retry_after_s = None  # the HTTP-date form; kube-apiserver sends seconds
    return errors.from_status(status, str(parsed.get("reason") or ""), str(message), retry_after_s)
