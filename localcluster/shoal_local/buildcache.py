"""Folders of builds, for what is built once per state of its sources: where they are, their lock, what is kept.

Used for the control plane (`shoal_local.binaries`), the compiled router (router/build_compiled.py) and the peers of
benchmarks. The caller holds the lock while it builds and prunes.
"""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path


def folder(kind: str) -> Path:
    """Per-user folder of all builds of one kind; it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "shoal" / kind


@contextlib.contextmanager
def locked(
    path: Path, deadline_s: float, waiting: str, progress: Callable[[str], None], error: type[Exception]
) -> Iterator[None]:
    """Holds the lock; says `waiting` where another process has it, and raises `error` if that does not end in time."""
    with path.open("a+") as handle:
        deadline = time.monotonic() + deadline_s
        told = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    progress(waiting)
                    told = True
                if time.monotonic() > deadline:
                    raise error(f"{path} is still locked by another build; is it stuck?") from None
                time.sleep(0.2)
        yield


def prune(newest: Path, kept: int) -> None:
    """Keeps the `kept` builds used last, and nothing of builds that were killed."""
    builds = [path for path in newest.parent.iterdir() if path.is_dir() and not path.name.startswith(".")]
    for path in sorted(builds, key=lambda each: each.stat().st_mtime, reverse=True)[kept:]:
        shutil.rmtree(path, ignore_errors=True)
    for path in newest.parent.glob(".building-*"):
        shutil.rmtree(path, ignore_errors=True)
