"""Processes that tests start and that end with the test process, however that ends (a killed one runs no `finally`)."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO

from shoal_local import child


def popen(argv: Sequence[str], env: Mapping[str, str], output: IO[bytes]) -> "subprocess.Popen[bytes]":
    """Starts a program with stdout and stderr in a file; it is killed when the calling thread ends."""
    handle = child.order_file({"parent": os.getpid(), "argv": list(argv), "env": dict(env), "cwd": os.getcwd()})
    try:
        return subprocess.Popen(
            child.launcher_argv(handle), stdout=output, stderr=subprocess.STDOUT, pass_fds=(handle,)
        )
    finally:
        os.close(handle)
