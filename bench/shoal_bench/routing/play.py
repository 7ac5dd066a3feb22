"""One replay of a workload against one URL, in this process: the replay of `shoal replay`, with its outcomes kept.

The same seed for every router, so all get the same prompts in the same order; closed loops differ in when they ask.
"""

import asyncio
import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shoal_bench.routing import samples
from shoal_bench.routing.workloads import Workload
from shoal_cli.replay import client, drive, results, run, trace
from shoal_cli.replay.outcome import Outcome

SEED: Final = 1
PROGRESS_EVERY_S: Final = 15.0
CONCURRENCY_MAX: Final = 8192
"""More than are ever open: a request that waits in the client would hide what the router makes users wait."""


@dataclass(frozen=True, slots=True)
class Played:
    outcomes: Sequence[Outcome]
    samples: Sequence[samples.Sample]
    wall_s: float
    """Of this machine, to the end of the last answer."""
    cpu_s: float
    """Of this process."""


async def play(workload: Workload, read: trace.Trace, url: str, model: str, engine_urls: Sequence[str]) -> Played:
    pace = drive.Pace(
        speedup=workload.compression * workload.arrivals_factor,
        think_max_s=workload.think_max_s,
        concurrency_max=CONCURRENCY_MAX,
        grace_s=workload.grace_s / workload.compression,
        seed=SEED,
    )
    taken: list[samples.Sample] = []
    gc.collect()
    gc.freeze()  # the trace is millions of objects that no collection needs to walk
    async with run.connections(pace.concurrency_max) as session:
        recorder = results.Recorder()
        sender = client.Client(session, client.Settings(url=url), recorder.began_s)
        driver = drive.Driver(sender, recorder, model=model, pace=pace)
        beside = [
            asyncio.create_task(samples.watch(engine_urls, workload.compression, taken)),
            asyncio.create_task(_progress(recorder, workload.compression)),
        ]
        asyncio.get_running_loop().call_later(sending_s(workload, read) / workload.compression, driver.stop)
        cpu_s = time.process_time()
        try:
            await driver.finish(_work(workload, read, driver))
        finally:
            for task in beside:
                task.cancel()
            ended = await asyncio.gather(*beside, return_exceptions=True)
        wall_s = time.monotonic() - recorder.began_s
        cpu_s = time.process_time() - cpu_s
    for one in ended:
        if isinstance(one, Exception) and not isinstance(one, asyncio.CancelledError):
            raise one
    return Played(recorder.outcomes, taken, wall_s, cpu_s)


def sending_s(workload: Workload, read: trace.Trace) -> float:
    """Seconds of the model in which requests are sent; what is in flight then has `grace_s`, so a run always ends."""
    if workload.duration_s is not None:
        return workload.duration_s
    if read.kind != "mooncake":
        raise ValueError(f"{workload.name}: a closed loop needs a duration")
    return read.arrivals[-1].at_s / workload.arrivals_factor + 1.0


async def _work(workload: Workload, read: trace.Trace, driver: drive.Driver) -> None:
    if read.kind == "mooncake":
        await driver.arrivals(read.arrivals)
        return
    count = workload.sessions or len(read.conversations)
    await driver.sessions(read.conversations, count=count, ramp_s=workload.ramp_s / workload.compression)


async def _progress(recorder: results.Recorder, compression: float) -> None:
    while True:
        await asyncio.sleep(PROGRESS_EVERY_S)
        live = recorder.live()
        print(
            f"    {live.elapsed_s * compression:5.0f} s of the model: {live.requests} answered, {live.in_flight} open, "
            f"{live.failed} failed",
            flush=True,
        )
