"""One Pod on one of our nodes, from binding to final deletion: what a kubelet's pod worker does.

`manager` creates one worker for each Pod and calls `update` with every new version of it. The worker starts init
containers in order, then the others, keeps the status in the API equal to what is true, and on deletion stops
everything within the grace period and removes the object. It goes on without the API server: what cannot be written
now is written when it is back.
"""

import asyncio
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from shoal_local import clock
from shoal_local.agent import differences, files, process, setup, status
from shoal_local.agent.container import ContainerRunner, Prepared, Role, Rules
from shoal_local.agent.context import Context, pod_folder_name
from shoal_local.agent.events import Kind, reference
from shoal_local.agent.fields import Place
from shoal_local.agent.process import Order
from shoal_local.agent.references import ConfigError
from shoal_local.agent.reporter import StatusReporter
from shoal_local.agent.status import Facts, Terminated, View, Waiting
from shoal_local.agent.volumes import PodVolumes
from shoal_local.identity import memory_root
from shoal_local.kube import ERRORS

log = logging.getLogger(__name__)

_MOUNT_RETRY_S: Final = 1.0
_LOST: Final = "ContainerStatusUnknown"
_SETTLE_DEADLINE_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """A Pod that is failed as a whole."""

    reason: str
    message: str


def view_after_restart(name: str, image: str, known: Mapping[str, Any] | None) -> View:
    """A container as the agent finds it: what ran under an agent before this one is gone."""
    if known is None:
        return View(name, image, Waiting("PodInitializing"))
    ended = status.parse_terminated(known.get("state"))
    last = status.parse_terminated(known.get("lastState"))
    restarts = int(known.get("restartCount", 0))
    running = (known.get("state") or {}).get("running")
    if running is not None:
        lost = "the node agent was restarted; the container ended with the one before"
        last = Terminated(137, _LOST, running.get("startedAt") or "", clock.now(), message=lost)
        return View(name, image, Waiting("ContainerCreating"), last, restarts)
    if ended is not None:
        return View(name, image, ended, last, restarts)
    return View(name, image, Waiting("ContainerCreating"), last, restarts)


def next_run_of(view: View) -> int:
    """Number of the run that comes next, for a container as the agent finds it."""
    ran_before = view.last is not None or isinstance(view.state, Terminated)
    return view.restarts + 1 if ran_before else view.restarts


