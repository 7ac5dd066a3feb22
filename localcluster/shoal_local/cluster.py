"""A local cluster on disk: its folder, its settings, its state, and the supervisor process that runs it.

`shoal local` and `make demo` use these functions; `supervisor` is the other side. The state file is the only channel
between the two, besides signals.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import pydantic

from shoal_local import binaries, child, default_images, images, nodes
from shoal_local.agent import leftovers
from shoal_local.identity import cluster_id_of, memory_root

_UP_DEADLINE_S: Final = 180.0
_DOWN_DEADLINE_S: Final = 60.0
_POLL_S: Final = 0.1
_DATA: Final = ("etcd", "agent/pods", "agent/claims", "pki", "conf", "kubeconfig", "kube-cache", "state.json")

Progress = Callable[[str], None]
Phase = Literal["starting", "running", "stopping", "stopped", "failed"]


class ClusterError(RuntimeError):
    """The local cluster could not do what was asked; the message is for a person."""


class ClusterSettings(pydantic.BaseModel):
    """What `up` was asked for; `cluster.json` in the folder."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    engine: default_images.Engine = "sim"
    engine_env: Path | None = None
    speedup: float = pydantic.Field(default=1.0, gt=0)
    profile: str | None = None
    port: int = pydantic.Field(default=8080, ge=1, le=65535)
    nodes: Path | None = None
    images: Path | None = None
    """More image entries; they win over the default ones."""
    binaries: Path


@dataclass(slots=True)
class State:
    """What the supervisor says about itself; `state.json`."""

    phase: Phase
    supervisor: int
    started: float
    """Start time of the supervisor in clock ticks since boot: a process id alone may be another's by now."""
    url: str = ""
    message: str = ""
    pids: dict[str, int] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)


def default_folder() -> Path:
    """Per user, below XDG_STATE_HOME."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "shoal" / "local"


def settings_path(folder: Path) -> Path:
    """Settings of the cluster in a folder."""
    return folder / "cluster.json"


def progress_path(folder: Path) -> Path:
    """Progress lines of the start that is under way."""
    return folder / "logs" / "progress.log"


def process_started(pid: int) -> float | None:
    """Start time of a process in clock ticks since boot; None when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else float(fields[19])


def read_state(folder: Path) -> State | None:
    """The state, None when there never was a cluster here. A supervisor that has died reads as failed."""
    try:
        raw: dict[str, Any] = json.loads((folder / "state.json").read_text())
    except FileNotFoundError:
        return None
    state = State(**raw)
    if state.phase in ("starting", "running", "stopping") and not supervisor_alive(state):
        state.phase, state.message = (
            "failed",
            f"the supervisor has died: {child.tail(folder / 'logs' / 'supervisor.log')}",
        )
    return state


def write_state(folder: Path, state: State) -> None:
    """Replaces the state in one step."""
    fresh = folder / f".state.{os.getpid()}"
    fields = {name: getattr(state, name) for name in State.__dataclass_fields__}
    fresh.write_text(json.dumps(fields, indent=2))
    fresh.replace(folder / "state.json")


def supervisor_alive(state: State) -> bool:
    """Whether the very process that wrote the state still runs."""
    return process_started(state.supervisor) == state.started


def render_image_map(settings: ClusterSettings) -> str:
    """The image map of a cluster: the user's entries and the default ones that they do not replace."""
    variables = {"SHOAL_SIM_SPEEDUP": f"{settings.speedup:g}"}
    if settings.profile is not None:
        variables["SHOAL_SIM_PROFILE"] = settings.profile
    entries = default_images.default_images(settings.engine, variables, settings.engine_env)
    if settings.images is not None:
        more = images.read_images(settings.images)
        replaced = {each.image for each in more}
        entries = [*more, *(each for each in entries if each.image not in replaced)]
    return images.render_images(entries)


def up(folder: Path, settings: ClusterSettings, progress: Progress) -> State:
    """Starts a cluster and returns when its nodes are Ready; a running one is left as it is."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    state = read_state(folder)
    if state is not None and state.phase in ("starting", "running"):
        progress(f"A local cluster runs already in {folder}")
        return _follow(folder, state.supervisor, progress)
    nodes.read_nodes(settings.nodes)  # says at once what is wrong with it
    agent = folder / "agent"
    agent.mkdir(exist_ok=True)
    (agent / "images.yaml").write_text(render_image_map(settings))
    settings_path(folder).write_text(settings.model_dump_json(indent=2))
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)
    progress_path(folder).write_text("")
    (folder / "state.json").unlink(missing_ok=True)
    with (logs / "supervisor.log").open("ab") as output:
        started = subprocess.Popen(
            [sys.executable, "-m", "shoal_local.supervisor", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return _follow(folder, started.pid, progress, started)


def _follow(
    folder: Path, supervisor: int, progress: Progress, process: "subprocess.Popen[bytes] | None" = None
) -> State:
    """Prints progress until the cluster runs; ClusterError when it does not."""
    deadline = time.monotonic() + _UP_DEADLINE_S
    shown = 0
    while True:
        state = read_state(folder)
        lines = progress_path(folder).read_text().splitlines() if progress_path(folder).exists() else []
        for line in lines[shown:]:
            progress(line)
        shown = len(lines)
        if state is not None and state.supervisor == supervisor:
            if state.phase == "running":
                _warn_of_limits(folder, progress)
                if process is not None:
                    process.returncode = 0  # it goes on without us: no warning about an unreaped child
                return state
            if state.phase in ("failed", "stopped"):
                raise ClusterError(f"the local cluster did not start: {state.message}")
        if process is not None and process.poll() is not None:
            raise ClusterError(f"the supervisor ended: {child.tail(folder / 'logs' / 'supervisor.log')}")
        if time.monotonic() > deadline:
            raise ClusterError(
                f"the local cluster was not ready within {_UP_DEADLINE_S:.0f} s; logs are in {folder}/logs"
            )
        time.sleep(_POLL_S)


def _warn_of_limits(folder: Path, progress: Progress) -> None:
    """Says what Pods will not have on this machine; the node agent has tried it."""
    said = json.loads((folder / "agent" / "ready").read_text())
    if not said["private_root"]:
        progress(
            "Volumes will not be at their paths, ServiceAccount tokens among them: this machine allows no mount "
            f"namespaces ({said['reason']}). Operator and routers need them: run as root or allow user namespaces."
        )


def down(folder: Path, keep_data: bool, progress: Progress) -> bool:
    """Stops everything of a cluster by id; without `keep_data` deletes all but logs. False if nothing was there."""
    state = read_state(folder)
    if state is None and not (folder / "etcd").exists():
        return False
    if state is not None and supervisor_alive(state):
        progress("Stopping Pods, node agent and control plane")
        _end(state.supervisor, state.started)
    leftovers.kill_cluster_processes(cluster_id_of(folder / "agent"))
    shutil.rmtree(memory_root(cluster_id_of(folder / "agent")), ignore_errors=True)
    if not keep_data:
        for name in _DATA:
            path = folder / name
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    return True


def _end(pid: int, started: float) -> None:
    """SIGTERM, then SIGKILL, to the process that had this id at that time."""
    for number, wait_s in ((signal.SIGTERM, _DOWN_DEADLINE_S), (signal.SIGKILL, 5.0)):
        deadline = time.monotonic() + wait_s
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        while process_started(pid) == started:
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        else:
            return
    raise ClusterError(f"process {pid} does not end")


def build_settings(progress: Progress, **asked: Any) -> ClusterSettings:
    """Settings with the programs in place (built if need be)."""
    return ClusterSettings(binaries=binaries.ensure(progress), **asked)
