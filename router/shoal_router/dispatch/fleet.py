"""All services and their replicas: turns what discovery says into cores, handles and probers.

It is discovery's `Sink`. A replica that is no longer listed is retired: it gets no new request, keeps what it has as
long as it answers probes, and is dropped when empty. So neither a mistake of whoever lists replicas nor the loss of the
list cuts a running stream.
"""

import asyncio
from collections.abc import Callable, Mapping

from shoal_api import routes
from shoal_router import log, model
from shoal_router.discovery.target import Target
from shoal_router.dispatch.handle import Handle
from shoal_router.dispatch.health import Prober
from shoal_router.dispatch.service import Service
from shoal_router.timers import Wheel
from shoal_router.upstream.pool import Pool


class Fleet:
    """One a process."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, wheel: Wheel, on_new_table: Callable[[routes.RouteTable], None]
    ) -> None:
        self._loop = loop
        self._wheel = wheel
        self._on_new_table = on_new_table
        self._targets: Mapping[str, Target] | None = None
        self._probers: dict[Handle, Prober] = {}
        self.table: routes.RouteTable | None = None
        self.services: dict[str, Service] = {}
        self.by_model: dict[str, Service] = {}
        """Served names and aliases."""

    @property
    def synced(self) -> bool:
        """Both the route table and the replicas have been read once."""
        return self.table is not None and self._targets is not None

    def find(self, name: str) -> Service | None:
        """Service of a model name; `name:adapter` names an adapter of it."""
        service = self.by_model.get(name)
        return service if service is not None else self.by_model.get(name.partition(":")[0])

    # discovery.target.Sink

    def on_table(self, table: routes.RouteTable) -> None:
        now_s = self._wheel.now()
        before = self.table.generation if self.table is not None else None
        self.table = table
        listed = {service.name: service for service in table.services}
        for name in self.services.keys() - listed.keys():
            self._drop(self.services.pop(name), now_s)
        for name, entry in listed.items():
            known = self.services.get(name)
            if known is None:
                self.services[name] = Service(entry, now_s)
            else:
                known.table = entry
                known.core.configure(entry, now_s)
        self.by_model = {
            name: self.services[entry.name] for entry in reversed(table.services) for name in _names(entry)
        }
        self._place(now_s)
        for service in self.services.values():
            for handle in service.handles.values():
                handle.refresh(now_s)
        if table.generation != before:
            log.info("route table", generation=table.generation, services=sorted(listed))
        self._on_new_table(table)

    def on_targets(self, targets: Mapping[str, Target]) -> None:
        self._targets = targets
        self._place(self._wheel.now())

    def _place(self, now_s: float) -> None:
        """Make handles match the targets."""
        by_service: dict[str, dict[str, Target]] = {}
        for name, one in (self._targets or {}).items():
            by_service.setdefault(one.service, {})[name] = one
        for service in self.services.values():
            wanted = by_service.get(service.name, {})
            for name, handle in list(service.handles.items()):
                if name not in wanted or _other_engine(handle.target, wanted[name]):
                    self._retire(service, handle, name not in wanted, now_s)
            for name, target in wanted.items():
                known = service.handles.get(name)
                if known is None:
                    self._add(service, target, now_s)
                elif known.target is not target and known.target != target:
                    known.target = target
                    service.core.add_replica(known.replica(), now_s)
                    known.refresh(now_s)
            service.on_engines()

    def _add(self, service: Service, target: Target, now_s: float) -> None:
        handle = Handle(service, target, Pool(self._loop, target.host, target.port))
        service.handles[target.name] = handle
        service.core.add_replica(handle.replica(), now_s)
        service.core.set_state(target.name, handle.state, now_s)
        log.info("replica added", service=service.name, replica=target.name, url=target.url)
        prober = self._probers[handle] = Prober(handle, self._wheel, self._probers.pop)
        prober.start(now_s)

    def _retire(self, service: Service, handle: Handle, gone: bool, now_s: float) -> None:
        """`gone`: no successor takes its name at once."""
        handle.retired = True
        del service.handles[handle.name]
        service.retiring.add(handle)
        if gone:
            service.core.remove_replica(handle.name, now_s)
        else:
            # What happens before the successor is in place must not bind to it.
            service.core.set_state(handle.name, model.ReplicaState.UNKNOWN, now_s)
        log.info("replica removed", service=service.name, replica=handle.name, requests=len(handle.guests))
        self.probe_now(handle)

    def _drop(self, service: Service, now_s: float) -> None:
        for handle in list(service.handles.values()):
            self._retire(service, handle, True, now_s)
        service.core.reject_all(model.Outcome.NO_REPLICA, now_s)

    def probe_now(self, handle: Handle) -> None:
        prober = self._probers.get(handle)
        if prober is not None:
            prober.probe_soon()

    def stop(self) -> None:
        for handle, prober in list(self._probers.items()):
            prober.stop()
            handle.pool.abort()
        self._probers.clear()


def _names(entry: routes.Service) -> tuple[str, ...]:
    return (entry.served_name, *entry.aliases)


def _other_engine(before: Target, after: Target) -> bool:
    return (before.uid, before.host, before.port) != (after.uid, after.host, after.port)