class PodWorker:
    """See the module's docstring."""

    def __init__(self, context: Context, pod: dict[str, Any]) -> None:
        self._context = context
        self._pod = pod
        self._spec: dict[str, Any] = pod["spec"]
        self._folder = context.pods_folder / pod_folder_name(pod)
        node = context.nodes[self._spec["nodeName"]]
        known = pod.get("status") or {}
        self._address = context.addresses.take(known.get("podIP"))
        self._place = Place(self._address, node.address, node.allocatable)
        self._started_at: str = known.get("startTime") or clock.now()
        self._volumes = PodVolumes(
            context.kube,
            pod,
            self._folder / "volumes",
            memory_root(context.cluster_id) / pod["metadata"]["uid"],
            self._place,
        )
        self._verdict: Verdict | None = None
        self._deleting = asyncio.Event()
        self._deletion_grace_s = math.inf
        self._stopped = False
        """Every container has been stopped for the deletion of the Pod."""
        self._gone = asyncio.Event()
        self._reporter = StatusReporter(context.kube, lambda: self._pod, self._render)
        self._inits = [self._runner(each, self._init_role(each)) for each in self._spec.get("initContainers") or []]
        self._mains = [self._runner(each, "main") for each in self._spec["containers"]]
        self._tasks: dict[str, asyncio.Task[Terminated | None]] = {}

    @property
    def pod(self) -> dict[str, Any]:
        """The newest version of the Pod."""
        return self._pod

    def container_folder(self, container: str) -> Path | None:
        """Where a container's logs are; None when the Pod has no such container."""
        runner = self._find(container)
        return None if runner is None else runner.folder

    def previous_run(self, container: str) -> int:
        """Number of the run before the one that is under way or comes next; negative when there was none."""
        runner = self._find(container)
        return -1 if runner is None else runner.run_number - 1

    def run_ended(self, container: str) -> "asyncio.Future[None]":
        """Done when the container's present run has ended; `kubectl logs -f` ends then."""
        runner = self._find(container)
        if runner is None:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            done.set_result(None)
            return done
        return runner.run_ended()

    def _find(self, container: str) -> ContainerRunner | None:
        return next((each for each in (*self._inits, *self._mains) if each.name == container), None)

    def update(self, pod: dict[str, Any]) -> None:
        """Takes a new version of the Pod; a deletion begins here."""
        self._pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            grace_s = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
            if self._deleting.is_set() and grace_s < self._deletion_grace_s:  # deleted again, with less patience
                asyncio.get_running_loop().call_later(grace_s, self._kill_now)
            self._deletion_grace_s = min(self._deletion_grace_s, grace_s)
            self._deleting.set()
        self._reporter.touch()

    def removed(self) -> None:
        """The object is gone from the API (forced deletion): nothing may keep running."""
        self._gone.set()
        self._deleting.set()
        self._kill_now()

    async def run(self) -> None:
        """The Pod's whole life on this node."""
        reporting = asyncio.create_task(self._reporter.run())
        living = asyncio.create_task(self._live())
        living.add_done_callback(self._on_done)
        deleting = asyncio.create_task(self._deleting.wait())
        try:
            await asyncio.wait({living, deleting}, return_when=asyncio.FIRST_COMPLETED)
            await deleting
            await self._shut_down(living)
            self._stopped = True
            self._reporter.touch()
            if not self._gone.is_set():
                await self._reporter.settle(_SETTLE_DEADLINE_S)
        except asyncio.CancelledError:
            self._kill_now()
            raise
        finally:
            for task in (living, deleting, reporting):
                task.cancel()
            await asyncio.gather(living, deleting, reporting, return_exceptions=True)
        files.keep_logs_of_gone_pod(self._folder, self._context.old_logs_folder)
        self._volumes.remove()
        files.remove_folder(self._folder)
        self._context.addresses.release(self._address)
        if not self._gone.is_set():
            await self._reporter.delete_object()

    async def _live(self) -> None:
        """Everything but deletion; returns when no container will run again."""
        phase = (self._pod.get("status") or {}).get("phase")
        if phase in ("Succeeded", "Failed"):
            return
        limit_s = self._spec.get("activeDeadlineSeconds")
        self._announce_differences()
        try:
            async with asyncio.timeout(
                None if limit_s is None else max(0.0, limit_s - clock.seconds_since(self._started_at))
            ):
                await self._prepare_volumes()
                upkeep = asyncio.create_task(self._upkeep())
                try:
                    await self._run_containers()
                finally:
                    upkeep.cancel()
                    await asyncio.gather(upkeep, return_exceptions=True)
        except TimeoutError:
            await self._fail("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")

    async def _run_containers(self) -> None:
        for runner in self._inits:
            if self._deleting.is_set():
                return
            state = runner.view.state
            if isinstance(state, Terminated) and state.exit_code == 0 and not self._sidecar(runner):
                continue  # done before the agent was restarted
            task = self._start(runner)
            if self._sidecar(runner):
                started = asyncio.create_task(runner.started.wait())
                await asyncio.wait({task, started}, return_when=asyncio.FIRST_COMPLETED)
                started.cancel()
                continue
            ended = await asyncio.shield(task)
            if ended is None or ended.exit_code != 0:
                return
        if self._deleting.is_set():
            return
        tasks = [self._start(runner) for runner in self._mains if not self._finished(runner)]
        if tasks:
            await asyncio.wait(tasks)
        if not self._deleting.is_set():
            await self._stop_runners(list(reversed(self._inits)), self._grace_s(), together=False)

    def _finished(self, runner: ContainerRunner) -> bool:
        """Whether a container had ended for good under an agent before this one."""
        state, policy = runner.view.state, self._spec.get("restartPolicy", "Always")
        if not isinstance(state, Terminated) or policy == "Always":
            return False
        return policy == "Never" or state.exit_code == 0

    def _start(self, runner: ContainerRunner) -> "asyncio.Task[Terminated | None]":
        task = asyncio.create_task(runner.run(), name=f"{self._pod['metadata']['name']}/{runner.name}")
        task.add_done_callback(self._on_done)
        self._tasks[runner.name] = task
        return task

    def _on_done(self, task: "asyncio.Task[Any]") -> None:
        """A fault of ours must be seen, on the Pod and in our log; the Pod stays until it is deleted."""
        if not task.cancelled() and task.exception() is not None:
            log.error("Pod %s: %s failed", self._pod["metadata"]["name"], task.get_name(), exc_info=task.exception())
            self.event("Warning", "FailedSync", f"error in the node agent: {task.exception()!r}", None)

    async def _shut_down(self, living: "asyncio.Task[None]") -> None:
        grace_s = self._pod["metadata"].get("deletionGracePeriodSeconds")
        grace = float(self._grace_s() if grace_s is None else grace_s)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        for runner in self._mains:
            if runner.name in self._tasks and not self._tasks[runner.name].done():
                self.event("Normal", "Killing", f"Stopping container {runner.name}", runner.name)
        await self._stop_runners(self._mains, grace, together=True)
        left_s = max(0.0, deadline - loop.time())
        await self._stop_runners(list(reversed(self._inits)), left_s, together=False)
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)

    async def _stop_runners(self, runners: list[ContainerRunner], grace_s: float, together: bool) -> None:
        """Stops those that run: the main containers all at once, sidecars one after the other, last started first."""
        deadline = asyncio.get_running_loop().time() + grace_s

        async def stop(runner: ContainerRunner) -> None:
            task = self._tasks.get(runner.name)
            if task is None or task.done():
                return
            await runner.stop(max(0.0, deadline - asyncio.get_running_loop().time()))
            await asyncio.wait({task}, timeout=_SETTLE_DEADLINE_S)

        if together:
            await asyncio.gather(*(stop(runner) for runner in runners))
        else:
            for runner in runners:
                await stop(runner)

    def _kill_now(self) -> None:
        for runner in (*self._inits, *self._mains):
            runner.kill_now()

    async def _fail(self, reason: str, message: str) -> None:
        """Fails the Pod as a whole: stops its containers, keeps the object."""
        self._verdict = Verdict(reason, message)
        self.event("Warning", reason, message, None)
        await self._stop_runners([*self._mains, *self._inits], self._grace_s(), together=True)
        self._reporter.touch()

    async def _prepare_volumes(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "hosts").write_text(setup.hosts_text(self._pod, self._address))
        said = ""
        while True:
            try:
                await self._volumes.prepare()
            except (ConfigError, OSError, *ERRORS) as error:
                message = f"MountVolume.SetUp failed: {error or type(error).__name__}"
                if message != said:
                    self.event("Warning", "FailedMount", message, None)
                said = message
                await asyncio.sleep(_MOUNT_RETRY_S)
            else:
                return

    async def _upkeep(self) -> None:
        """Keeps volumes fresh, logs bounded and emptyDirs within their limits, for as long as the Pod runs."""
        while True:
            await asyncio.sleep(self._context.settings.refresh_period_s)
            if self._volumes.refreshable:
                try:
                    await self._volumes.refresh()
                except (ConfigError, OSError, *ERRORS) as error:
                    log.info("Volumes of %s not refreshed: %s", self._pod["metadata"]["name"], error)
            for runner in (*self._inits, *self._mains):
                files.trim_log(files.log_path(runner.folder, runner.run_number))
            exceeded = await asyncio.to_thread(self._volumes.exceeded) if self._volumes.size_limited else None
            if exceeded is not None:
                message = f'Usage of EmptyDir volume "{exceeded.volume}" exceeds the limit "{exceeded.limit}".'
                await self._fail("Evicted", message)
                return

    def _announce_differences(self) -> None:
        found = differences.differences(self._pod, self._context.abilities.private_root)
        if found:
            message = f"Not as asked in the local cluster: {', '.join(found)}"
            self.event("Normal", "LocalClusterDiffers", message, None)

    def _init_role(self, spec: Mapping[str, Any]) -> Role:
        return "sidecar" if spec.get("restartPolicy") == "Always" else "init"

    def _sidecar(self, runner: ContainerRunner) -> bool:
        return runner.spec.get("restartPolicy") == "Always"

    def _grace_s(self) -> float:
        return float(self._spec.get("terminationGracePeriodSeconds", 30))

    def _runner(self, spec: Mapping[str, Any], role: Role) -> ContainerRunner:
        known = self._pod.get("status") or {}
        statuses = [*(known.get("containerStatuses") or []), *(known.get("initContainerStatuses") or [])]
        found = next((each for each in statuses if each["name"] == spec["name"]), None)
        policy = "Always" if role == "sidecar" else self._spec.get("restartPolicy", "Always")
        rules = Rules(role, policy, self._context.backoff, self._grace_s())
        folder = files.container_folder(self._folder, spec["name"])
        view = view_after_restart(spec["name"], spec["image"], found)
        return ContainerRunner(spec, rules, self, folder, self._reporter_touch, view, next_run_of(view))

    def _reporter_touch(self) -> None:
        self._reporter.touch()

    def _render(self) -> dict[str, Any] | None:
        """The status that is true now; None for a Pod that had ended before this agent started."""
        known = self._pod.get("status") or {}
        if known.get("phase") in ("Succeeded", "Failed"):
            return None
        facts = Facts(
            inits=[runner.view for runner in self._inits],
            mains=[runner.view for runner in self._mains],
            sidecars=frozenset(runner.name for runner in self._inits if self._sidecar(runner)),
            restart_policy=self._spec.get("restartPolicy", "Always"),
            gates=tuple(each["conditionType"] for each in self._spec.get("readinessGates") or []),
            pod_ip=self._address,
            host_ip=self._place.host_ip,
            started_at=self._started_at,
            stopped=self._stopped,
            verdict=None if self._verdict is None else (self._verdict.reason, self._verdict.message),
        )
        if self._deleting.is_set() and not self._tasks:
            # Deleted before anything was started: say so, or the containers would look as if still to come.
            facts = replace(facts, mains=[_never_ran(view) for view in facts.mains])
        return status.render_status(facts, known, clock.now())

    async def prepare(self, spec: Mapping[str, Any], runner: ContainerRunner) -> Prepared:
        """Surroundings: the order for one start of a container."""

        async def run_inside(command: list[str], timeout_s: float) -> tuple[int, str]:
            running = runner.process
            if running is None:
                return 1, "the container does not run"
            order = runner.order
            return await process.run_inside(running, Order(command, order.env, order.cwd, order.root), timeout_s)

        return await setup.prepare(self._context, self._pod, spec, self._folder, self._volumes, self._place, run_inside)

    def event(self, kind: Kind, reason: str, message: str, container: str | None) -> None:
        """Surroundings: an event on the Pod or on one of its containers."""
        field_path = None
        if container is not None:
            inits = [each["name"] for each in self._spec.get("initContainers") or []]
            field_path = f"spec.{'initContainers' if container in inits else 'containers'}{{{container}}}"
        self._context.recorder.record(reference(self._pod, "Pod", field_path), kind, reason, message)


def _never_ran(view: View) -> View:
    now = clock.now()
    return replace(view, state=Terminated(137, _LOST, now, now, message="deleted before it was started"))
