"""`shoal-operator run`: wires the process together, and takes it apart in order on SIGTERM.

Order of the end: reconciles, then the Lease is given back, then watches and connections close. So another
operator leads within a retry of its own, and nothing of ours is written after it does.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

from shoal_operator import settings as settings_module
from shoal_operator import telemetry
from shoal_operator.handlers.probes import Probes
from shoal_operator.handlers.watching import RestartCounter, Watcher
from shoal_operator.kube import connection
from shoal_operator.kube.apply import Applier
from shoal_operator.kube.client import ApiClient
from shoal_operator.kube.lease import Elector
from shoal_operator.kube.recorder import Recorder
from shoal_operator.kube.routers import StatePoller
from shoal_operator.reconcile import reconcilers
from shoal_operator.reconcile.claims import Claims
from shoal_operator.reconcile.context import Context
from shoal_operator.reconcile.controller import Controller
from shoal_operator.reconcile.index import Index
from shoal_operator.reconcile.queue import WorkQueue
from shoal_operator.reconcile.reservations import Reservations
from shoal_operator.reconcile.resolving import Resolver
from shoal_operator.reconcile.revisions import Revisions
from shoal_operator.reconcile.routerview import RouterView
from shoal_operator.reconcile.scaler import Scaler
from shoal_operator.reconcile.starts import Starts
from shoal_operator.reconcile.world import World
from shoal_operator.settings import Settings

log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> None:
    given = settings_module.parse(sys.argv[1:] if arguments is None else arguments)
    telemetry.configure_logging(given.log_level)
    asyncio.run(serve(given))


async def serve(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    metrics = telemetry.Metrics()
    async with AsyncExitStack() as stack:
        base = ApiClient(connection.transport(await connection.load(settings.kubeconfig, settings.context)))
        stack.push_async_callback(base.close)
        poller = StatePoller()
        stack.push_async_callback(poller.close)

        async def on_leadership(leading: bool) -> None:
            await controller.on_leadership(leading)

        elector = Elector(
            base,
            name=settings.lease_name,
            namespace=settings.namespace,
            identity=settings.identity,
            on_change=on_leadership,
        )
        context = _context(base.fenced(elector.require), settings, metrics)
        controller = Controller(context, reconcilers.BY_KIND, poller)
        watcher = Watcher(
            controller.on_event,
            loop,
            metrics,
            kubeconfig=settings.kubeconfig,
            context=settings.context,
            namespace=settings.watch_namespace,
        )
        RestartCounter(metrics).install()
        probes = Probes(settings.host, settings.health_port, settings.metrics_port)
        stack.push_async_callback(probes.stop)
        await probes.start(
            live=lambda: watcher.alive and controller.healthy, ready=lambda: watcher.alive, registry=metrics.registry
        )
        watcher.start()
        stack.callback(watcher.stop)
        log.info("Operator started", extra={"identity": settings.identity, "namespace": settings.namespace})
        await _run(controller, elector, stop)
    log.info("Operator stopped", extra={"identity": settings.identity})


def _context(client: ApiClient, settings: Settings, metrics: telemetry.Metrics) -> Context:
    return Context(
        client=client,
        world=World(client, namespace=settings.watch_namespace),
        applier=Applier(client, metrics),
        recorder=Recorder(client, instance=settings.identity),
        routers=RouterView(),
        resolver=Resolver(),
        claims=Claims(),
        revisions=Revisions(client),
        scaler=Scaler(),
        starts=Starts(),
        reservations=Reservations(),
        drains={},
        refused=set(),
        refreshed={},
        queue=WorkQueue(),
        index=Index(),
        metrics=metrics,
        settings=settings,
    )


async def _run(controller: Controller, elector: Elector, stop: asyncio.Event) -> None:
    """Both until `stop`; where one of them fails, the other ends too and the error is the process's."""
    elect = asyncio.Event()
    working = asyncio.create_task(controller.run(stop), name="controller")
    electing = asyncio.create_task(elector.run(elect), name="elector")
    try:
        await asyncio.wait([working, electing], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.set()
        await asyncio.gather(working, return_exceptions=True)
        elect.set()
        await asyncio.gather(electing, return_exceptions=True)
    working.result()
    electing.result()


if __name__ == "__main__":
    main()
