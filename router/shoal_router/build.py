"""What runs: the version, and whether the data path is compiled (`router/build_compiled.py`) or interpreted.

The log, `--version` and a metric say it, since the two differ by a factor in speed. A leaf.
"""

import functools
import importlib.util
from importlib import metadata
from typing import Final

_SAMPLE: Final = "shoal_router.dispatch.exchange"
"""All are compiled, or none."""


@functools.cache
def version() -> str:
    """Of the installed distribution; `unknown` where the router runs from a folder that nobody installed."""
    try:
        return metadata.version("shoal")
    except metadata.PackageNotFoundError:
        return "unknown"


def compiled() -> bool:
    found = importlib.util.find_spec(_SAMPLE)
    return found is not None and found.origin is not None and not found.origin.endswith(".py")


def describe() -> str:
    """`0.1.0 (compiled)`."""
    return f"{version()} ({'compiled' if compiled() else 'interpreted'})"
