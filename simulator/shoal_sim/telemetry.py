"""What the engine counts, for /v1/loads and /metrics: read by handlers, written by the engine's loop."""

import time

from shoal_sim.request import Request
from shoal_sim.scheduler import Batch, Scheduler


class Telemetry:
    def __init__(self) -> None:
        self.prefill_busy_s = 0.0
        self.gen_throughput = 0.0

    def step(self, batch: Batch, duration_s: float, scheduler: Scheduler) -> None:
        if batch.prefill:
            self.prefill_busy_s += duration_s

    def idle(self) -> None:
        pass

    def finished(self, request: Request) -> None:
        pass
