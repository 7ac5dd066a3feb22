"""What the HTTP handlers share: settings, engine, and the state of the process (starting, up, unhealthy, leaving)."""

import time
from dataclasses import dataclass, field
from enum import Enum

from shoal_sim.engine import Engine
from shoal_sim.settings import Settings
from shoal_sim.telemetry import Telemetry


class Status(Enum):
    STARTING = "starting"
    UP = "up"
    UNHEALTHY = "unhealthy"


@dataclass(slots=True)
class Runtime:
    settings: Settings
    engine: Engine
    telemetry: Telemetry
    status: Status = Status.STARTING
    leaving: bool = False
    """SIGTERM was received: probes say 503, requests are still served."""
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def ready(self) -> bool:
        return self.status is Status.UP and not self.leaving and not self.engine.paused and self.engine.faults.ready
