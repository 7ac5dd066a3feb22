"""`python -m shoal_local.supervisor FOLDER`: the process that a local cluster lives in.

Starts control plane and node agent as its children, starts again what dies (a few times), and on SIGTERM stops all in
order. Its children die with it, so killing it leaves nothing behind but leftovers that the next start removes.
"""

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Final

from shoal_local import cluster
from shoal_local.agent.settings import Settings
from shoal_local.cluster import ClusterSettings, State
from shoal_local.controlplane import ControlPlane, ControlPlaneError
from shoal_local.node_agent import NodeAgent

log = logging.getLogger("shoal_local.supervisor")

_CHECK_EVERY_S: Final = 1.0
_RESTARTS_MAX: Final = 5


class Supervisor:
    """One cluster from start to stop."""

    def __init__(self, folder: Path, settings: ClusterSettings) -> None:
        self._folder = folder
        self._stop = threading.Event()
        self._state = State("starting", os.getpid(), cluster.process_started(os.getpid()) or 0.0)
        self._control_plane = ControlPlane(
            folder, settings.binaries, progress=self._progress, when_api_ready=lambda: self._agent.launch()
        )
        self._agent = NodeAgent(
            self._control_plane,
            Settings(
                folder=folder / "agent",
                kubeconfig=self._control_plane.kubeconfig,
                pki=folder / "pki",
                images=folder / "agent" / "images.yaml",
                nodes=settings.nodes,
                balancer_ports={8080: settings.port},
            ),
        )

    def run(self) -> None:
        """Until SIGTERM, or until something cannot be kept alive."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._publish()
        try:
            self._control_plane.start()
            self._state.url = self._control_plane.url
            self._progress("Waiting for the nodes")
            self._agent.wait_ready()
            self._state.phase = "running"
            self._publish()
            while not self._stop.wait(_CHECK_EVERY_S):
                self._look_after()
            self._state.phase = "stopping"
            self._publish()
            self._state.message = ""
        except ControlPlaneError as error:
            log.exception("The local cluster failed")
            self._state.message = str(error)
        finally:
            self._agent.stop()
            self._control_plane.stop()
            self._state.phase = "failed" if self._state.message else "stopped"
            self._state.pids = {}
            self._publish()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._stop.set()

    def _look_after(self) -> None:
        for failure in self._control_plane.revive():
            self._count_restart(failure.partition(" ")[0], failure)
        try:
            self._agent.check()
        except ControlPlaneError as error:
            self._count_restart("node-agent", str(error))
            self._agent.stop()
            self._agent.start()
        if self._state.pids != self._pids():
            self._publish()

    def _count_restart(self, name: str, failure: str) -> None:
        log.error("%s", failure)
        self._state.restarts[name] = self._state.restarts.get(name, 0) + 1
        if self._state.restarts[name] > _RESTARTS_MAX:
            raise ControlPlaneError(f"{name} keeps dying: {failure}")

    def _pids(self) -> dict[str, int]:
        pids = self._control_plane.pids
        return pids if self._agent.pid is None else {**pids, "node-agent": self._agent.pid}

    def _publish(self) -> None:
        self._state.pids = self._pids()
        cluster.write_state(self._folder, self._state)

    def _progress(self, line: str) -> None:
        with cluster.progress_path(self._folder).open("a") as file:
            file.write(f"{line}\n")


def main() -> None:
    """Reads the folder's settings and supervises."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it tells of every poll
    folder = Path(sys.argv[1])
    settings = ClusterSettings.model_validate_json(cluster.settings_path(folder).read_text())
    Supervisor(folder, settings).run()


if __name__ == "__main__":
    main()
