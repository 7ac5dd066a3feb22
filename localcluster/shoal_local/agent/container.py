"""One container of a Pod from its first start to its last end: starts, probes, restarts with back-off, stops.

`worker` creates runners and reads their `view`; a runner says through `on_change` that the view is new. A runner ends
when its container will not be started again, because it may not (restart policy) or because `stop` was called.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from shoal_local import clock
from shoal_local.agent import files, hooks, probe_rules, prober, process
from shoal_local.agent.backoff import Backoff, BackoffPolicy
from shoal_local.agent.events import Kind
from shoal_local.agent.probe_rules import ProbeSpec, Verdict
from shoal_local.agent.process import Exit, Order, Process
from shoal_local.agent.status import Running, Terminated, View, Waiting

log = logging.getLogger(__name__)

Role = Literal["main", "init", "sidecar"]
_PROBES: Final[tuple[probe_rules.Kind, ...]] = ("startup", "readiness", "liveness")
_KILL_DEADLINE_S: Final = 10.0
_SETUP_RETRY_S: Final = 2.0


class SetupError(Exception):
    """A container cannot be started now; shown as its waiting reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Prepared:
    """A container ready to be started."""

    order: Order
    hosts: prober.Target
    termination_log: Path


class Surroundings(Protocol):
    """What a runner needs of its Pod."""

    async def prepare(self, spec: Mapping[str, Any], runner: "ContainerRunner") -> Prepared:
        """Builds the order for one start; raises SetupError."""

    def event(self, kind: Kind, reason: str, message: str, container: str) -> None:
        """Records an event on the Pod."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How a container is to be treated."""

    role: Role
    restart_policy: str
    """Always, OnFailure or Never, for this container."""
    backoff: BackoffPolicy
    grace_s: float


