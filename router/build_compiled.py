"""Compiles the router's data path ahead of time: the same sources, by mypyc and a C compiler, as extension modules.

    python router/build_compiled.py              # `make compiled`: once per state of the sources, then a link
    python router/build_compiled.py --into DIR   # afresh into a folder

Either way the result is a folder for PYTHONPATH that holds all of `shoal_router`, compiled or not. `hatch_build.py`
puts it into the wheel that the router's image installs; tests and benchmarks call `ensure`. Why: docs/adr/0010.
"""

import argparse
import contextlib
import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Final

PACKAGE: Final = "shoal_router"
COMPILED: Final = (
    "model.py", "errors.py", "timers.py",
    "metrics/*.py", "index/*.py", "policy/*.py", "admission/*.py", "upstream/*.py", "dispatch/*.py",
    "server/connection.py", "server/head.py", "server/frontend.py", "server/listener.py",
)  # fmt: skip
"""What a request passes through, and what that calls. The rest starts, discovers and reports; it stays interpreted."""

ROOT: Final = Path(__file__).resolve().parents[1]
LINK: Final = ROOT / "build" / "compiled"
COMPILE_DEADLINE_S: Final = 1800.0
LOCK_DEADLINE_S: Final = COMPILE_DEADLINE_S
KEPT_BUILDS: Final = 4
"""Each is 4 MB."""
# -O3 was no faster. Debug information adds two thirds to the size and names no Python line.
OPTIMISATION, DEBUGGING = "2", "0"
_MYPY: Final = (
    "[mypy]\nstrict = True\n"
    # This is no place to find type errors: `make lint` has all packages at hand, a build only what runs.
    "warn_unused_ignores = False\n[mypy-httptools.*,xxhash.*]\nignore_missing_imports = True\n"
)
_EAGER: Final = "Treating generator comprehension as list"
"""What mypyc warns of: code that reads lazy, and is so only interpreted. Bodies have millions of ids."""

Progress = Callable[[str], None]


class BuildError(Exception):
    """The router could not be compiled; the message says what to do."""


def _silent(_line: str) -> None:
    return


def ensure(progress: Progress = _silent, root: Path = ROOT) -> Path:
    """The folder for PYTHONPATH, from the user's cache; compiles (1.5 minutes) where the cache lacks these sources."""
    found = cache() / key_of(root / "router" / PACKAGE, root / "crds" / "shoal_api")
    if not found.is_dir():
        found = _build(progress, root)
    os.utime(found)
    return found


def cache() -> Path:
    """Per-user folder of all builds."""
    from shoal_local import buildcache  # not at the top: an image compiles without the local cluster

    return buildcache.folder("compiled")


def key_of(package: Path, api: Path) -> str:
    """Name of the build of these sources: what they say, what compiles them, and for which Python."""
    digest = hashlib.sha256()
    tools = (metadata.version("mypy"), metadata.version("setuptools"), sysconfig.get_config_var("CC"))
    digest.update(repr((sys.version, sysconfig.get_config_var("SOABI"), platform.machine(), *tools)).encode())
    digest.update(Path(__file__).read_bytes())
    for folder in (package, api):
        for path in sorted(folder.rglob("*.py")):
            text = path.read_bytes()
            digest.update(f"{path.relative_to(folder.parent)} {len(text)}\n".encode() + text)
    return digest.hexdigest()[:16]


def _build(progress: Progress, root: Path) -> Path:
    from shoal_local import buildcache

    cache().mkdir(parents=True, exist_ok=True)
    told = "Another process is compiling the router; waiting for it"
    with buildcache.locked(cache() / ".lock", LOCK_DEADLINE_S, told, progress, BuildError):
        published, fresh = _publish(progress, root)
        if fresh:
            buildcache.prune(published, KEPT_BUILDS)
    return published


def _publish(progress: Progress, root: Path) -> tuple[Path, bool]:
    """The build of these sources, and whether it was made just now."""
    with tempfile.TemporaryDirectory(prefix=".building-", dir=cache()) as name:
        copy = Path(name) / "sources"
        _copy_sources(root, copy)  # what is hashed is what is compiled, whoever edits meanwhile
        published = cache() / key_of(copy / PACKAGE, copy / "shoal_api")
        if published.is_dir():
            return published, False
        progress("Compiling the router (about 1.5 minutes, once per state of its sources)")
        started = time.monotonic()
        _compile_apart(copy, Path(name) / "built")
        (Path(name) / "built").rename(published)
        progress(f"Compiled the router in {time.monotonic() - started:.0f} s")
    return published, True


def _copy_sources(root: Path, to: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "router" / PACKAGE, to / PACKAGE, ignore=ignored)
    shutil.copytree(root / "crds" / "shoal_api", to / "shoal_api", ignore=ignored)


