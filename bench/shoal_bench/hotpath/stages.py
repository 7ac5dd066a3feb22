"""Which stage of a request a stack belongs to, and each stage's share and time. Pure. Called by `report` and `flame`.

One table says it. The innermost frame that the table knows decides; a frame that it does not know, such as the policy's
functions or a library's, counts for whoever called it.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shoal_bench.hotpath.frames import COLLECTOR, Stack

WRITES: Final = "kernel: writes"
LOOP: Final = "kernel: reads; event loop"
PARSING: Final = "HTTP parsing"
CHECKS: Final = "JSON and checks"
PROMPT: Final = "prompt bytes and hashing"
BINDING: Final = "binding: admission, policy, index"
RELAYING: Final = "building and relaying bytes"
FINISH: Final = "finish and learning"
FREEING: Final = "freeing objects"
REST: Final = "the rest"
STAGES: Final = (WRITES, LOOP, PARSING, CHECKS, PROMPT, BINDING, RELAYING, FINISH, FREEING, REST)

_TABLE: Final[Mapping[str, tuple[str, ...]]] = {
    WRITES: ("kernel write",),
    LOOP: ("kernel read", "kernel epoll", "uvloop"),
    PARSING: ("llhttp", "server.head", "server.connection", "upstream.connection"),
    CHECKS: ("orjson", "dispatch.checks", "dispatch.api", "server.frontend"),
    PROMPT: ("xxhash", "index.prompt", "index.chain", "index.session", "index.request", "index.caller"),
    BINDING: (
        "admission.core", "admission.queue", "dispatch.exchange:Exchange.start", "dispatch.exchange:Exchange.__init__",
        "dispatch.exchange:Exchange._begin", "dispatch.exchange:Exchange", "dispatch.dispatcher",
    ),
    RELAYING: (
        "dispatch.exchange", "dispatch.splice", "dispatch.reply", "dispatch.sse", "upstream.pool",
        "upstream.connection:Connection.send", "server.connection:Connection.answer",
        "server.connection:Connection.start", "server.connection:Connection.body", "server.connection:Connection.end",
        "server.connection:Connection._head_bytes",
    ),
    FINISH: (
        "admission.core:ServiceCore.finish", "admission.core:ServiceCore.release",
        "admission.core:ServiceCore.first_token", "admission.core:ServiceCore.tokens",
        "dispatch.exchange:Exchange._succeed", "dispatch.exchange:Exchange._leave", "dispatch.exchange:Exchange._count",
        "dispatch.handle", "dispatch.breaker", "dispatch.sse:last_usage", "dispatch.sse:_number",
        "dispatch.sse:_past_space", "dispatch.sse:Scanner.usage",
    ),
    FREEING: (COLLECTOR,),
    REST: ("dispatch.health", "upstream.call", "server.admin", "server.metrics"),
}  # fmt: skip
"""Functions before their modules: `module:Class.method` goes before `module`."""

_STAGE_OF: Final[Mapping[str, str]] = {name: stage for stage, names in _TABLE.items() for name in names}
assert len(_STAGE_OF) == sum(len(names) for names in _TABLE.values()), "a name belongs to one stage"


@dataclass(frozen=True, slots=True)
class Share:
    """Of one stage."""

    stage: str
    samples: int
    share: float
    us: float
    """Of the CPU that one request takes."""


def stage_of(stack: Stack) -> str:
    """The rest where no frame is known."""
    for name in reversed(stack):
        found = of_frame(name)
        if found is not None:
            return found
    return REST


def of_frame(name: str) -> str | None:
    """None where the caller decides."""
    if name.startswith("freeing "):
        return FREEING
    exact = _STAGE_OF.get(name)
    return exact if exact is not None else _STAGE_OF.get(name.partition(":")[0])


def names() -> frozenset[str]:
    """All that the table knows."""
    return frozenset(_STAGE_OF)


def shares(found: Mapping[Stack, int], cpu_us: float) -> list[Share]:
    """One a stage, in the order of a request; `cpu_us` is what one request takes in all. Raises ValueError for a
    profile without samples."""
    samples: Counter[str] = Counter()
    for stack, count in found.items():
        samples[stage_of(stack)] += count
    total = samples.total()
    if total == 0:
        raise ValueError("a profile without samples")
    return [Share(one, samples[one], samples[one] / total, cpu_us * samples[one] / total) for one in STAGES]


def own(found: Mapping[Stack, int], count: int) -> list[tuple[str, float]]:
    """The frames in which most samples ended, and their share of all; machinery counts for who called it."""
    ends: Counter[str] = Counter()
    for stack, samples in found.items():
        ends[stack[-1] if stack else "interpreter"] += samples
    total = ends.total()
    return [(name, samples / total) for name, samples in ends.most_common(count)]
