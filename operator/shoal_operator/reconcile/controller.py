"""The operator's engine room: events become keys, workers bring keys in order, a tick asks the routers.

Only the leader works. A process that does not lead keeps its watches open and drops what they say; when it begins to
lead it lists everything, so that nothing depends on what it heard before. Handlers call `on_event`, the elector calls
`on_leadership`; the reconcilers are handed in by kind.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping

from shoal_operator.kube import errors, resources
from shoal_operator.kube.resources import Object
from shoal_operator.kube.routers import StatePoller
from shoal_operator.reconcile.context import Context, Reconcile
from shoal_operator.reconcile.index import OWN_KINDS, resource_of
from shoal_operator.reconcile.outcome import Done, Failed, Key, Outcome

log = logging.getLogger(__name__)

RESYNC_RETRY_S = 3.0
NODE_EVENTS_DELAY_S = 1.0
STUCK_S = 120.0


class Controller:
    def __init__(self, context: Context, reconcilers: Mapping[str, Reconcile], poller: StatePoller) -> None:
        self._context = context
        self._reconcilers = reconcilers
        self._poller = poller
        self._leading = asyncio.Event()
        self._resync_due = asyncio.Event()
        self._started_s: dict[Key, float] = {}

    @property
    def healthy(self) -> bool:
        """False when a reconcile has not come to an end for so long that only a restart helps."""
        now_s = time.monotonic()
        return all(now_s - began_s < STUCK_S for began_s in self._started_s.values())

    async def on_leadership(self, leading: bool) -> None:
        """Never waits: the elector must go on renewing."""
        context = self._context
        context.metrics.leader.set(1 if leading else 0)
        if leading:
            self._forget()
            self._leading.set()
            self._resync_due.set()
        else:
            self._leading.clear()
            context.queue.clear()
            context.metrics.forget_all()

    def on_event(self, item: Object, event: str | None) -> None:
        """A watch event of any resource; `event` is ADDED, MODIFIED, DELETED, or None from a listing."""
        context = self._context
        if not self._leading.is_set() or not context.index.changed(item, event):
            return
        context.index.note(item, event)
        resource, namespace = resource_of(item["kind"]), item["metadata"].get("namespace") or ""
        concerned = context.index.concerned(item)
        if resource is resources.MODEL_SERVICES:
            concerned |= {key for key in context.refused if key.namespace == namespace}
        if resource in OWN_KINDS:
            context.world.touch_list(resource, namespace)
        if resource in (resources.NODES, resources.PODS):
            context.world.touch_gpus()
        for key in concerned:
            if key.kind == resources.MODEL_SERVICES.kind and resource is not resources.ROUTERS:
                context.world.touch_service(key)
            context.queue.add_after(key, NODE_EVENTS_DELAY_S if resource is resources.NODES else 0.0)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`; returns when no reconcile is under way any more."""
        tasks = [asyncio.create_task(self._work(), name=f"worker {n}") for n in range(self._context.settings.workers)]
        tasks.append(asyncio.create_task(self._tick_forever(), name="tick"))
        tasks.append(asyncio.create_task(self._resync_forever(), name="resync"))
        stopped = asyncio.create_task(stop.wait(), name="stop")
        try:
            done, _ = await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # a worker never ends by itself; its error is ours
        finally:
            for task in (*tasks, stopped):
                task.cancel()
            await asyncio.gather(*tasks, stopped, return_exceptions=True)

    def _forget(self) -> None:
        context = self._context
        context.queue.clear()
        context.index.clear()
        context.world.forget()
        context.applier.forget()
        context.routers.forget()
        context.scaler.forget_all()
        context.starts.forget_all()
        context.revisions.forget_all()
        context.reservations.forget_all()
        context.drains.clear()
        context.refused.clear()
        context.refreshed.clear()

    async def _resync_forever(self) -> None:
        """Everything anew: when leadership begins, then every `resync_s`; soon again where the API did not answer."""
        pause_s = self._context.settings.resync_s
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._resync_due.wait(), pause_s)
            await self._leading.wait()
            self._resync_due.clear()
            complete = await self._resync()
            pause_s = self._context.settings.resync_s if complete else RESYNC_RETRY_S

    async def _resync(self) -> bool:
        """Every object of our kinds becomes a key; all that is kept is read and applied anew. False: not all listed."""
        context = self._context
        namespace = context.settings.watch_namespace
        try:
            listed = [
                await context.client.list_objects(resource, namespace if resource.namespaced else None)
                for resource in OWN_KINDS
            ]
        except errors.KubeError as error:
            log.warning("Resync could not list", extra={"error": str(error)})
            return False
        context.world.forget()
        context.applier.forget()
        context.index.clear()
        items = [item for found in listed for item in found]
        for item in items:
            context.index.note(item, None)
        for item in items:
            for key in context.index.concerned(item):
                context.queue.add(key)
        return True

    async def _tick_forever(self) -> None:
        """Ask the routers; reconcilers that need what they say come back by themselves (Requeue)."""
        context = self._context
        while True:
            await self._leading.wait()
            began_s = time.monotonic()
            try:
                answers = await self._poller.ask(await context.world.router_pods())
            except errors.KubeError as error:
                # Which routers there are is not known now; what they said keeps ageing.
                log.warning("Router Pods could not be listed", extra={"error": str(error)})
            else:
                for answer in answers:
                    context.metrics.router_polls.labels("failed" if answer.failure else "ok").inc()
                context.routers.update(answers)
            context.metrics.queue_depth.set(context.queue.depth)
            await asyncio.sleep(max(0.1, context.settings.tick_s - (time.monotonic() - began_s)))

    async def _work(self) -> None:
        context = self._context
        while True:
            key = await context.queue.wait()
            began_s = time.monotonic()
            self._started_s[key] = began_s
            outcome: Outcome = Done()
            try:
                outcome = await self._reconcile(key)
            finally:
                del self._started_s[key]
                context.queue.done(key, outcome)
                context.metrics.queue_depth.set(context.queue.depth)
                context.metrics.reconcile_seconds.labels(key.kind).observe(time.monotonic() - began_s)
            context.metrics.reconciles.labels(key.kind, type(outcome).__name__.lower()).inc()

    async def _reconcile(self, key: Key) -> Outcome:
        try:
            return await self._reconcilers[key.kind](self._context, key)
        except errors.NotLeadingError:
            return Done()
        except errors.ConflictError as error:
            # Somebody else was faster: what we read is old, and only that.
            self._doubt(key)
            log.info("Read anew after a conflict", extra={"key": str(key), "error": error.message})
            return Failed(error.message)
        except errors.KubeError as error:
            self._doubt(key)
            # What goes, or its whole namespace, is no trouble: the next look finds nothing.
            going = error.status == 404 or "being terminated" in error.message
            level = logging.INFO if going else logging.WARNING
            log.log(level, "Reconcile failed", extra={"key": str(key), "error": error.message, "status": error.status})
            return Failed(error.message, error.retry_after_s)
        except Exception as error:
            # The one place where a bug in one object's path is kept from stopping all others: logged with its
            # traceback, counted, and tried again with back-off.
            self._doubt(key)
            log.exception("Reconcile crashed", extra={"key": str(key)})
            return Failed(repr(error))

    def _doubt(self, key: Key) -> None:
        """What was read about this object may be why the write failed."""
        self._context.world.touch_service(key)
        self._context.world.touch_list(resource_of(key.kind), key.namespace)
