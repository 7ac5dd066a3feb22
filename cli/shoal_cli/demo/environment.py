"""What the demo needs of the machine, looked at before anything starts; each gap is a sentence with its cure."""

import os
import shutil
import socket
import sys
from pathlib import Path

FREE_BYTES_MIN = 2 << 30
CORES_MIN = 2


def checkout() -> Path | None:
    """The checkout that this package runs from; None where it is installed without chart and examples."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "charts" / "shoal").is_dir() and (root / "examples" / "quickstart").is_dir() else None


def gaps(work: Path) -> list[str]:
    """Why the demo cannot run here; empty when it can."""
    found = []
    if sys.platform != "linux":
        found.append(f"Linux is needed (this is {sys.platform}): each Pod gets an address of its own in 127.0.0.0/8")
    elif not _loopback_whole():
        found.append("addresses such as 127.9.0.1 cannot be bound; allow the whole of 127.0.0.0/8 on the loopback")
    if checkout() is None:
        found.append(
            "chart and examples are missing: run the demo from a checkout of the project (git clone; make demo)"
        )
    free = shutil.disk_usage(work).free
    if free < FREE_BYTES_MIN:
        found.append(f"{work} has {free >> 20} MiB free; {FREE_BYTES_MIN >> 20} are needed")
    return found


def warnings() -> list[str]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [] if cores >= CORES_MIN else [f"{cores} core: the demo is made for {CORES_MIN}, and will be slow"]


def _loopback_whole() -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.9.0.1", 0))
        except OSError:
            return False
    return True
