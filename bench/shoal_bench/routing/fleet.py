"""Simulated engines as processes, started together and fresh for every run. Called by `runs`."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from shoal_bench import processes
from shoal_bench.routing.workloads import Engines

START_DEADLINE_S: Final = 60.0
STOP_GRACE_S: Final = 0.1
"""Nothing that these processes hold is needed when a run is over."""
MODEL: Final = "study"


@contextmanager
def running(engines: Engines, compression: float, folder: Path) -> Iterator[list[processes.Process]]:
    """All of them ready; stopped when the context closes."""
    with ExitStack() as stack:
        started = []
        for number in range(engines.count):
            port = processes.free_port()
            name = f"engine-{number}"
            url = f"http://127.0.0.1:{port}"
            process = processes.start(name, argv(engines, compression, port), folder, url=url)
            stack.callback(process.stop, STOP_GRACE_S)
            started.append(process)
        for process in started:
            processes.wait_http(process, f"{process.url}/ready", START_DEADLINE_S)
        yield started


def argv(engines: Engines, compression: float, port: int) -> list[str]:
    return [
        *(sys.executable, "-m", "shoal_sim", "engine", "--host", "127.0.0.1", "--port", str(port)),
        *("--model-path", f"/models/{MODEL}", "--served-model-name", MODEL),
        *("--profile", engines.profile, "--max-total-tokens", str(engines.kv_tokens)),
        *("--max-running-requests", str(engines.running_max), "--stream-interval", str(engines.stream_interval)),
        *("--page-size", "64", "--enable-cache-report", "--enable-metrics", "--load-seconds", "0"),
        *("--speedup", f"{compression:g}"),
    ]
