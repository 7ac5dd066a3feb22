"""Faults in a running cluster: signals to the process of a container, found by the Pod's name."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from shoal_local.agent import files


class FaultError(LookupError):
    """There is no such container running."""


@dataclass(frozen=True, slots=True)
class Running:
    """A container that runs."""

    pod: str
    namespace: str
    container: str
    pid: int


def running_containers(folder: Path) -> list[Running]:
    """Every container of the cluster in a folder that has a process."""
    found = []
    for pod_folder in sorted((folder / "agent" / "pods").glob("*_*_*")):
        namespace, name, _uid = pod_folder.name.split("_")
        for container in sorted((pod_folder / "containers").glob("*")):
            pid = files.read_pid(container)
            if pid is not None:
                found.append(Running(name, namespace, container.name, pid))
    return found


def find_container(folder: Path, pod: str, namespace: str | None, container: str | None) -> Running:
    """The one container that is meant; FaultError when there is none or more than one."""
    running = running_containers(folder)
    fitting = [
        each
        for each in running
        if each.pod == pod
        and (namespace is None or each.namespace == namespace)
        and (container is None or each.container == container)
    ]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(f"{each.namespace}/{each.pod}/{each.container}" for each in fitting or running)
    if fitting:
        raise FaultError(f"{pod} has several containers, say which: {names}")
    raise FaultError(f"no running container of Pod {pod}; running: {names or 'none'}")


def send(target: Running, number: signal.Signals) -> None:
    """Signals the container: SIGTERM and the like to its first process, the rest to its whole group."""
    try:
        if number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT):
            os.killpg(target.pid, number)
        else:
            os.kill(target.pid, number)
    except ProcessLookupError as error:
        raise FaultError(f"process {target.pid} of {target.pod} has ended") from error
