"""Compiles the control plane (one Go program for six components) and says how far it is.

Called by `binaries` only, with the cache's lock held. Knows nothing about caching.
The estimate is honest because it is counted: `go list` says which packages are not in Go's build cache yet,
`go build -v` names each one as it is compiled, and what remains is extrapolated from the rate so far, by bytes of
source, because packages differ a hundredfold.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

KUBERNETES_VERSION = "v1.37.2"
GO_MINIMUM = (1, 26)
PACKAGE = "./cmd/controlplane"
BUILD_DEADLINE_S = 3600.0
_PREPARE_DEADLINE_S = 900.0
_DISK_BYTES_MIN = 6 * 1024**3
_CPU_S_PER_MB = 6.9
"""780 CPU-seconds for 113 MB of sources, measured cold; counts until the build's own rate is known."""
_LINK_S = 10.0
_REPORT_EVERY_S = 5.0

Progress = Callable[[str], None]


class BuildError(RuntimeError):
    """The control plane could not be built; the message tells a person what to do."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """How far a build is."""

    compiled: int
    total: int
    """Packages."""
    compiled_bytes: int
    total_bytes: int
    """Of their sources."""
    elapsed_s: float
    cores: int

    def remaining_s(self) -> float:
        """Seconds to go: from the measured cost at first, and more and more from the rate so far."""
        left = max(0, self.total_bytes - self.compiled_bytes)
        expected_s = left / 1e6 * _CPU_S_PER_MB / max(1, self.cores)
        if not self.compiled_bytes or not self.total_bytes:
            return expected_s + _LINK_S
        share = self.compiled_bytes / self.total_bytes
        observed_s = left * self.elapsed_s / self.compiled_bytes
        return share * observed_s + (1 - share) * expected_s + _LINK_S

    def line(self) -> str:
        """One line for a person."""
        if self.compiled >= self.total:
            return "Building the control plane: linking, about 10 s"
        share = 100 * self.compiled_bytes // max(1, self.total_bytes)
        return (
            f"Building the control plane: {self.compiled} of {self.total} packages ({share} %), "
            f"about {duration(self.remaining_s())} left"
        )


def duration(seconds: float) -> str:
    """`95` -> `1 min 35 s`."""
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"


def link_flags() -> str:
    """Linker flags; without the version, /version says v0.0.0-master and Helm's kubeVersion checks fail."""
    major, minor = KUBERNETES_VERSION.removeprefix("v").split(".")[:2]
    prefix = "-X k8s.io/component-base/version."
    settings = {"gitVersion": KUBERNETES_VERSION, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(["-s", "-w", *(f"{prefix}{name}={value}" for name, value in settings.items())])


def _environment() -> dict[str, str]:
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -buildvcs=false".strip()}


def parse_go_version(text: str) -> tuple[int, int] | None:
    """`go version go1.26.8 linux/amd64` -> (1, 26)."""
    found = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def check_go(sources: Path) -> None:
    """Refuses, with what to do, when there is no Go that can build `sources`."""
    how = (
        f"Go {GO_MINIMUM[0]}.{GO_MINIMUM[1]} or newer is needed to build the local control plane (once per machine). "
        "Get it from https://go.dev/dl/ or your package manager and put its bin folder on PATH, or set "
        "KUBEBUILDER_ASSETS to a folder that holds etcd, kube-apiserver, kube-controller-manager, kube-scheduler, "
        "kubectl and helm."
    )
    if shutil.which("go") is None:
        raise BuildError(f"`go` is not on PATH. {how}")
    found = subprocess.run(
        ["go", "version"], cwd=sources, env=_environment(), capture_output=True, text=True, timeout=300, check=False
    )
    version = parse_go_version(found.stdout)
    if found.returncode != 0 or version is None:
        raise BuildError(f"`go version` failed: {(found.stderr or found.stdout).strip()}. {how}")
    if version < GO_MINIMUM:
        raise BuildError(f"Go {version[0]}.{version[1]} is too old. {how}")


def _run(argv: list[str], sources: Path, what: str) -> str:
    try:
        done = subprocess.run(
            argv,
            cwd=sources,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=_PREPARE_DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{what} did not end within {_PREPARE_DEADLINE_S:.0f} s: {' '.join(argv)}") from error
    if done.returncode != 0:
        raise BuildError(f"{what} failed: {' '.join(argv)}\n{_last_lines(done.stderr.splitlines())}")
    return done.stdout


def _last_lines(lines: Iterable[str], count: int = 15) -> str:
    kept = [line for line in lines if not line.startswith("go: downloading")]
    return "\n".join(kept[-count:])


def packages_to_compile(sources: Path) -> dict[str, int]:
    """Packages that Go's build cache does not hold yet, with the bytes of their sources."""
    template = '{{if .Stale}}{{.ImportPath}}\t{{.Dir}}\t{{join .GoFiles "\t"}}{{end}}'
    listed = _run(["go", "list", "-deps", "-trimpath", "-f", template, PACKAGE], sources, "Listing the packages")
    packages = {}
    for line in filter(None, listed.splitlines()):
        name, folder, *files = line.split("\t")
        packages[name] = sum((Path(folder) / file).stat().st_size for file in files if file)
    return packages


def _check_disk(progress: Progress, packages: int) -> None:
    if packages < 500:
        return
    cache = Path(subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout.strip())
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    if free < _DISK_BYTES_MIN:
        progress(f"Only {free / 1024**3:.1f} GB free for Go's build cache ({cache}); the build wants about 5 GB")


def build(sources: Path, target: Path, progress: Progress) -> None:
    """Builds `sources` into the file `target`, calling `progress` with a line every few seconds."""
    check_go(sources)
    progress("Fetching the Go modules of the control plane (about 25 s the first time)")
    _run(["go", "mod", "download"], sources, "Fetching the modules")
    packages = packages_to_compile(sources)
    _check_disk(progress, len(packages))
    started = time.monotonic()
    argv = ["go", "build", "-v", "-trimpath", "-ldflags", link_flags(), "-o", str(target), PACKAGE]
    with subprocess.Popen(argv, cwd=sources, env=_environment(), stderr=subprocess.PIPE, text=True) as compiler:
        try:
            output = _follow(compiler, packages, started, progress)
            code = compiler.wait(timeout=60)
        finally:
            if compiler.poll() is None:
                compiler.kill()
    if code != 0:
        raise BuildError(f"`{' '.join(argv)}` failed with exit code {code}:\n{_last_lines(output)}")
    progress(f"Built the control plane in {duration(time.monotonic() - started)}")


def _follow(
    compiler: "subprocess.Popen[str]", packages: Mapping[str, int], started: float, progress: Progress
) -> list[str]:
    """Reads the compiler's output to its end, reporting; returns the lines that matter when it fails."""
    assert compiler.stderr is not None
    kept: list[str] = []
    compiled = compiled_bytes = 0
    total, total_bytes, cores = len(packages), sum(packages.values()), os.cpu_count() or 1
    progress(Estimate(0, total, 0, total_bytes, 0.0, cores).line())
    reported = started
    for line in compiler.stderr:
        now = time.monotonic()
        if now - started > BUILD_DEADLINE_S:
            raise BuildError(f"the build did not end within {duration(BUILD_DEADLINE_S)}")
        if line.strip() in packages:
            compiled += 1
            compiled_bytes += packages[line.strip()]
        else:
            kept.append(line.rstrip())
            del kept[:-200]
        if now - reported >= _REPORT_EVERY_S or compiled == total:
            reported = now
            progress(Estimate(compiled, total, compiled_bytes, total_bytes, now - started, cores).line())
    return kept
