"""A small asynchronous Kubernetes client: what the node agent needs, on aiohttp, and nothing more.

Objects are plain dicts, as the API gives them. Errors of the API are `KubeError` with its status and message.
`watch_forever` lists and watches, follows bookmarks, and comes back after any failure; it never ends by itself.
"""

import asyncio
import base64
import contextlib
import json
import logging
import ssl
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import yaml

log = logging.getLogger(__name__)

Object = dict[str, Any]
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
_REQUEST_TIMEOUT_S: Final = 20.0
_WATCH_TIMEOUT_S: Final = 300
_RETRY_MAX_S: Final = 2.0
_LINE_BYTES_MAX: Final = 8 * 1024**2


class KubeError(Exception):
    """The API refused; `status` is the HTTP code, `reason` Kubernetes' word for it."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason


NETWORK_ERRORS: Final = (aiohttp.ClientError, TimeoutError, ConnectionError)
"""What a call raises when nobody answers properly."""
ERRORS: Final = (KubeError, *NETWORK_ERRORS)


def _ssl_context(authority: bytes, certificate: bytes, key: bytes) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.decode())
    with tempfile.NamedTemporaryFile() as file:  # the ssl module takes certificates from files only
        file.write(certificate + b"\n" + key)
        file.flush()
        context.load_cert_chain(file.name)
    return context


class Kube:
    """One connection pool to one API server; an asynchronous context manager."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.server = str(cluster["server"])
        self.authority = base64.b64decode(cluster["certificate-authority-data"])
        certificate = base64.b64decode(user["client-certificate-data"])
        self._ssl = _ssl_context(self.authority, certificate, base64.b64decode(user["client-key-data"]))
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._ssl, limit=64)
        timeout = aiohttp.ClientTimeout(total=_REQUEST_TIMEOUT_S)
        self._session = aiohttp.ClientSession(self.server, connector=connector, timeout=timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open session; using the client outside its context is a programming error."""
        if self._session is None:
            raise RuntimeError("the Kubernetes client is used outside its context")
        return self._session

    async def get(self, path: str, **params: str) -> Object:
        """GET of an object or list."""
        return await self._call("GET", path, params=params)

    async def create(self, path: str, body: Mapping[str, Any]) -> Object:
        """POST."""
        return await self._call("POST", path, body=body)

    async def replace(self, path: str, body: Mapping[str, Any]) -> Object:
        """PUT; refused with 409 when the object has changed since it was read."""
        return await self._call("PUT", path, body=body)

    async def patch(self, path: str, body: Mapping[str, Any], kind: str = MERGE) -> Object:
        """PATCH with the given patch type."""
        return await self._call("PATCH", path, body=body, content_type=kind)

    async def delete(self, path: str, body: Mapping[str, Any] | None = None) -> Object:
        """DELETE with DeleteOptions."""
        return await self._call("DELETE", path, body=body)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": content_type}
        async with self.session.request(method, path, params=params, data=data, headers=headers) as answer:
            content = await answer.read()
            if answer.status >= 400:
                raise _error(answer.status, content)
            parsed = json.loads(content)
            return parsed if isinstance(parsed, dict) else {}

    async def watch(self, path: str, version: str, **params: str) -> AsyncGenerator[tuple[str, Object], None]:
        """Events of one watch request until the server ends it; raises KubeError (410 when `version` is too old)."""
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_TIMEOUT_S),
            **params,
        }
        timeout = aiohttp.ClientTimeout(total=_WATCH_TIMEOUT_S + 30, sock_connect=10)
        async with self.session.get(path, params=query, timeout=timeout) as answer:
            if answer.status >= 400:
                raise _error(answer.status, await answer.read())
            async for line in _lines(answer.content):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise KubeError(
                        int(status.get("code", 500)), str(status.get("reason", "")), str(status.get("message", ""))
                    )
                yield event["type"], event["object"]


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length up to a bound; the stream's own readline stops at 64 KB."""
    pending = bytearray()
    async for chunk in stream.iter_any():
        pending += chunk
        *lines, rest = pending.split(b"\n")
        pending = bytearray(rest)
        for line in lines:
            if line.strip():
                yield bytes(line)
        if len(pending) > _LINE_BYTES_MAX:
            raise KubeError(500, "TooLarge", "a watch event is larger than 8 MiB")


def _error(status: int, content: bytes) -> KubeError:
    try:
        parsed = json.loads(content)
        return KubeError(status, str(parsed.get("reason", "")), str(parsed.get("message", "")))
    except (ValueError, AttributeError):
        return KubeError(status, "", content[:300].decode(errors="replace"))


async def watch_forever(
    kube: Kube,
    path: str,
    on_list: Callable[[list[Object]], None],
    on_event: Callable[[str, Object], None],
    **params: str,
) -> None:
    """Keeps a caller's picture of a resource true for ever: lists, then events, and lists again after a gap."""
    retry_s = 0.1
    while True:
        try:
            listed = await kube.get(path, **params)
            version = str(listed["metadata"]["resourceVersion"])
            on_list(listed.get("items") or [])
            retry_s = 0.1
            while True:
                async with contextlib.aclosing(kube.watch(path, version, **params)) as events:
                    async for kind, each in events:
                        version = str(each["metadata"]["resourceVersion"])
                        if kind != "BOOKMARK":
                            on_event(kind, each)
        except ERRORS as error:
            if not (isinstance(error, KubeError) and error.status == 410):
                log.warning("Watch of %s failed, trying again: %s", path, error or type(error).__name__)
            await asyncio.sleep(retry_s)
            retry_s = min(_RETRY_MAX_S, retry_s * 2)
