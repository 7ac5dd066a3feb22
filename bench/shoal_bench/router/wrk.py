"""Runs wrk: a script that gives every request a number of its own; its figures. Called by `measure`."""

import re
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shoal_bench import processes
from shoal_bench.peers import install
from shoal_bench.router.bodies import COUNTER_DIGITS, Template

GRACE_S: Final = 30.0

_SCRIPT: Final = """-- Each request is a template with the next number in its hole.
local before, after, count, number = {}, {}, %(count)d, 0

local function read(name)
  local file = assert(io.open("%(folder)s/" .. name, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

function init(args)
  number = tonumber(args[1])
  for place = 1, count do
    before[place] = read("before-" .. place)
    after[place] = read("after-" .. place)
  end
end

function request()
  number = number + 1
  local place = number %% count + 1
  return before[place] .. string.format("%%0%(digits)dd", number) .. after[place]
end
"""


@dataclass(frozen=True, slots=True)
class Result:
    requests: int
    seconds: float
    errors: str
    """Answers other than 2xx and socket errors, as wrk words them; empty for none."""

    @property
    def rps(self) -> float:
        return self.requests / self.seconds


class WrkError(Exception):
    """wrk failed or printed what is not understood."""


def prepare(templates: Sequence[Template], folder: Path) -> Path:
    """Writes the script and its texts; returns the script. Whom the requests go to, their head does not say."""
    folder.mkdir(parents=True, exist_ok=True)
    for place, one in enumerate(templates, 1):
        (folder / f"before-{place}").write_bytes(one.head("bench") + one.before)
        (folder / f"after-{place}").write_bytes(one.after)
    script = folder / "requests.lua"
    script.write_text(_SCRIPT % {"count": len(templates), "folder": folder, "digits": COUNTER_DIGITS})
    return script


def run(
    script: Path, url: str, seconds: float, connections: int, first_number: int, core: int | Collection[int] | None
) -> Result:
    """Raises WrkError."""
    command = [
        *processes.pin_argv(core), str(install.ensure("wrk") / "wrk"), "--threads", "1",
        "--connections", str(connections), "--duration", f"{max(1, round(seconds))}s", "--timeout", "30s",
        "--script", str(script), url, "--", str(first_number),
    ]  # fmt: skip
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + GRACE_S)
    except subprocess.TimeoutExpired as error:
        raise WrkError(f"wrk did not end in {seconds + GRACE_S} s") from error
    if found.returncode != 0:
        raise WrkError(f"wrk failed: {(found.stderr or found.stdout)[-500:]}")
    return parse(found.stdout)


def parse(output: str) -> Result:
    """Of wrk's report. Raises WrkError."""
    total = re.search(r"(\d+) requests in ([\d.]+)(ms|s|m)", output)
    if total is None:
        raise WrkError(f"no figures in what wrk said: {output[-500:]}")
    seconds = float(total[2]) * {"ms": 0.001, "s": 1.0, "m": 60.0}[total[3]]
    bad = re.findall(r"^\s*((?:Non-2xx|Socket errors).*)$", output, re.MULTILINE)
    return Result(int(total[1]), seconds, "; ".join(bad))
