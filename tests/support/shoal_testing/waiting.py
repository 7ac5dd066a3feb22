"""Waiting for a condition in the same event loop, with a deadline; in place of sleeps of a guessed length."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool], deadline_s: float = 10.0) -> None:
    """Returns as soon as `condition` holds. Raises TimeoutError."""
    async with asyncio.timeout(deadline_s):
        while True:
            if condition():
                return
            await asyncio.sleep(0.002)
