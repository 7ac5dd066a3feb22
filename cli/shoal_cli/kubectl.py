"""Runs kubectl: the CLI's only way to a cluster, so that every login that works for kubectl works here.

Called by `status`, `explain`, `replay` and the demo. Each call has a deadline.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 20.0


class KubectlError(Exception):
    """kubectl is missing, failed, or took too long; the message is kubectl's own."""


@dataclass(frozen=True, slots=True)
class Target:
    """Which cluster and namespace; empty values are kubectl's own defaults."""

    kubeconfig: Path | None = None
    context: str = ""
    namespace: str = ""
    binary: Path | None = None

    def arguments(self) -> list[str]:
        given = {"--kubeconfig": self.kubeconfig, "--context": self.context, "--namespace": self.namespace}
        return [f"{flag}={value}" for flag, value in given.items() if value]


def output(target: Target, arguments: Sequence[str], *, stdin: str | None = None, timeout_s: float = TIMEOUT_S) -> str:
    """What kubectl prints. Raises KubectlError."""
    binary = str(target.binary) if target.binary else shutil.which("kubectl")
    if not binary:
        raise KubectlError("kubectl is not on PATH")
    command = [binary, *target.arguments(), *arguments]
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False, env=os.environ.copy()
        )
    except subprocess.TimeoutExpired as error:
        raise KubectlError(f"kubectl {' '.join(arguments)} took longer than {timeout_s:g} s") from error
    except OSError as error:
        raise KubectlError(str(error)) from error
    if done.returncode != 0:
        raise KubectlError(done.stderr.strip() or f"kubectl {' '.join(arguments)} failed with {done.returncode}")
    return done.stdout
