"""The policy's constants: where each is defined, its default, and the values that the sweep tries.

Nothing is told to the router that production has no place for: a constant is set in its own module while a run lasts.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Final

from shoal_router.admission import core, queue
from shoal_router.policy import cost, load, slices


@dataclass(frozen=True, slots=True)
class Constant:
    name: str
    """What tables call it."""
    module: ModuleType
    attribute: str
    values: tuple[float, ...]
    """Ascending, the default among them."""

    @property
    def default(self) -> float:
        return float(getattr(self.module, self.attribute))


CONSTANTS: Final = (
    Constant("beta: price of one that waits", cost, "BETA", (0.0, 0.3, 1.0, 3.0)),
    Constant("share of arrivals that wait", cost, "ARRIVING_SHARE", (0.0, 0.25, 0.5, 1.0, 2.0)),
    Constant("hold, s", load, "UNSTARTED_S_MAX", (0.1, 0.25, 0.5, 1.0, 2.0)),
    Constant("ageing, 1/s", queue, "AGEING_PER_S", (0.01, 0.05, 0.2, 1.0)),
    Constant("waiting that count, most", cost, "WAITING_MAX", (5.0, 50.0)),
    Constant("interference, tokens", load, "INTERFERENCE_TOKENS", (0, 32, 128)),
    Constant("KV pressure from", cost, "KV_SOFT_SHARE", (0.6, 0.8, 0.95)),
    Constant("waiting looked at", core, "WINDOW", (8, 64)),
    Constant("slices: fewest tokens", slices, "TOKENS_MIN", (1024, 2048, 4096, 8192)),
    Constant("slices: most tokens", slices, "TOKENS_MAX", (16_384, 32_768, 65_536)),
    Constant("slices: owed first tokens wait, s", slices, "OWED_WAIT_S", (0.0, 0.2, 0.5, 2.0)),
    Constant("slices: delay, times the prefill", slices, "DELAY_FACTOR", (0.3, 0.5, 1.5, 4.0)),
    Constant("slices: ageing, 1/s", slices, "AGEING_PER_S", (0.05, 0.2, 0.5, 1.0, 2.0)),
    Constant("slices: others expected for, s", slices, "OTHERS_S", (5.0, 30.0, 120.0)),
)


@contextmanager
def set_to(constant: Constant | None, value: float | None) -> Iterator[None]:
    """Inside, the constant has that value; None changes nothing. Fails on compiled modules."""
    if constant is None or value is None:
        yield
        return
    if not str(constant.module.__file__).endswith(".py"):
        raise RuntimeError(f"{constant.module.__file__} is compiled: its constants are inside")
    before = getattr(constant.module, constant.attribute)
    setattr(constant.module, constant.attribute, type(before)(value))
    try:
        yield
    finally:
        setattr(constant.module, constant.attribute, before)


def by_name(name: str) -> Constant:
    """Raises KeyError."""
    return {one.name: one for one in CONSTANTS}[name]
