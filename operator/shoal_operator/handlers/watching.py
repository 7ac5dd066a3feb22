"""kopf in a thread of its own: every watch event of interest becomes one call into the controller's loop.

A thread, because kopf ends all tasks of its loop when it ends, and ends when a watch fails in a way that it does not
know (kube-apiserver answering 500 while it starts, for instance). Then it is simply started again; leadership and
reconciles in the main loop go on meanwhile.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import kopf

from shoal_api import keys
from shoal_operator.handlers import startup
from shoal_operator.kube import connection, resources
from shoal_operator.kube.resources import Object, Resource
from shoal_operator.telemetry import Metrics

log = logging.getLogger(__name__)

RESTART_PAUSE_S: Final = 1.0
STOP_DEADLINE_S: Final = 10.0
OWN: Final = (resources.MODEL_SERVICES, resources.ROUTERS, resources.DRAFT_MODELS, resources.GPU_POOLS, resources.NODES)
MANAGED: Final = (resources.STATEFUL_SETS, resources.PODS, resources.DEPLOYMENTS, resources.CONFIG_MAPS)
"""Watched with our label only: the server filters."""

Sink = Callable[[Object, str | None], None]


class Watcher:
    def __init__(
        self,
        sink: Sink,
        loop: asyncio.AbstractEventLoop,
        metrics: Metrics,
        *,
        kubeconfig: Path | None,
        context: str | None,
        namespace: str | None,
    ) -> None:
        self._sink = sink
        self._main_loop = loop
        self._metrics = metrics
        self._kubeconfig = kubeconfig
        self._context = context
        self._namespace = namespace
        self._stopping = threading.Event()
        self._inner: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._thread = threading.Thread(target=self._run, name="watches", daemon=True)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the watches; blocks for a moment."""
        self._stopping.set()
        inner = self._inner
        if inner is not None:
            loop, flag = inner
            try:
                loop.call_soon_threadsafe(flag.set)
            except RuntimeError:
                log.debug("The watches ended by themselves")
        self._thread.join(STOP_DEADLINE_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                asyncio.run(self._watch())
            except Exception as error:  # noqa: BLE001
                # Whatever kopf raises, the answer is the same: begin the watches anew, with fresh listings.
                log.warning("Watches failed", extra={"error": repr(error)})
            if not self._stopping.wait(RESTART_PAUSE_S):
                self._metrics.watch_restarts.inc()

    async def _watch(self) -> None:
        flag = asyncio.Event()
        self._inner = (asyncio.get_running_loop(), flag)
        if self._stopping.is_set():
            return
        try:
            await kopf.operator(
                registry=self._registry(),
                settings=_settings(clusterwide=self._namespace is None),
                standalone=True,
                clusterwide=self._namespace is None,
                namespaces=[] if self._namespace is None else [self._namespace],
                stop_flag=flag,
            )
        finally:
            self._inner = None

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        async def login(**_: Any) -> kopf.ConnectionInfo:
            return startup.connection(await connection.credentials(self._kubeconfig, self._context))

        kopf.on.login(registry=registry)(login)
        for resource in (*OWN, *MANAGED):
            self._watch_resource(resource, registry)
        return registry

    def _watch_resource(self, resource: Resource, registry: kopf.OperatorRegistry) -> None:
        named = {"apiVersion": resource.api_version, "kind": resource.kind}

        async def on_event(event: Any, **_: Any) -> None:
            # A copy of our own: kopf goes on using its object in this thread.
            item = named | dict(event["object"])
            self._main_loop.call_soon_threadsafe(self._sink, item, event["type"])

        kopf.on.event(
            group=resource.group,
            version=resource.version,
            plural=resource.plural,
            id=f"enqueue-{resource.plural}",
            registry=registry,
        )(on_event)


def _settings(*, clusterwide: bool) -> kopf.OperatorSettings:
    found = startup.settings()
    # For one namespace kopf would list all namespaces, which nobody granted, and retry that for ten seconds.
    found.scanning.disabled = not clusterwide
    for resource in MANAGED:
        selector = f"{keys.LABEL_MANAGED_BY}={keys.FIELD_MANAGER}"
        found.watching.label_selectors[resource.group, resource.version, resource.plural] = selector
    return found


class RestartCounter(logging.Filter):
    """Counts what kopf only logs: watch streams that were silent or too old, and requests that failed.

    Of these it lets through what kopf gives up on; ten watches that each try nine times in ten seconds say nothing new.
    """

    _MARKS: Final = ("Restarting the watch-stream", "is inactive, reconnecting", "failed; will retry")

    def __init__(self, metrics: Metrics) -> None:
        super().__init__()
        self._metrics = metrics

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if any(mark in message for mark in self._MARKS):
            self._metrics.watch_restarts.inc()
            return False
        return record.levelno >= logging.WARNING

    def install(self) -> None:
        """On the two loggers that say so."""
        for name in ("kopf._cogs.clients.watching", "kopf._cogs.clients.api"):
            logger = logging.getLogger(name)
            logger.addFilter(self)
            logger.setLevel(logging.DEBUG)
