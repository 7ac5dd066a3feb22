"""Installs peers: each Python one into an environment of its own from a hashed lock, nginx and wrk from Debian.

Locks are `bench/peers/<name>.txt`; their hash is part of the environment's name, so a new lock makes a new one.
`lock` writes one anew. Called by `peers.launch` and by the benchmarks, which also print `version`.
"""

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Final

import build_compiled
from shoal_bench import results
from shoal_bench.peers import interpreter
from shoal_local import buildcache

LOCKS: Final = results.ROOT / "bench" / "peers"
PACKAGES: Final = {"sglang-router": "sglang-router", "smg": "smg", "vllm-router": "vllm-router", "dynamo": "ai-dynamo"}
"""Peer and its distribution on PyPI."""
LEFT_OUT: Final = {"dynamo": "aisimulate"}
"""Peer and a dependency that PyPI holds only as a stub, which fetches the real one from elsewhere."""
DEBIAN: Final = {"nginx": "nginx-light", "wrk": "wrk"}
"""Program and its Debian package."""
OURS: Final = ("shoal", "shoal-interpreted")
"""Shoal's router as it ships, compiled, and the same sources interpreted."""
ROUTER_SOURCES: Final = results.ROOT / "router"
INSTALL_DEADLINE_S: Final = 900.0


class InstallError(Exception):
    """A peer cannot be had on this machine; the message says what to do."""


def ensure(name: str) -> Path:
    """The folder that holds the programs of a peer (`shoal`, a Python peer, or a Debian program); installs it if need
    be, which needs the network the first time."""
    if name in OURS:
        return Path(sys.executable).parent
    if name in DEBIAN:
        return _ensure_debian(name)
    lock = LOCKS / f"{name}.txt"
    cache = buildcache.folder("peers")
    environment = cache / f"{name}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        done = environment / ".installed"
        if not done.exists():
            print(f"installing {name} {version(name)} into {environment}", flush=True)
            _uv("venv", "--quiet", "--clear", "--python", sys.executable, str(environment))
            python = str(environment / "bin" / "python")
            _uv("pip", "sync", "--quiet", "--require-hashes", "--python", python, str(lock))
            done.touch()
    return environment / "bin"


@functools.cache
def compiled_router() -> Path:
    """The folder with Shoal's router as it ships; compiles it (1.5 minutes) where these sources were not yet. One run
    measures one build, also while somebody edits."""
    try:
        return build_compiled.ensure(print)
    except build_compiled.BuildError as error:
        raise InstallError(str(error)) from error


def version(name: str) -> str:
    """What a reader must know to get the same."""
    if name in OURS:
        return f"{metadata.version('shoal')} on {interpreter.chosen().describe()}"
    if name in DEBIAN:
        flag = "-v" if name == "nginx" else "--version"
        command = [str(_ensure_debian(name) / name), flag]
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
        match = re.search(r"\d+(\.\d+)+", found.stdout + found.stderr)
        return match.group() if match else "unknown"
    package = PACKAGES[name]
    match = re.search(rf"^{re.escape(package)}==([^\s;\\]+)", (LOCKS / f"{name}.txt").read_text(), re.MULTILINE)
    if match is None:
        raise InstallError(f"{LOCKS / name}.txt does not pin {package}")
    return match.group(1)


def lock(name: str) -> None:
    """Writes a peer's lock with the newest versions."""
    words = ["--universal", "--generate-hashes", "--no-emit-index-url", "--no-emit-find-links", "--no-header"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as overrides:
        if name in LEFT_OUT:
            overrides.write(f"{LEFT_OUT[name]} ; python_version < '3'\n")
            overrides.flush()
        words += ["--override", overrides.name, "--python-version", "3.11", "-", "-o", str(LOCKS / f"{name}.txt")]
        _uv("pip", "compile", "--quiet", "--upgrade", *words, text=PACKAGES[name])


def _ensure_debian(name: str) -> Path:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin")
    if found is None:
        package = DEBIAN[name]
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise InstallError(f"{name} is missing; install it (Debian: apt-get install {package}) and run again")
        print(f"installing {package} with apt-get", flush=True)
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for words in (("update",), ("install", "--yes", "--no-install-recommends", package)):
            _run(["apt-get", "-qq", *words], quiet)
        found = shutil.which(name, path="/usr/sbin:/usr/bin")
        if found is None:
            raise InstallError(f"apt-get installed {package}, but there is no {name}")
    return Path(found).parent


def _uv(*words: str, text: str | None = None) -> None:
    _run([str(Path(sys.executable).parent / "uv"), *words], dict(os.environ), text)


def _run(command: list[str], env: dict[str, str], text: str | None = None) -> None:
    try:
        subprocess.run(
            command, env=env, input=text, check=True, capture_output=True, text=True, timeout=INSTALL_DEADLINE_S
        )
    except subprocess.CalledProcessError as error:
        raise InstallError(f"{' '.join(command)} failed:\n{(error.stderr or error.stdout)[-2000:]}") from error
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"{' '.join(command)} took longer than {INSTALL_DEADLINE_S} s") from error


if __name__ == "__main__":
    for one in sys.argv[1:] or PACKAGES:
        lock(one)
        print(f"{one} {version(one)}")
