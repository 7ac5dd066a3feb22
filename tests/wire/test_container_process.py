"""Container processes: their own root, joined commands, signals, and that none outlives its parent."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal_local.agent import process
from shoal_local.agent.process import Order

pytestmark = pytest.mark.wire

ENV = {"PATH": "/usr/bin:/bin"}


def order(tmp_path: Path, script: str, **root: Any) -> Order:
    view = {"hostname": "pod-0", "mounts": [], "read_only": False, **root} if root else None
    return Order(["/bin/sh", "-c", script], ENV, str(tmp_path), view)


def mount(source: Path, target: str, read_only: bool = False) -> dict[str, Any]:
    return {"source": str(source), "target": target, "read_only": read_only}


async def run(given: Order, log: Path) -> tuple[process.Exit, str]:
    started = await process.start(given, log)
    ended = await asyncio.wait_for(started.wait(), 20)
    return ended, await asyncio.to_thread(log.read_text)


def wait_for(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.02)


async def test_exit_code_signal_and_output(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert await run(order(tmp_path, "echo out; echo err >&2; exit 3"), log) == (process.Exit(3, 0), "out\nerr\n")
    ended, _ = await run(order(tmp_path, "kill -9 $$"), log)
    assert ended == process.Exit(137, 9)


async def test_program_that_is_not_there_is_a_start_error(tmp_path: Path) -> None:
    with pytest.raises(process.StartError, match="nothing-like-this"):
        await process.start(Order(["nothing-like-this"], ENV, str(tmp_path), None), tmp_path / "log")
    with pytest.raises(process.StartError, match="no command"):
        await process.start(Order([], ENV, str(tmp_path), None), tmp_path / "log")


async def test_root_has_volumes_at_their_paths_and_leaves_the_machine_alone(tmp_path: Path) -> None:
    token, data = tmp_path / "token", tmp_path / "data"
    for folder in (token, data):
        folder.mkdir()
    (token / "file").write_text("secret")
    mounts = [
        mount(token, "/var/run/secrets/kubernetes.io/serviceaccount", read_only=True),
        mount(data, "/models"),
        mount(token, "/models/nested", read_only=True),
    ]
    script = (
        "cat /var/run/secrets/kubernetes.io/serviceaccount/file; hostname; cat /models/nested/file; "
        "touch /models/new; touch /models/nested/no 2>/dev/null || echo :refused; echo x > /dev/null; pwd"
    )
    ended, text = await run(order(tmp_path, script, mounts=mounts), tmp_path / "log")
    assert ended.code == 0
    assert text == f"secretpod-0\nsecret:refused\n{tmp_path}\n"
    assert not {"models", "shoal-trial"} & set(os.listdir("/"))
    assert sorted(os.listdir(data)) == ["nested", "new"]


async def test_read_only_root_keeps_writable_volumes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    script = f"touch /data/in && echo written; touch {tmp_path}/out 2>/dev/null || echo refused; touch /x || true"
    _, text = await run(order(tmp_path, script, mounts=[mount(data, "/data")], read_only=True), tmp_path / "log")
    assert text.splitlines()[:2] == ["written", "refused"]
    assert not (tmp_path / "out").exists()


async def test_commands_run_inside_see_the_same_root(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "file").write_text("inside")
    given = order(tmp_path, "sleep 60", mounts=[mount(data, "/only-here")])
    started = await process.start(given, tmp_path / "log")
    try:
        inside = Order(["cat", "/only-here/file"], ENV, "/", given.root)
        assert await process.run_inside(started, inside, 20) == (0, "inside")
        with pytest.raises(TimeoutError):
            await process.run_inside(started, Order(["sleep", "60"], ENV, "/", given.root), 0.5)
    finally:
        started.kill()
        assert await started.wait() == process.Exit(137, 9)


async def test_group_goes_with_its_first_process(tmp_path: Path) -> None:
    started = await process.start(order(tmp_path, "sleep 600 & echo $!"), tmp_path / "log")
    await asyncio.wait_for(started.wait(), 20)
    grandchild = int((tmp_path / "log").read_text())
    await asyncio.to_thread(wait_for, lambda: _gone(grandchild))


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_no_container_outlives_a_killed_agent(tmp_path: Path) -> None:
    script = f"""
import asyncio, pathlib, time
from shoal_local.agent import process
from shoal_local.agent.process import Order
async def main():
    order = Order(["sleep", "600"], {{"PATH": "/usr/bin:/bin"}}, "/", None)
    started = await process.start(order, pathlib.Path({str(tmp_path / "log")!r}))
    print(started.pid, flush=True)
    time.sleep(600)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            pid = int(parent.stdout.readline())
            assert not _gone(pid)
            os.kill(parent.pid, signal.SIGKILL)
            wait_for(lambda: _gone(pid))
        finally:
            parent.kill()
