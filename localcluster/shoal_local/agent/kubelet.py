"""The kubelet port: `kubectl logs` with -f, --previous and --tail. HTTPS, for the API server's certificate only."""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Final

from aiohttp import web

from shoal_local.agent import files
from shoal_local.agent.manager import PodManager
from shoal_local.pki import Pair

log = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 64 * 1024
_POLL_S: Final = 0.1


def tail_offset(path: Path, lines: int) -> int:
    """Byte at which the last `lines` lines begin; reads backwards, so that long logs cost little."""
    size = path.stat().st_size
    if lines <= 0:
        return size
    with path.open("rb") as file:
        position, wanted = size, lines
        if size:
            file.seek(size - 1)
            wanted += file.read(1) == b"\n"  # a final newline ends the last line, it does not begin one
        while position > 0:
            step = min(_CHUNK_BYTES, position)
            position -= step
            file.seek(position)
            chunk = file.read(step)
            found = chunk.count(b"\n")
            if found >= wanted:
                at = len(chunk)
                for _ in range(wanted):
                    at = chunk.rfind(b"\n", 0, at)
                return position + at + 1
            wanted -= found
    return 0


async def read_log(
    path: Path, offset: int, limit: int | None, following: "asyncio.Future[None] | None"
) -> AsyncGenerator[bytes, None]:
    """Content from a byte on; goes on with what is added until `following` is done, if there is one."""
    left = limit
    with path.open("rb") as file:
        file.seek(offset)
        ended = False
        while True:
            chunk = file.read(_CHUNK_BYTES if left is None else min(_CHUNK_BYTES, left))
            if chunk:
                left = None if left is None else left - len(chunk)
                yield chunk
                if left == 0:
                    return
                continue
            if following is None or ended:
                return
            if file.tell() > os.fstat(file.fileno()).st_size:  # emptied because it had grown too large
                file.seek(0)
            # Once the container has ended, one more read takes what it wrote last.
            ended = following.done()
            if not ended:
                await asyncio.sleep(_POLL_S)


class KubeletServer:
    """Serves every node's address on one port."""

    def __init__(self, manager: PodManager, pair: Pair, authority: Path) -> None:
        self._manager = manager
        self._ssl = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority))
        self._ssl.load_cert_chain(pair.certificate, pair.key)
        self._ssl.verify_mode = ssl.CERT_REQUIRED
        self._runner: web.AppRunner | None = None

    async def start(self, first: socket.socket, others: Sequence[str], port: int) -> None:
        """Listens on a socket that is bound already and on more addresses."""
        application = web.Application()
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        application.router.add_route("*", "/{verb:exec|attach|portForward|run}/{rest:.*}", self._unavailable)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.SockSite(self._runner, first, ssl_context=self._ssl).start()
        for address in others:
            await web.TCPSite(self._runner, address, port, ssl_context=self._ssl).start()

    async def stop(self) -> None:
        """Closes every connection."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _unavailable(self, request: web.Request) -> web.Response:
        verb = request.match_info["verb"]
        text = (
            f"{verb} is not available in the local cluster: Pods are processes of this machine, reach them directly\n"
        )
        return web.Response(status=501, text=text)

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        place = request.match_info
        query = request.query
        worker = self._manager.find(place["namespace"], place["pod"])
        folder = worker.container_folder(place["container"]) if worker is not None else None
        if worker is None or folder is None:
            return web.Response(status=404, text=f"container {place['container']} of pod {place['pod']} is not here\n")
        for asked in ("timestamps", "sinceSeconds", "sinceTime"):
            if query.get(asked, "false") != "false":
                return web.Response(status=501, text=f"{asked}: the local cluster keeps no times of log lines\n")
        logs = files.newest_logs(folder)
        previous = query.get("previous") == "true"
        path = (
            files.log_path(folder, worker.previous_run(place["container"])) if previous else (logs[0] if logs else None)
        )
        if path is None or not path.exists():
            what = "previous terminated" if previous else "started"
            return web.Response(status=400, text=f"{what} container {place['container']} not found\n")
        tail = query.get("tailLines")
        offset = 0 if tail is None else tail_offset(path, int(tail))
        limit = int(query["limitBytes"]) if "limitBytes" in query else None
        following = worker.run_ended(place["container"]) if query.get("follow") == "true" and not previous else None
        answer = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await answer.prepare(request)
        with contextlib.suppress(ConnectionError):
            async with contextlib.aclosing(read_log(path, offset, limit, following)) as chunks:
                async for chunk in chunks:
                    await answer.write(chunk)
            await answer.write_eof()
        return answer