class ContainerRunner:
    """See the module's docstring."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        rules: Rules,
        pod: Surroundings,
        folder: Path,
        on_change: Callable[[], None],
        view: View,
        next_run: int,
    ) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self.folder = folder
        self.started = asyncio.Event()
        """Set once it runs and its startup probe, if any, has passed; a sidecar holds up the next one until then."""
        self._rules = rules
        self._pod = pod
        self._on_change = on_change
        self._view = view
        self._run = next_run
        """Number of the run that is under way or comes next; what a status calls restartCount once it has begun."""
        self._backoff = Backoff()
        self._stopping = asyncio.Event()
        self._process: Process | None = None
        self._prepared: Prepared | None = None
        self._run_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._killer: asyncio.Task[None] | None = None
        """Held here, for the loop keeps only weak references to tasks."""

    @property
    def view(self) -> View:
        """The container's state as its status shows it."""
        return self._view

    @property
    def run_number(self) -> int:
        """Number of the run that is under way or comes next; names its log."""
        return self._run

    @property
    def process(self) -> Process | None:
        """The running process."""
        return self._process

    @property
    def order(self) -> Order:
        """What the running process was started with."""
        if self._prepared is None:
            raise RuntimeError(f"container {self.name} has not been started")
        return self._prepared.order

    async def run(self) -> Terminated | None:
        """Runs until it will not run again; how it ended the last time, None if it never ran."""
        while not self._stopping.is_set():
            loop = asyncio.get_running_loop()
            began = loop.time()
            ended = await self._run_once()
            if ended is not None:
                self._show(replace(self._view, state=ended, ready=False, started=False))
            if self._stopping.is_set() or (ended is not None and not self._restarts_after(ended)):
                return ended
            if ended is None:
                await self._pause(min(_SETUP_RETRY_S, self._rules.backoff.base_s))
                continue
            self._backoff = self._backoff.after_run(self._rules.backoff, loop.time() - began)
            self._expect_next_run(ended)
            await self._wait_backoff()
        state = self._view.state
        return state if isinstance(state, Terminated) else self._view.last

    def run_ended(self) -> "asyncio.Future[None]":
        """Done when the run that is under way has ended; at once when there is none."""
        if self._process is None and not self._run_over.done():
            self._run_over.set_result(None)
        return self._run_over

    async def stop(self, grace_s: float) -> None:
        """Ends it for good: preStop, SIGTERM, after `grace_s` in all SIGKILL. Returns when the process has gone."""
        self._stopping.set()
        await self._end_process(grace_s)

    def kill_now(self) -> None:
        """Shortens a stop that is under way to nothing."""
        self._stopping.set()
        if self._process is not None:
            self._process.kill()

    def _restarts_after(self, ended: Terminated) -> bool:
        if self._rules.restart_policy == "Always" and self._rules.role != "init":
            return True
        return self._rules.restart_policy != "Never" and ended.exit_code != 0

    async def _run_once(self) -> Terminated | None:
        """One start and its end; None when it could not be set up (it then waits, and is tried again)."""
        try:
            self._prepared = await self._pod.prepare(self.spec, self)
        except SetupError as error:
            waiting = Waiting(error.reason, str(error))
            if waiting != self._view.state:
                self._pod.event("Warning", "Failed", f"Error: {error}", self.name)
            self._show(replace(self._view, state=waiting, ready=False, started=False))
            return None
        started_at = clock.now()
        try:
            self._process = await process.start(self._prepared.order, self._log_path())
        except (process.StartError, TimeoutError) as error:
            message = f"failed to start: {error}"
            self._pod.event("Warning", "Failed", f"Error: {message}", self.name)
            self._show(replace(self._view, restarts=self._run))
            return Terminated(process.LAUNCH_FAILED, "StartError", started_at, clock.now(), message=message)
        self._run_over = asyncio.get_running_loop().create_future()
        if self._stopping.is_set():  # stopped while it was being started
            self._process.kill()
        try:
            return await self._supervise(self._process, started_at)
        finally:
            self._process = None
            files.remove_pid(self.folder)
            if not self._run_over.done():
                self._run_over.set_result(None)

    async def _supervise(self, running: Process, started_at: str) -> Terminated:
        files.write_pid(self.folder, running.pid)
        container_id = f"process://{running.pid}-{self._run}"
        begun = replace(self._view, state=Running(started_at), restarts=self._run, container_id=container_id)
        self._show(replace(begun, ready=False, started=False))
        self._pod.event("Normal", "Started", f"Started container {self.name}", self.name)
        post_start = asyncio.create_task(self._after_start(running), name=f"probes of {self.name}")
        post_start.add_done_callback(_log_failure)
        try:
            ended = await running.wait()
        finally:
            post_start.cancel()
            await asyncio.gather(post_start, return_exceptions=True)
        return self._terminated(ended, started_at, container_id)

    def _terminated(self, ended: Exit, started_at: str, container_id: str) -> Terminated:
        reason = "Completed" if ended.code == 0 else "Error"
        policy = self.spec.get("terminationMessagePolicy", "File")
        assert self._prepared is not None
        message = files.termination_message(
            self._prepared.termination_log,
            self._log_path(),
            fallback=policy == "FallbackToLogsOnError" and ended.code != 0,
        )
        return Terminated(ended.code, reason, started_at, clock.now(), ended.signal, message, container_id)

    async def _after_start(self, running: Process) -> None:
        """postStart, then the probes, until cancelled by the end of the process."""
        hook = (self.spec.get("lifecycle") or {}).get("postStart")
        assert self._prepared is not None
        if hook:
            failure = await hooks.run_hook(hook, running, self._prepared, self._rules.grace_s)
            if failure is not None:
                self._pod.event("Warning", "FailedPostStartHook", failure, self.name)
                await self._restart_process(None)
                return
        await self._probe(self._prepared.hosts)

    async def _probe(self, target: prober.Target) -> None:
        parsed = {kind: probe_rules.parse_probe(kind, self.spec.get(f"{kind}Probe")) for kind in _PROBES}
        startup = parsed["startup"]
        if startup is not None:
            await prober.probe_until(startup, target, self._on_startup)
            if not self._view.started:
                return
        else:
            self._show(replace(self._view, started=True))
        self.started.set()
        if parsed["readiness"] is None:
            self._show(replace(self._view, ready=True))
        async with asyncio.TaskGroup() as group:
            if parsed["readiness"] is not None:
                group.create_task(prober.probe_until(parsed["readiness"], target, self._on_readiness))
            if parsed["liveness"] is not None:
                group.create_task(prober.probe_until(parsed["liveness"], target, self._on_liveness))

    def _unhealthy(self, spec: ProbeSpec, answer: prober.Answer) -> None:
        message = f"{spec.kind.capitalize()} probe failed: {answer.message}"
        self._pod.event("Warning", "Unhealthy", message, self.name)

    def _on_startup(self, spec: ProbeSpec, verdict: Verdict, answer: prober.Answer) -> bool:
        if verdict.passed:
            self._show(replace(self._view, started=True))
            return False
        if not answer.succeeded:
            self._unhealthy(spec, answer)
        return not self._killed_by(spec, verdict)

    def _on_readiness(self, spec: ProbeSpec, verdict: Verdict, answer: prober.Answer) -> bool:
        if not answer.succeeded:
            self._unhealthy(spec, answer)
        self._show(replace(self._view, ready=bool(verdict.passed)))
        return True

    def _on_liveness(self, spec: ProbeSpec, verdict: Verdict, answer: prober.Answer) -> bool:
        if not answer.succeeded:
            self._unhealthy(spec, answer)
        return not self._killed_by(spec, verdict)

    def _killed_by(self, spec: ProbeSpec, verdict: Verdict) -> bool:
        if verdict.passed is not False or self._stopping.is_set():
            return False
        message = f"Container {self.name} failed {spec.kind} probe, will be restarted"
        self._pod.event("Normal", "Killing", message, self.name)
        self._killer = asyncio.create_task(self._restart_process(spec.grace_s))
        return True

    async def _restart_process(self, grace_s: float | None) -> None:
        await self._end_process(self._rules.grace_s if grace_s is None else float(grace_s))

    async def _end_process(self, grace_s: float) -> None:
        running, prepared = self._process, self._prepared
        if running is None or prepared is None or not running.running:
            return
        deadline = asyncio.get_running_loop().time() + grace_s
        hook = (self.spec.get("lifecycle") or {}).get("preStop")
        if hook and grace_s > 0:
            failure = await hooks.run_hook(hook, running, prepared, grace_s)
            if failure is not None:
                self._pod.event("Warning", "FailedPreStopHook", failure, self.name)
        if grace_s > 0:
            running.terminate()
            # Kubernetes leaves at least two seconds after a preStop hook that has used up the grace period.
            left_s = max(2.0 if hook else 0.0, deadline - asyncio.get_running_loop().time())
            if await _gone(running, left_s):
                return
        running.kill()
        if not await _gone(running, _KILL_DEADLINE_S):
            log.error("Process %s of container %s does not die", running.pid, self.name)

    async def _wait_backoff(self) -> None:
        delay_s = self._backoff.delay_s(self._rules.backoff)
        if delay_s > 0:
            message = f"back-off {delay_s:g}s restarting failed container={self.name}"
            self._pod.event("Warning", "BackOff", f"Back-off restarting failed container {self.name}", self.name)
            self._show(replace(self._view, state=Waiting("CrashLoopBackOff", message)))
            await self._pause(delay_s)

    async def _pause(self, delay_s: float) -> None:
        """Waits, but not for longer than until `stop`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), delay_s)

    def _expect_next_run(self, ended: Terminated) -> None:
        self._run += 1
        self.started.clear()
        self._show(replace(self._view, last=ended))
        files.remove_old_logs(self.folder, keep_from=self._run - 1)

    def _log_path(self) -> Path:
        return files.log_path(self.folder, self._run)

    def _show(self, view: View) -> None:
        if view != self._view:
            self._view = view
            self._on_change()


async def _gone(running: Process, timeout_s: float) -> bool:
    """Whether the process ends in time; it may be waited for by several."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while running.running:
        if loop.time() >= deadline:
            return False
        await asyncio.sleep(0.02)
    return True


def _log_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("%s failed", task.get_name(), exc_info=task.exception())
