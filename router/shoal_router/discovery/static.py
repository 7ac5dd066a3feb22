"""Discovery from two JSON files, a route table and a list of engines: no Kubernetes needed. Files are read again when
they change; a file that cannot be read or parsed leaves what was known in force."""

import asyncio
import os
import urllib.parse
from pathlib import Path
from typing import Final

import pydantic

from shoal_api import routes
from shoal_router import log
from shoal_router.discovery.target import Sink, Target

POLL_S: Final = 0.5

_Stamp = tuple[int, int, int]


class StaticFiles:
    """Polls both files: works on every filesystem, and with the symlink swap by which Kubernetes updates volumes."""

    def __init__(self, routes_path: Path, replicas_path: Path, sink: Sink) -> None:
        self._routes_path = routes_path
        self._replicas_path = replicas_path
        self._sink = sink
        self._seen: dict[Path, _Stamp | None] = {}

    def load(self) -> None:
        """Read what has changed since the last call."""
        if (text := self._changed(self._routes_path)) is not None:
            try:
                self._sink.on_table(routes.RouteTable.model_validate_json(text))
            except pydantic.ValidationError as error:
                self._rejected(self._routes_path, error)
        if (text := self._changed(self._replicas_path)) is not None:
            try:
                listed = routes.StaticReplicas.model_validate_json(text).replicas
                self._sink.on_targets({replica.name: target(replica) for replica in listed})
            except (pydantic.ValidationError, ValueError) as error:
                self._rejected(self._replicas_path, error)

    async def run(self) -> None:
        while True:
            self.load()
            await asyncio.sleep(POLL_S)

    def _changed(self, path: Path) -> bytes | None:
        try:
            stat = os.stat(path)
            stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if self._seen.get(path) == stamp:
                return None
            text = path.read_bytes()
        except OSError as error:
            if self._seen.get(path, ()) is not None:
                log.warning("file of discovery cannot be read", path=str(path), error=error.strerror)
            self._seen[path] = None
            return None
        self._seen[path] = stamp
        return text

    def _rejected(self, path: Path, error: ValueError) -> None:
        log.warning(
            "file of discovery is not valid, the last valid one stays in force", path=str(path), error=str(error)
        )


def target(replica: routes.StaticReplica) -> Target:
    """Raises ValueError for a URL that is not `http://host[:port]`."""
    url = urllib.parse.urlsplit(replica.url)
    if url.scheme != "http" or not url.hostname:
        raise ValueError(f"replica {replica.name}: url must be http://host[:port], not {replica.url!r}")
    return Target(
        name=replica.name,
        service=replica.service,
        host=url.hostname,
        port=url.port or 80,
        uid=replica.url,
        revision=replica.revision,
        gpu=replica.gpu,
    )
