"""Starts one program so that it cannot outlive us, then becomes it. Standalone: run as `python -I -S launch.py FD`.

Why a program between: `preexec_fn` would run Python in a forked copy of a threaded process, and a container's mounts
have to be made from inside its own namespaces. It imports the standard library only, so that it starts fast.

FD is an open file with JSON: `parent` (pid that must be alive), `argv`, `env`, `cwd`; for containers also `report` (FD
that gets the error when it cannot start and is closed by a successful exec), `root` (see `launch_root`), `join` (pid
of a process whose namespaces to enter) and `no_new_privileges`. `kernel` has the system calls.
"""

import importlib
import json
import os
import signal
import sys
from typing import Any


def _sibling(name: str) -> Any:
    """A module of our package, which `-I -S` keeps off the path; only what the start needs is imported."""
    package = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.dirname(package))
    try:
        return importlib.import_module(f"{os.path.basename(package)}.{name}")
    finally:
        sys.path.pop(0)


def main() -> None:
    """Reads the order, prepares the process, becomes the program."""
    with os.fdopen(int(sys.argv[1])) as order:
        spec = json.load(order)
    report = spec.get("report", 2)
    kernel = _sibling("kernel")
    try:
        # The signal comes when the parent dies; the check after it covers a parent that died before.
        kernel.die_with_parent(signal.SIGKILL)
        if os.getppid() != spec["parent"]:
            os._exit(128)
        if spec.get("join"):
            kernel.join_namespaces(spec["join"])
        elif spec.get("root"):
            _sibling("launch_root").enter(spec["root"])
        os.chdir(spec["cwd"])
        if spec.get("no_new_privileges"):
            kernel.no_new_privileges()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would pass that on
            signal.signal(number, signal.SIG_DFL)
        if report != 2:
            os.set_inheritable(report, False)
        os.execvpe(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606
    except OSError as error:
        where = error.filename or spec["argv"][0]
        os.write(report, f"{where}: {error.strerror}\n".encode())
        os._exit(128)


if __name__ == "__main__":
    main()
