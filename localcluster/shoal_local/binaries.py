"""Where the programs of the control plane are: built once per user and set of sources, then found again.

`ensure` is the one entry: `shoal local`, `make controlplane` and the test fixtures call it. It returns a folder that
holds every name of `PROGRAMS`. Two builds never run at once (a lock per user), and a folder appears whole or not at
all.
"""

import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from shoal_local import buildcache, gobuild

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "helm")
ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
_PROGRAM = "controlplane"
_LOCK_DEADLINE_S = gobuild.BUILD_DEADLINE_S
_KEPT_BUILDS = 4
"""Each is 160 MB."""


def _silent(_line: str) -> None:
    return


def sources() -> Path:
    """The folder with go.mod: beside this package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parent
    for folder in (package.parent, package / "go"):
        if (folder / "go.mod").is_file() and (folder / "cmd" / _PROGRAM / "main.go").is_file():
            return folder
    raise gobuild.BuildError(
        "The Go sources of the control plane are not part of this installation. Run from a checkout of the project, or "
        f"set {ASSETS_VARIABLE} to a folder that holds {', '.join(PROGRAMS)}."
    )


def cache_root() -> Path:
    """Per-user folder of all builds."""
    return buildcache.folder("controlplane")


def key_of(folder: Path) -> str:
    """Hash of all that decides what a build gives: modules, sources, linker flags, machine."""
    files = [folder / "go.mod", folder / "go.sum", *sorted((folder / "cmd").rglob("*.go"))]
    digest = hashlib.sha256(f"{gobuild.link_flags()} {platform.system()} {platform.machine()}".encode())
    for file in files:
        content = file.read_bytes()
        digest.update(f"\n{file.relative_to(folder).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def missing_programs(folder: Path) -> list[str]:
    """Names of `PROGRAMS` that `folder` has no executable of."""
    return [name for name in PROGRAMS if not os.access(folder / name, os.X_OK)]


def find(progress: gobuild.Progress = _silent) -> Path | None:
    """The folder with every program if there is one; never builds."""
    assets = os.environ.get(ASSETS_VARIABLE)
    if assets:
        missing = missing_programs(Path(assets))
        if not missing:
            return Path(assets)
        progress(f"{ASSETS_VARIABLE}={assets} is not used: it lacks {', '.join(missing)}; using our own build")
    published = cache_root() / key_of(sources())
    if missing_programs(published):
        return None
    with contextlib.suppress(OSError):  # a read-only cache is fine; the time only steers what is pruned
        os.utime(published)
    return published


def ensure(progress: gobuild.Progress = _silent) -> Path:
    """A folder with every program; builds it when there is none yet (about 7 minutes on two cores, once).

    Raises BuildError with what a person can do.
    """
    found = find(progress)
    if found is not None:
        return found
    folder = sources()
    published = cache_root() / key_of(folder)
    published.parent.mkdir(parents=True, exist_ok=True)
    told = "Another process is building the control plane; waiting for it"
    with buildcache.locked(cache_root() / ".lock", _LOCK_DEADLINE_S, told, progress, gobuild.BuildError):
        if missing_programs(published):
            _build_into(folder, published, progress)
            buildcache.prune(published, _KEPT_BUILDS)
    return published


def _build_into(folder: Path, published: Path, progress: gobuild.Progress) -> None:
    staging = Path(tempfile.mkdtemp(prefix=".building-", dir=published.parent))
    try:
        gobuild.build(folder, staging / _PROGRAM, progress)
        for name in PROGRAMS:
            (staging / name).symlink_to(_PROGRAM)
        _check_runs(staging)
        staging.chmod(0o755)
        shutil.rmtree(published, ignore_errors=True)  # a folder that lacked a program
        staging.rename(published)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _check_runs(folder: Path) -> None:
    """A build that links but does not start must not be published."""
    argv = [str(folder / "kube-apiserver"), "--version"]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    if said.returncode != 0 or gobuild.KUBERNETES_VERSION not in said.stdout:
        raise gobuild.BuildError(f"the build does not run: {said.stdout}{said.stderr}")
