"""Runs the node agent as a child process: writes its settings, starts it, waits until it has registered its nodes."""

import sys
import time
from pathlib import Path
from typing import Final

import httpx

from shoal_local import nodes
from shoal_local.agent.settings import Settings
from shoal_local.child import Child
from shoal_local.controlplane import ControlPlane, ControlPlaneError

_START_DEADLINE_S: Final = 60.0
_POLL_S: Final = 0.1


class NodeAgent:
    """The agent of one control plane. Start it from a thread that lives as long as it shall (see `child`)."""

    def __init__(self, control_plane: ControlPlane, settings: Settings) -> None:
        self._control_plane = control_plane
        self.settings = settings
        settings_path = settings.folder / "agent.json"
        argv = [sys.executable, "-m", "shoal_local.agent", str(settings_path)]
        self._settings_path = settings_path
        self._child = Child("node-agent", argv, control_plane.logs / "node-agent.log")

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._child.pid

    @property
    def log(self) -> Path:
        """Its log."""
        return self._child.log

    def start(self) -> None:
        """Starts the agent and returns when all nodes are Ready; raises ControlPlaneError."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Starts the agent without waiting: its own start takes about as long as the controllers'."""
        self.settings.folder.mkdir(parents=True, exist_ok=True)
        self._settings_path.write_text(self.settings.model_dump_json(indent=2))
        if self._child.pid is None:  # what an agent before this one has said counts no more
            self.settings.ready_file.unlink(missing_ok=True)
        self._child.start()

    def wait_ready(self) -> None:
        """Returns when all nodes are Ready; raises ControlPlaneError."""
        expected = {spec.name for spec in nodes.read_nodes(self.settings.nodes)}
        deadline = time.monotonic() + _START_DEADLINE_S
        with self._control_plane.client() as client:
            while not self.settings.ready_file.exists() or expected - _ready_nodes(client):
                self.check()
                if time.monotonic() > deadline:
                    raise ControlPlaneError(f"nodes not Ready within {_START_DEADLINE_S:.0f} s; see {self.log}")
                time.sleep(_POLL_S)

    def stop(self) -> None:
        """Stops it, and with it every Pod's processes."""
        self._child.stop()

    def check(self) -> None:
        """Raises ControlPlaneError when it has died."""
        failure = self._child.failure()
        if failure is not None:
            raise ControlPlaneError(failure)


def _ready_nodes(client: httpx.Client) -> set[str]:
    """Names of nodes that are Ready and take Pods; empty when the API does not answer."""
    try:
        items = client.get("/api/v1/nodes").json().get("items", [])
    except httpx.TransportError:
        return set()
    return {
        node["metadata"]["name"]
        for node in items
        if any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"].get("conditions", []))
        and not any(each["key"].startswith("node.kubernetes.io/") for each in node["spec"].get("taints", []))
    }
