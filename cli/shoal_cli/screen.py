"""One console for all commands: as wide as the terminal, and wide enough not to cut tables where there is none."""

import sys

from rich.console import Console

WIDTH_WITHOUT_TERMINAL = 160


def console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=WIDTH_WITHOUT_TERMINAL)
