"""Wires the router together, runs it, and ends it in the order that loses no request.

SIGTERM: not ready at once; new connections are still taken for `listen_after_term_s`, since endpoints and load
balancers lag behind; then the listener closes; running requests have until `grace_s`; then the rest is cut.
"""

import asyncio
import contextlib
import resource
import signal
import socket
from collections.abc import Coroutine
from typing import Final

from shoal_api import routes
from shoal_router import build, log
from shoal_router.discovery.static import StaticFiles
from shoal_router.dispatch.dispatcher import Dispatcher
from shoal_router.dispatch.fleet import Fleet
from shoal_router.server.admin import Admin
from shoal_router.server.frontend import Frontend
from shoal_router.server.listener import Limits, Listener
from shoal_router.settings import Settings
from shoal_router.timers import Wheel

FILES_PER_CONNECTION: Final = 2
FILES_RESERVED: Final = 256


class Runtime:
    """One router process."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._loop = loop
        self._wheel = Wheel(loop)
        self._fleet = Fleet(loop, self._wheel, self._on_table)
        self._dispatcher = Dispatcher(self._wheel, self._fleet, settings.access_log)
        self._frontend = Frontend(self._dispatcher)
        limits = Limits(settings.connections_max or _connections_by_files())
        self._listener = Listener(loop, self._wheel, limits, self._frontend)
        self._terminated = asyncio.Event()
        self._hurried = asyncio.Event()

    def _on_table(self, table: routes.RouteTable) -> None:
        self._frontend.on_table(table)
        limits = self._listener.limits
        limits.header_bytes, limits.body_bytes = table.header_bytes_max, table.body_bytes_max
        limits.header_s, limits.idle_s = table.header_timeout_s, table.idle_timeout_s
        limits.write_stall_s = table.write_stall_timeout_s

    async def run(self) -> int:
        """Until SIGTERM or SIGINT; returns the exit status."""
        for name in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(name, self._on_signal)
        settings = self._settings
        self._wheel.start()
        self._dispatcher.start()
        discovery = self._loop.create_task(self._discovery())
        try:
            port = await self._listener.listen(settings.host, settings.port)
            instance = settings.instance or f"{socket.gethostname()}:{port}"
            admin = Admin(self._frontend, self._listener, settings.router, instance)
            admin_port = await admin.listen(settings.admin_host, settings.admin_port)
            addresses = {"host": settings.host, "port": port, "admin_port": admin_port, "instance": instance}
            log.info("listening", **addresses, version=build.version(), compiled=build.compiled())
            waiting = self._loop.create_task(self._terminated.wait())
            await asyncio.wait((waiting, discovery), return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                waiting.cancel()
                discovery.result()  # discovery never ends by itself: raise what ended it
            await self._drain()
            admin.close()
        finally:
            discovery.cancel()
            await asyncio.gather(discovery, return_exceptions=True)
            self._fleet.stop()
            self._wheel.stop()
        return 0

    async def _discovery(self) -> None:
        settings = self._settings
        if settings.routes_path is not None and settings.replicas_path is not None:
            await StaticFiles(settings.routes_path, settings.replicas_path, self._fleet).run()
            return
        # Here, not above: the HTTP client that only Kubernetes needs is half of a router's start-up time.
        from shoal_router.discovery import access
        from shoal_router.discovery.kubernetes import Kubernetes

        found = access.from_kubeconfig(settings.kubeconfig) if settings.kubeconfig is not None else access.in_cluster()
        await Kubernetes(found, settings.namespace, settings.router, self._fleet).run()

    def _on_signal(self) -> None:
        if self._terminated.is_set():
            self._hurried.set()
        self._terminated.set()

    async def _drain(self) -> None:
        """A second signal skips what is left of it."""
        settings = self._settings
        log.info("draining", open_connections=self._listener.open_connections, grace_s=settings.grace_s)
        self._listener.draining = True
        await self._wait(self._hurried.wait(), settings.listen_after_term_s)
        self._listener.stop_accepting()
        hurried = self._loop.create_task(self._hurried.wait())
        empty = self._loop.create_task(self._listener.wait_empty())
        left_s = max(0.0, settings.grace_s - settings.listen_after_term_s)
        await asyncio.wait((hurried, empty), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        for task in (hurried, empty):
            task.cancel()
        self._dispatcher.reject_waiting()
        log.info("drained", connections_cut=self._listener.abort_all())
        await asyncio.sleep(0)  # the connections hear of it, and tell the engines

    async def _wait(self, what: Coroutine[object, object, object], timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await what


def _connections_by_files() -> int:
    """Raise the limit of open files to what is allowed; each request may need a connection on either side."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard and hard != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    if soft == resource.RLIM_INFINITY:
        soft = 1 << 20
    return max(64, (min(soft, 1 << 20) - FILES_RESERVED) // FILES_PER_CONNECTION)
