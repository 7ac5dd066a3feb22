"""Follows the fleet while the demo runs: the ModelService and Pods by watch, the routers' `/state` every second.

What changed becomes events on the stage; what is, is read by the screen and by the story's waits. Only reads.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import pydantic

from shoal_api import keys, state
from shoal_cli.demo import result, stage
from shoal_local import kube

STATE_EVERY_S = 1.0
STATE_TIMEOUT_S = 2.0

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One replica as the screen shows it; None where it is not known (yet)."""

    name: str
    phase: str
    gpu: str
    node: str
    in_flight: int | None
    in_flight_tokens: int | None
    kv_share: float | None
    sessions: int | None


class Fleet:
    def __init__(self, client: kube.Kube, http: aiohttp.ClientSession, namespace: str, scene: stage.Stage) -> None:
        self._client = client
        self._http = http
        self._namespace = namespace
        self._stage = scene
        self.service: Object = {}
        self.pods: dict[str, Object] = {}
        self.points: list[result.Point] = []
        self.router: state.ServiceState | None = None
        self._changed = asyncio.Event()
        self._conditions: dict[str, tuple[str, str]] = {}

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        base = f"/apis/{keys.API_VERSION}/namespaces/{self._namespace}/modelservices"
        pods = f"/api/v1/namespaces/{self._namespace}/pods"
        tasks = [
            asyncio.create_task(kube.watch_forever(self._client, base, self._on_services, self._on_service)),
            asyncio.create_task(kube.watch_forever(self._client, pods, self._on_pods, self._on_pod)),
            asyncio.create_task(self._poll_routers()),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def until(self, condition: Callable[[], bool], deadline_s: float) -> bool:
        """Whether `condition` came true in time; looked at after every change, and at least each second."""
        end_s = asyncio.get_running_loop().time() + deadline_s
        while not condition():
            left_s = end_s - asyncio.get_running_loop().time()
            if left_s <= 0:
                return False
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), min(1.0, left_s))
        return True

    @property
    def status(self) -> Object:
        found: Object = self.service.get("status") or {}
        return found

    def condition(self, kind: str) -> Object:
        return next((one for one in self.status.get("conditions") or () if one.get("type") == kind), {})

    @property
    def ready(self) -> bool:
        """Whether the status is about the spec in force and says so."""
        observed = self.status.get("observedGeneration")
        current = (self.service.get("metadata") or {}).get("generation")
        return observed == current and self.condition("Ready").get("status") == "True"

    @property
    def counts(self) -> tuple[int, int]:
        """Ready and desired replicas."""
        counts = self.status.get("replicas") or {}
        return int(counts.get("ready") or 0), int(counts.get("desired") or 0)

    def router_pods(self) -> list[Object]:
        return [
            pod
            for pod in self.pods.values()
            if (pod["metadata"].get("labels") or {}).get(keys.LABEL_COMPONENT) == "router"
            and (pod.get("status") or {}).get("podIP")
        ]

    def rows(self) -> list[Row]:
        figures = {one.name: one for one in self.router.replicas} if self.router else {}
        rows = []
        for detail in self.status.get("replicaDetails") or ():
            figure = figures.get(detail["name"])
            rows.append(
                Row(
                    name=detail["name"],
                    phase=detail.get("phase", ""),
                    gpu=detail.get("gpu", ""),
                    node=detail.get("node") or "",
                    in_flight=figure.in_flight_requests if figure else None,
                    in_flight_tokens=figure.in_flight_tokens if figure else None,
                    kv_share=figure.in_flight_tokens / figure.kv_tokens_max
                    if figure and figure.kv_tokens_max
                    else None,
                    sessions=figure.sessions if figure else None,
                )
            )
        return rows

    def _on_services(self, items: list[Object]) -> None:
        for item in items:
            self._on_service("ADDED", item)

    def _on_service(self, kind: str, item: Object) -> None:
        if kind == "DELETED":
            return
        before = self.counts
        self.service = item
        self._tell_conditions()
        ready, desired = self.counts
        if not self.points or (ready, desired) != before:
            self.points.append(result.Point(self._stage.now_s(), ready, desired))
            scaling = self.status.get("scaling") or {}
            if desired != before[1] and before[1]:
                self._stage.tell(f"replicas wanted: {before[1]} -> {desired} ({scaling.get('reason', 'spec')})")
            if ready != before[0]:
                self._stage.tell(f"replicas ready: {before[0]} -> {ready} of {desired}")
        self._changed.set()

    def _tell_conditions(self) -> None:
        for one in self.status.get("conditions") or ():
            now = (str(one.get("status")), str(one.get("reason")))
            if self._conditions.get(one["type"]) != now:
                self._conditions[one["type"]] = now
                message = one.get("message") or ""
                self._stage.tell(f"{one['type']}={now[0]} {now[1]}{': ' + message if message else ''}")

    def _on_pods(self, items: list[Object]) -> None:
        self.pods = {item["metadata"]["name"]: item for item in items}
        self._changed.set()

    def _on_pod(self, kind: str, item: Object) -> None:
        name = item["metadata"]["name"]
        if kind == "DELETED":
            self.pods.pop(name, None)
        else:
            before = _restarts(self.pods.get(name))
            self.pods[name] = item
            if before is not None and (_restarts(item) or 0) > before:
                self._stage.tell(f"{name}: its container was started again")
        self._changed.set()

    async def _poll_routers(self) -> None:
        """Keeps the first router's figures: the demo runs one."""
        while True:
            await asyncio.sleep(STATE_EVERY_S)
            for pod in self.router_pods()[:1]:
                self.router = await self._read_state(pod["status"]["podIP"])
            self._changed.set()

    async def _read_state(self, address: str) -> state.ServiceState | None:
        url = f"http://{address}:{keys.ROUTER_ADMIN_PORT}/state"
        name = (self.service.get("metadata") or {}).get("name")
        try:
            async with self._http.get(url, timeout=aiohttp.ClientTimeout(total=STATE_TIMEOUT_S)) as answer:
                found = state.RouterState.model_validate_json(await answer.read())
        except (aiohttp.ClientError, TimeoutError, pydantic.ValidationError):
            return None
        return next((one for one in found.services if one.name == name), None)


def _restarts(pod: Object | None) -> int | None:
    if pod is None:
        return None
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return sum(int(one.get("restartCount") or 0) for one in statuses)
