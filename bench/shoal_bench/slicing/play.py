"""Plays the load against one address: sessions and cold prompts on one event loop; every wait has a deadline.

Sessions first fill their context through the router, all at once, which also teaches it where they are. Then turns
run, after the lead-in cold prompts come. Called by `runs`.
"""

import asyncio
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shoal_bench.slicing import load as loads
from shoal_bench.slicing.http import Answer, ask
from shoal_bench.slicing.load import Conversation, Load

REQUEST_DEADLINE_S: Final = 90.0
EXPLAIN: Final = {"x-shoal-explain": "1"}
"""Shoal says then how many slices it sent; others ignore it."""


class LoadError(Exception):
    """The load could not be played: contexts were not filled."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One request of the measured time; `number` of its session, or of the cold prompt."""

    cold: bool
    number: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class Played:
    load: Load
    began_s: float
    """Of the measured time, by `time.monotonic`."""
    sent: tuple[Sent, ...]
    """What was sent in the measured time, by the time it was sent."""
    lead_in: tuple[Sent, ...]
    """What was sent before it: shown by pictures, in no figure but the count of failures."""
    cpu_s: float
    """Of this process, from the start of the measured time to the last answer."""
    wall_s: float

    @property
    def until_s(self) -> float:
        return self.began_s + self.load.measured_s


async def play(load: Load, url: str, model: str, seed: int, on_start: Callable[[], None] = lambda: None) -> Played:
    """`on_start` is called when the measured time starts. Raises LoadError."""
    host, _, port = url.removeprefix("http://").rstrip("/").partition(":")
    player = _Player(load, host, int(port or 80), model, seed)
    gc.collect()
    gc.freeze()
    try:
        await player.fill()
        return await player.run(on_start)
    finally:
        gc.unfreeze()


class _Player:
    def __init__(self, load: Load, host: str, port: int, model: str, seed: int) -> None:
        self._load, self._host, self._port, self._model, self._seed = load, host, port, model, seed
        self._conversations = [loads.session(load, model, seed, number) for number in range(load.sessions)]
        # Made beforehand: a body of 65,536 ids takes longer to make than a token takes to come.
        self._cold_times = loads.cold_times(load, seed)
        self._cold_bodies = [
            loads.cold(load, model, seed, number).body(load.cold_out_tokens) for number in range(len(self._cold_times))
        ]
        self._sent: list[Sent] = []

    async def fill(self) -> None:
        answers = await asyncio.gather(
            *(self._ask(one.body(1), 1, f"session-{number}") for number, one in enumerate(self._conversations))
        )
        for one in self._conversations:
            one.answered(1)
        failed = [one.error for one in answers if one.error]
        if failed:
            raise LoadError(f"{len(failed)} contexts could not be filled, the first: {failed[0]}")

    async def run(self, on_start: Callable[[], None]) -> Played:
        began_s = time.monotonic() + self._load.lead_in_s
        cpu_s = 0.0

        def start() -> None:
            nonlocal cpu_s
            cpu_s = time.process_time()
            on_start()

        timer = asyncio.get_running_loop().call_later(self._load.lead_in_s, start)
        try:
            async with asyncio.TaskGroup() as group:
                for number, one in enumerate(self._conversations):
                    group.create_task(self._session(number, one, began_s))
                for number, at_s in enumerate(self._cold_times):
                    group.create_task(self._cold(number, began_s + at_s))
        finally:
            timer.cancel()
        ordered = sorted(self._sent, key=lambda one: one.answer.sent_s)
        return Played(
            load=self._load,
            began_s=began_s,
            sent=tuple(one for one in ordered if one.answer.sent_s >= began_s),
            lead_in=tuple(one for one in ordered if one.answer.sent_s < began_s),
            cpu_s=time.process_time() - cpu_s,
            wall_s=time.monotonic() - began_s,
        )

    async def _session(self, number: int, conversation: Conversation, began_s: float) -> None:
        load = self._load
        for pause_s in loads.pauses(load, self._seed, number):
            await asyncio.sleep(pause_s)
            if time.monotonic() >= began_s + load.measured_s:
                return
            conversation.say(load.turn_tokens)
            body = conversation.body(load.out_tokens)
            answer = await self._ask(body, load.out_tokens, f"session-{number}")
            self._sent.append(Sent(False, number, answer))
            conversation.answered(load.out_tokens)

    async def _cold(self, number: int, at_s: float) -> None:
        await asyncio.sleep(max(0.0, at_s - time.monotonic()))
        answer = await self._ask(self._cold_bodies[number], self._load.cold_out_tokens, f"cold-{number}", explain=True)
        self._sent.append(Sent(True, number, answer))

    async def _ask(self, body: bytes, tokens: int, session: str, explain: bool = False) -> Answer:
        headers = {loads.SESSION_HEADER: session, **(EXPLAIN if explain else {})}
        return await ask(self._host, self._port, self._load.kind, body, tokens, headers, REQUEST_DEADLINE_S)
