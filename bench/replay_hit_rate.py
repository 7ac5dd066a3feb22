"""Hit rate of the coding-agent replay through four simulated replicas and one router, without Kubernetes.

    python bench/replay_hit_rate.py [--replicas 4] [--sessions 40] [--turns N] [--json OUT]

Starts the engines (Kimi-K2.5 on 8 x B200, FP8 KV cache) and the router as processes on loopback, replays the committed
sample with checked answers, prints the table, and ends all of it. Exits 1 if a request failed, or if the token-weighted
hit rate is more than 0.03 below what an infinite cache would reach on the same requests.
"""

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import orjson
from rich.console import Console

from shoal_api import routes
from shoal_cli import loops
from shoal_cli.replay import check, client, drive, gpus, run, show, trace

ROOT = Path(__file__).resolve().parents[1]
MODEL = "kimi-k2.5"
GPUS_PER_REPLICA = 8
START_S = 30.0
STOP_S = 10.0
BELOW_BOUND_MAX = 0.03


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", type=Path, default=ROOT / "examples/traces/coding-agents-sample.jsonl.gz")
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--sessions", type=int, default=40)
    parser.add_argument("--turns", type=int)
    parser.add_argument("--speedup", type=float, default=5.0, help="of engines and think times alike")
    parser.add_argument("--think-max", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder, fleet(arguments, Path(folder)) as url:
        plan = run.Plan(
            trace=trace.read(arguments.trace),
            settings=client.Settings(url=url, expected=check.expectation()),
            pace=drive.Pace(
                speedup=arguments.speedup,
                think_max_s=arguments.think_max,
                turns_max=arguments.turns,
                seed=arguments.seed,
            ),
            model=MODEL,
            sessions=arguments.sessions,
            ramp_s=10.0,
            gpu_source=gpus.Source(count=arguments.replicas * GPUS_PER_REPLICA),
        )
        summary = loops.run(run.run(plan, console))
    console.print(show.report(summary))
    for kind, example in summary.error_examples.items():
        console.print(f"{kind}: {example}", highlight=False, markup=False)
    console.print("requests a replica: " + ", ".join(f"{name} {count}" for name, count in summary.replicas.items()))
    if arguments.json:
        arguments.json.write_bytes(orjson.dumps(summary.to_json(), option=orjson.OPT_INDENT_2) + b"\n")
    bound, rate = summary.hit_rate_bound, summary.hit_rate
    if summary.failed or rate is None or bound is None or rate < bound - BELOW_BOUND_MAX:
        raise SystemExit(1)


@contextlib.contextmanager
def fleet(arguments: argparse.Namespace, folder: Path) -> Iterator[str]:
    """Engines and a router in front of them; gives the router's URL."""
    with contextlib.ExitStack() as stack:
        engines = []
        for number in range(arguments.replicas):
            port = free_port()
            command = [sys.executable, "-m", "shoal_sim", "engine", "--host", "127.0.0.1", "--port", str(port)]
            command += ["--model-path", f"/models/{MODEL}", "--served-model-name", MODEL, "--tp-size", "8"]
            command += ["--page-size", "64", "--enable-cache-report", "--enable-metrics", "--load-seconds", "0"]
            command += ["--kv-cache-dtype", "fp8_e4m3", "--profile", "kimi-k2.5-b200"]
            command += ["--speedup", str(arguments.speedup)]
            stack.enter_context(process(command, folder / f"engine-{number}.log"))
            engines.append(f"http://127.0.0.1:{port}")
        for url in engines:
            wait_for(f"{url}/ready")
        port, admin = free_port(), free_port()
        write_tables(folder, engines)
        command = [sys.executable, "-m", "shoal_router", "--routes", str(folder / "routes.json")]
        command += ["--replicas", str(folder / "replicas.json"), "--host", "127.0.0.1"]
        command += ["--port", str(port), "--admin-port", str(admin)]
        stack.enter_context(process(command, folder / "router.log"))
        wait_for(f"http://127.0.0.1:{admin}/readyz")
        yield f"http://127.0.0.1:{port}"


def write_tables(folder: Path, engines: list[str]) -> None:
    service = routes.Service(name="kimi", served_name=MODEL)
    table = routes.RouteTable(generation="bench", services=(service,))
    replicas = routes.StaticReplicas(
        replicas=tuple(
            routes.StaticReplica(name=f"kimi-{number}", service="kimi", url=url, gpu="B200")
            for number, url in enumerate(engines)
        )
    )
    (folder / "routes.json").write_text(table.model_dump_json())
    (folder / "replicas.json").write_text(replicas.model_dump_json())


@contextlib.contextmanager
def process(command: list[str], log: Path) -> Iterator[None]:
    """A process that runs while the context is open; what it said is shown when it ended by itself."""
    paths = os.pathsep.join(str(ROOT / name) for name in ("crds", "router", "simulator"))
    with log.open("wb") as output:
        started = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": paths}
        )
    try:
        yield
        if started.poll() is not None:
            sys.stderr.write(f"{command[2]} ended with {started.returncode}:\n{log.read_text()[-3000:]}\n")
    finally:
        started.terminate()
        try:
            started.wait(STOP_S)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait(STOP_S)


def wait_for(url: str) -> None:
    end_s = time.monotonic() + START_S
    with httpx.Client(trust_env=False, timeout=2.0) as session:
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if session.get(url).status_code == 200:
                    return
            if time.monotonic() > end_s:
                raise SystemExit(f"{url} did not become ready within {START_S:.0f} s")
            time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
