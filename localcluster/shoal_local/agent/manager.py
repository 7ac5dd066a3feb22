"""Follows the Pods bound to our nodes and keeps one worker for each."""

import asyncio
import logging
from typing import Any

from shoal_local.agent import files
from shoal_local.agent.context import Context, pod_folder_name
from shoal_local.agent.worker import PodWorker
from shoal_local.kube import watch_forever

log = logging.getLogger(__name__)

Object = dict[str, Any]


class PodManager:
    """`run` follows the API for ever; `find` is for the kubelet port."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Watches Pods; cancelled at the end, which ends every container at once."""
        try:
            await watch_forever(
                self._context.kube, "/api/v1/pods", self._on_list, self._on_event, fieldSelector="spec.nodeName!="
            )
        finally:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def find(self, namespace: str, name: str) -> PodWorker | None:
        """The worker of a Pod by name."""
        for worker in self._workers.values():
            meta = worker.pod["metadata"]
            if meta["name"] == name and meta["namespace"] == namespace:
                return worker
        return None

    def _ours(self, pod: Object) -> bool:
        return pod["spec"].get("nodeName") in self._context.nodes

    def _on_list(self, pods: list[Object]) -> None:
        ours = {pod["metadata"]["uid"]: pod for pod in pods if self._ours(pod)}
        for uid in [uid for uid in self._workers if uid not in ours]:
            self._workers[uid].removed()
        for pod in ours.values():
            self._take(pod)
        if self._context.pods_folder.is_dir():
            known = {pod_folder_name(pod) for pod in ours.values()}
            known |= {pod_folder_name(worker.pod) for worker in self._workers.values()}
            for folder in self._context.pods_folder.iterdir():
                if folder.name not in known:  # of a Pod that went while no agent ran
                    files.remove_folder(folder)

    def _on_event(self, kind: str, pod: Object) -> None:
        if not self._ours(pod):
            return
        if kind == "DELETED":
            worker = self._workers.get(pod["metadata"]["uid"])
            if worker is not None:
                worker.removed()
        else:
            self._take(pod)

    def _take(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        worker = self._workers.get(uid)
        if worker is None:
            worker = PodWorker(self._context, pod)
            self._workers[uid] = worker
            task = asyncio.create_task(worker.run(), name=f"pod {pod['metadata']['name']}")
            self._tasks[uid] = task
            task.add_done_callback(lambda done: self._on_done(uid, done))
        worker.update(pod)

    def _on_done(self, uid: str, task: "asyncio.Task[None]") -> None:
        worker = self._workers.pop(uid)
        del self._tasks[uid]
        if not task.cancelled() and task.exception() is not None:
            name = worker.pod["metadata"]["name"]
            log.error(
                "The worker of Pod %s failed; it is taken up again at the next change", name, exc_info=task.exception()
            )
