"""ai-dynamo's frontend with light workers of its own kind.

It cannot stand in front of HTTP engines: workers register with its runtime and speak its request plane. So it gets
workers that do as little as our light engines (`bench/peers/dynamo_worker.py`); discovery through a folder and
requests over TCP, so that neither etcd nor NATS is needed. It then routes by turns: its cache-aware mode needs a
model's tokenizer. One of its dependencies, a performance model that the frontend uses only when told to, cannot be
had from PyPI; the lock leaves it out. Called by `router.measure`.
"""

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from shoal_bench import processes
from shoal_bench.peers import install

NAME: Final = "dynamo"
WORKER: Final = install.LOCKS / "dynamo_worker.py"
READY_DEADLINE_S: Final = 90.0
_HOST: Final = "127.0.0.1"


@contextlib.contextmanager
def running(model: str, port: int, folder: Path, core: int, worker_cores: Sequence[int]) -> Iterator[processes.Process]:
    """The frontend, once it serves the model; it and its workers are stopped at the end. Raises NotReadyError."""
    meeting = folder / "discovery"
    shutil.rmtree(meeting, ignore_errors=True)
    meeting.mkdir(parents=True)
    env = {"DYN_FILE_KV": str(meeting), "DYN_LOG": "error", "HF_HUB_OFFLINE": "1"}
    python = str(install.ensure(NAME) / "python")
    with contextlib.ExitStack() as stack:
        for number, worker_core in enumerate(worker_cores):
            argv = [python, str(WORKER), model]
            worker = processes.start(f"worker-{number}", argv, folder, core=worker_core, env=env)
            stack.callback(worker.stop)
        argv = [python, "-m", "dynamo.frontend", "--http-host", _HOST, "--http-port", str(port),
                "--discovery-backend", "file", "--request-plane", "tcp", "--router-mode", "round-robin"]  # fmt: skip
        one = processes.start(NAME, argv, folder, core=core, env=env, url=f"http://{_HOST}:{port}")
        stack.callback(one.stop)
        processes.wait_http(one, f"{one.url}/v1/models", READY_DEADLINE_S, f'"{model}"')
        yield one
