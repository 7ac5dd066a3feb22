"""The interpreter that Shoal's router is measured with: the fastest of this version on the machine.

Images hold an interpreter that was built with profile-guided and link-time optimisation, and so do distributions;
version managers often build plain ones, a tenth to a fifth slower. A benchmark of what ships must not measure that. The
candidates are the interpreter that runs this and the distribution's of the same version; the choice is timed, not
guessed. Called by `peers.launch`, and by reports, which print `describe`.
"""

import functools
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shoal_local import buildcache

TIMED: Final = """
import time
def once():
    seen, start = {}, time.perf_counter()
    for number in range(60000):
        key = b"%d" % (number & 1023)
        seen[key] = (number, seen.get(key), key.find(b"7"))
    return time.perf_counter() - start
print(min(once() for _ in range(5)))
"""
"""Bytes, dictionaries, tuples and calls: what a relay is made of."""
DEADLINE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Interpreter:
    program: Path
    version: str
    ratio: float
    """Its time over that of the interpreter which runs the benchmark."""

    def describe(self) -> str:
        if self.ratio == 1.0:
            return f"CPython {self.version}"
        return f"CPython {self.version} of the distribution, {self.ratio:.2f} of the running interpreter's time"


@functools.cache
def chosen() -> Interpreter:
    """The fastest one. One run of a benchmark measures with one interpreter."""
    own = Interpreter(Path(sys.executable), sys.version.split()[0], 1.0)
    other = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
    if not other.exists() or other.resolve() == own.program.resolve():
        return own
    own_s, other_s = _seconds(own.program), _seconds(other)
    if other_s >= own_s:
        return own
    version = _output([str(other), "-c", "import sys; print(sys.version.split()[0])"])
    return Interpreter(_environment(other), version, other_s / own_s)


def _seconds(program: Path) -> float:
    return float(_output([str(program), "-I", "-c", TIMED]))


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=DEADLINE_S).stdout.strip()


def _environment(program: Path) -> Path:
    """An environment of that interpreter which sees the packages of this one."""
    folder = buildcache.folder("peers") / f"shoal-{program.name}"
    subprocess.run(
        [str(program), "-m", "venv", "--without-pip", str(folder)], check=True, capture_output=True, timeout=DEADLINE_S
    )
    inside = folder / "lib" / program.name / "site-packages"
    (inside / "shoal.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    return folder / "bin" / "python"