def _compile_apart(sources: Path, target: Path) -> None:
    """In a process of its own: the compiler changes folder, patches setuptools and ends the process where it fails."""
    argv = [sys.executable, "-P", __file__, "--sources", str(sources), "--into", str(target)]
    try:
        done = subprocess.run(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=COMPILE_DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"compiling the router did not end within {COMPILE_DEADLINE_S:.0f} s") from None
    if done.returncode:
        raise BuildError("compiling the router failed:\n" + "\n".join(done.stdout.splitlines()[-30:]))


def compile_into(target: Path, sources: Path | None = None) -> None:
    """Compiles into an empty folder. Changes the working folder: for a process of its own.

    `sources` holds `shoal_router` and `shoal_api`; this checkout's by default. Raises BuildError; mypyc itself ends
    the process where it finds an error, having said which.
    """
    _check_compiler()
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    target = target.absolute()
    with tempfile.TemporaryDirectory(prefix="shoal-compile-") as name:
        work = Path(name)
        _copy_sources_or(sources, work / "sources")
        (work / "mypy.ini").write_text(_MYPY)
        os.chdir(work / "sources")  # relative paths: module names, tracebacks, and nothing of this machine inside
        words = ["--config-file", str(work / "mypy.ini"), "--cache-dir", str(work / "mypy"), *compiled_files(Path())]
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                extensions = mypycify(
                    words, opt_level=OPTIMISATION, debug_level=DEBUGGING, group_name=PACKAGE, target_dir=str(work / "c")
                )
        finally:
            print(said.getvalue(), end="", flush=True)
        if _EAGER in said.getvalue():
            raise BuildError("A generator that would run eagerly where it is compiled: write a list, or a loop.")
        for extension in extensions:  # a newer C compiler may find new things to warn about in generated code
            extension.extra_compile_args.append("-Wno-error")
        command = build_ext(Distribution({"name": PACKAGE, "ext_modules": extensions}))
        command.build_lib, command.build_temp = str(work / "lib"), str(work / "objects")
        command.ensure_finalized()
        command.run()
        # The sources lie beside what was made of them: tracebacks show lines, and an extension goes before a source.
        shutil.copytree(PACKAGE, work / "lib" / PACKAGE, dirs_exist_ok=True)
        _check_loads(work / "lib", work / "sources")
        shutil.copytree(work / "lib", target, dirs_exist_ok=True)


def _copy_sources_or(given: Path | None, to: Path) -> None:
    if given is None:
        _copy_sources(ROOT, to)
    else:
        shutil.copytree(given, to)


def compiled_files(folder: Path) -> list[str]:
    """The sources that are compiled, below a folder that holds the package. A package's own file has nothing in it."""
    found = {path for pattern in COMPILED for path in (folder / PACKAGE).glob(pattern)}
    return sorted(str(path) for path in found if path.name != "__init__.py")


def _check_compiler() -> None:
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if shutil.which(compiler) is None or not header.is_file():
        raise BuildError(
            f"a C compiler ({compiler}) and {header} are needed to compile the router "
            "(Debian: apt-get install gcc libc6-dev, and python3-dev for Debian's own Python)"
        )


def _check_loads(folder: Path, api: Path) -> None:
    """What links but does not load, or was left out, must not be published."""
    modules = [name.removesuffix(".py").replace("/", ".") for name in compiled_files(Path())]
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    file = importlib.import_module(name).__file__\n"
        "    assert not file.endswith('.py'), file\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(api)))}
    argv = [sys.executable, "-P", "-B", "-c", code, *modules]
    said = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if said.returncode:
        raise BuildError(f"the compiled router does not load:\n{said.stderr[-3000:]}")


def _link(folder: Path) -> None:
    """`build/compiled`, replaced at once: whoever runs from it never finds it missing."""
    LINK.parent.mkdir(exist_ok=True)
    fresh = LINK.with_name(f".compiled-{os.getpid()}")
    fresh.symlink_to(folder, target_is_directory=True)
    fresh.replace(LINK)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compiles the router's data path.")
    parser.add_argument("--into", type=Path, help="a folder to compile into, without the cache")
    parser.add_argument("--sources", type=Path, help="folder of shoal_router and shoal_api (default: this checkout's)")
    given = parser.parse_args()
    try:
        if given.into is not None:
            compile_into(given.into, given.sources)
            return
        folder = ensure(lambda line: print(line, file=sys.stderr, flush=True))
    except BuildError as error:
        raise SystemExit(str(error)) from error
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    _link(folder)
    print(folder)


if __name__ == "__main__":
    main()
