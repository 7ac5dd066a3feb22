"""Runs a trace against a client: conversations closed-loop, arrivals by their timestamps.

Closed loop: a turn starts when the one before has ended plus its think time divided by the speed-up. Sub-agents run
beside their parent; a parent turn waits for those that had ended before it in the recording. Ending is in two steps:
`stop()` starts no further turn, and what is in flight after `grace_s` is cancelled and counted so. Called by `run`
and by the demo, which adds sessions while others run.
"""

import asyncio
import random
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass

from shoal_cli.replay import bound, client, prompt, text, trace
from shoal_cli.replay.results import Recorder


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast, and how much."""

    speedup: float = 1.0
    think_max_s: float | None = None
    """Longest think time, before the speed-up; the traces' longest are hours."""
    concurrency_max: int = 1024
    """Requests in flight; a turn above it waits its turn."""
    turns_max: int | None = None
    grace_s: float = 30.0
    seed: int = 0


class Driver:
    """One replay: any number of `sessions` and `arrivals` at once, one recorder."""

    def __init__(self, sender: client.Client, recorder: Recorder, *, model: str, pace: Pace) -> None:
        self._sender = sender
        self._recorder = recorder
        self._model = model
        self._pace = pace
        self._slots = asyncio.Semaphore(pace.concurrency_max)
        self._stopping = asyncio.Event()
        self._given_up = asyncio.Event()
        self._turns = 0

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """No further turn starts. May be called at any time, also twice."""
        self._stopping.set()

    def give_up(self) -> None:
        """Stops, and does not wait for what is in flight."""
        self._stopping.set()
        self._given_up.set()

    async def finish(self, work: Coroutine[None, None, None]) -> None:
        """Runs `work` to its end, or to `grace_s` after `stop()`; then cancels what is left."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stopping.wait())
        given_up = asyncio.ensure_future(self._given_up.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await asyncio.wait({task, given_up}, timeout=self._pace.grace_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            given_up.cancel()
            if not task.done():
                task.cancel()
            await asyncio.wait({task})
        if not task.cancelled():
            task.result()

    async def sessions(
        self, conversations: Sequence[trace.Conversation], *, count: int, loop: bool = False, ramp_s: float = 0.0
    ) -> None:
        """`count` sessions at once; each takes the next conversation when it has done one, for ever with `loop`."""
        queue = _Conversations(conversations, loop=loop, seed=self._pace.seed)
        async with asyncio.TaskGroup() as group:
            for place in range(count):
                group.create_task(self._session(queue, delay_s=ramp_s * place / max(1, count)))

    async def arrivals(self, arrivals: Sequence[trace.Arrival]) -> None:
        texts = text.BlockText("mooncake", trace.MOONCAKE_BLOCK_TOKENS, blocks_max=1 << 15)
        cache = bound.InfiniteCache(trace.MOONCAKE_BLOCK_TOKENS)
        began_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number, one in enumerate(arrivals):
                await self._pause(began_s + one.at_s / self._pace.speedup - time.monotonic())
                # Taken before the prompt is made: late arrivals wait as numbers, not as megabytes of text.
                await self._slots.acquire()
                if not self._take_turn():
                    self._slots.release()
                    break
                turn = one.turn
                known = cache.insert(turn.blocks, turn.input_tokens)
                made = prompt.single(turn.input_tokens, turn.output_tokens, turn.blocks, texts)
                task = group.create_task(self._send(f"request-{number}", None, made, known))
                task.add_done_callback(lambda _: self._slots.release())

    async def _session(self, queue: "_Conversations", *, delay_s: float) -> None:
        await self._pause(delay_s)
        while not self.stopping:
            taken = queue.take()
            if taken is None:
                return
            self._recorder.sessions_active += 1
            try:
                await self._conversation(*taken)
            finally:
                self._recorder.sessions_active -= 1

    async def _conversation(self, name: str, conversation: trace.Conversation) -> None:
        block_tokens = conversation.block_tokens
        texts = text.BlockText(name, block_tokens)
        cache = bound.InfiniteCache(block_tokens)
        running: list[tuple[trace.SubAgent, asyncio.Task[None]]] = []
        script = prompt.Script(name, block_tokens, conversation.system_tokens, conversation.turns, texts)
        async with asyncio.TaskGroup() as group:

            def spawn(after: int) -> None:
                for agent in conversation.subagents:
                    if agent.after == after:
                        work = self._subagent(name, block_tokens, agent, texts, cache)
                        running.append((agent, group.create_task(work)))

            spawn(-1)
            for index, turn in enumerate(conversation.turns):
                joined = [task for agent, task in running if agent.joined_by == index]
                if joined:
                    await asyncio.wait(joined)
                if not await self._turn(name, None, script, index, turn, cache):
                    return
                spawn(index)

    async def _subagent(
        self, parent: str, block_tokens: int, agent: trace.SubAgent, texts: text.BlockText, cache: bound.InfiniteCache
    ) -> None:
        await self._pause(agent.delay_s / self._pace.speedup)
        name = f"{parent}/{agent.name}"
        script = prompt.Script(name, block_tokens, agent.system_tokens, agent.turns, texts)
        for index, turn in enumerate(agent.turns):
            if not await self._turn(name, parent, script, index, turn, cache):
                return

    async def _turn(
        self,
        session: str,
        parent: str | None,
        script: prompt.Script,
        index: int,
        turn: trace.Turn,
        cache: bound.InfiniteCache,
    ) -> bool:
        """Thinks, then sends. False when the replay is to end."""
        think_s = turn.think_s if self._pace.think_max_s is None else min(turn.think_s, self._pace.think_max_s)
        await self._pause(think_s / self._pace.speedup)
        async with self._slots:
            if not self._take_turn():
                return False
            known = cache.insert(turn.blocks, turn.input_tokens)
            await self._send(session, parent, script.prompt(index), known)
        return True

    async def _send(self, session: str, parent: str | None, made: prompt.Prompt, bound_tokens: int) -> None:
        call = client.Call(
            session=session,
            parent_session=parent,
            body=prompt.body(made, model=self._model, seed=self._pace.seed),
            input_tokens=made.tokens,
            bound_tokens=bound_tokens,
            output_tokens=made.output_tokens,
        )
        started_s = time.monotonic()
        self._recorder.in_flight += 1
        try:
            outcome = await self._sender.send(call)
        except asyncio.CancelledError:
            self._recorder.add(self._sender.cancelled(call, started_s))
            raise
        finally:
            self._recorder.in_flight -= 1
        self._recorder.add(outcome)

    async def _pause(self, seconds: float) -> None:
        """Sleeps, but no longer than until `stop()`."""
        if seconds <= 0 or self.stopping:
            return
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    def _take_turn(self) -> bool:
        """Counts a turn that is about to start; False when the replay is to end."""
        if self._pace.turns_max is not None and self._turns >= self._pace.turns_max:
            self.stop()
        if self.stopping:
            return False
        self._turns += 1
        return True


class _Conversations:
    """Hands out conversations in an order given by the seed, under a name of their own each round."""

    def __init__(self, conversations: Sequence[trace.Conversation], *, loop: bool, seed: int) -> None:
        self._order = list(conversations)
        random.Random(seed).shuffle(self._order)
        self._loop = loop
        self._seed = seed
        self._taken = 0

    def take(self) -> tuple[str, trace.Conversation] | None:
        round_number, place = divmod(self._taken, len(self._order))
        if round_number and not self._loop:
            return None
        self._taken += 1
        chosen = self._order[place]
        # Another round is another session: its prompts must not be found in the caches that the last one filled.
        return f"{chosen.name}-{self._seed}-{round_number}", chosen
