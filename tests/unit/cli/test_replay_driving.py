"""Order and limits of a replay, with a sender that answers at once and a clock that the think times cannot stall."""

import asyncio
from array import array
from dataclasses import replace

import orjson
import pytest

from shoal_cli.replay import client, drive, results, trace
from shoal_cli.replay.outcome import Ending, Outcome, Usage
from shoal_testing import waiting


class Sender:
    """Completes every call; `gate` holds those of the named sessions until it is set."""

    def __init__(self, *held: str) -> None:
        self.log: list[tuple[str, str, int]] = []
        self.calls: list[client.Call] = []
        self.held = held
        self.gate = asyncio.Event()
        self.in_flight = 0
        self.in_flight_max = 0

    async def send(self, call: client.Call) -> Outcome:
        self.calls.append(call)
        self.log.append(("start", call.session, call.input_tokens))
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        try:
            if any(call.session.endswith(name) for name in self.held):
                async with asyncio.timeout(10):
                    await self.gate.wait()
            await asyncio.sleep(0)
        finally:
            self.in_flight -= 1
        self.log.append(("end", call.session, call.input_tokens))
        usage = Usage(call.input_tokens, call.output_tokens, call.bound_tokens)
        return replace(self.cancelled(call, 0.0), ending=Ending.COMPLETED, usage=usage)

    def cancelled(self, call: client.Call, started_s: float) -> Outcome:
        return Outcome(
            Ending.CANCELLED, call.session, call.input_tokens, call.bound_tokens, call.output_tokens,
            started_s=started_s,
        )  # fmt: skip


def turns(*sizes: int, think_s: float = 0.0) -> tuple[trace.Turn, ...]:
    return tuple(trace.Turn(size * 64, 3, array("Q", range(size)), think_s) for size in sizes)


def talk(
    name: str, *sizes: int, subagents: tuple[trace.SubAgent, ...] = (), think_s: float = 0.0
) -> trace.Conversation:
    return trace.Conversation(name, 64, 32, turns(*sizes, think_s=think_s), subagents)


def made(sender: Sender, **pace: object) -> tuple[drive.Driver, results.Recorder]:
    recorder = results.Recorder()
    pace_ = drive.Pace(**pace)  # type: ignore[arg-type]
    return drive.Driver(sender, recorder, model="m", pace=pace_), recorder  # type: ignore[arg-type]


async def test_turn_starts_after_the_one_before() -> None:
    sender = Sender()
    driver, recorder = made(sender)
    await driver.finish(driver.sessions([talk("a", 1, 2, 3)], count=1))
    assert [what for what, _, _ in sender.log] == ["start", "end"] * 3
    assert [outcome.bound_tokens for outcome in recorder.outcomes] == [0, 64, 128]
    body = orjson.loads(sender.calls[2].body)
    assert (body["max_tokens"], body["ignore_eos"], body["stream_options"]) == (3, True, {"include_usage": True})


async def test_sessions_run_side_by_side_up_to_their_number() -> None:
    sender = Sender()
    driver, recorder = made(sender)
    await driver.finish(driver.sessions([talk(name, 1, 2) for name in "abcdef"], count=2))
    assert sender.in_flight_max == 2
    assert len(recorder.outcomes) == 12
    assert recorder.sessions_active == recorder.in_flight == 0


async def test_concurrency_is_bounded() -> None:
    sender = Sender()
    driver, recorder = made(sender, concurrency_max=3)
    await driver.finish(driver.sessions([talk(str(n), 1, 2) for n in range(9)], count=9))
    assert sender.in_flight_max == 3
    assert len(recorder.outcomes) == 18


async def test_order_is_the_seed_s() -> None:
    orders = []
    for seed in (1, 1, 2):
        sender = Sender()
        driver, _ = made(sender, seed=seed)
        await driver.finish(driver.sessions([talk(name, 1) for name in "abcdefgh"], count=1))
        orders.append([call.session[0] for call in sender.calls])
    assert orders[0] == orders[1] != orders[2]


async def test_looping_gives_new_sessions_until_the_turns_are_used_up() -> None:
    sender = Sender()
    driver, recorder = made(sender, turns_max=5)
    await driver.finish(driver.sessions([talk("a", 1)], count=1, loop=True))
    assert len(recorder.outcomes) == 5
    assert len({call.session for call in sender.calls}) == 5
    assert len({call.body for call in sender.calls}) == 5


async def test_subagent_runs_beside_its_parent_which_waits_where_it_did() -> None:
    agent = trace.SubAgent("agent_1", after=0, joined_by=2, delay_s=0.0, system_tokens=0, turns=turns(5))
    sender = Sender("agent_1")
    driver, _ = made(sender)
    work = asyncio.create_task(driver.finish(driver.sessions([talk("a", 1, 2, 3, subagents=(agent,))], count=1)))
    await waiting.until(lambda: ("end", "a-0-0", 128) in sender.log)
    assert ("start", "a-0-0/agent_1", 320) in sender.log
    assert ("start", "a-0-0", 192) not in sender.log
    sender.gate.set()
    await work
    assert sender.log.index(("end", "a-0-0/agent_1", 320)) < sender.log.index(("start", "a-0-0", 192))
    assert next(call for call in sender.calls if "agent" in call.session).parent_session == "a-0-0"


async def test_stop_starts_no_turn_and_lets_the_one_in_flight_end() -> None:
    sender = Sender("-0")
    driver, recorder = made(sender)
    work = asyncio.create_task(driver.finish(driver.sessions([talk("a", 1, 2)], count=1)))
    await waiting.until(lambda: bool(sender.calls))
    driver.stop()
    sender.gate.set()
    await work
    assert [outcome.ending for outcome in recorder.outcomes] == [Ending.COMPLETED]


@pytest.mark.parametrize("how", ["grace", "give up"])
async def test_what_does_not_end_is_cancelled_and_counted(how: str) -> None:
    sender = Sender("-0")
    driver, recorder = made(sender, grace_s=0.01 if how == "grace" else 60.0)
    work = asyncio.create_task(driver.finish(driver.sessions([talk("a", 1, 2)], count=1)))
    await waiting.until(lambda: bool(sender.calls))
    driver.stop()
    if how == "give up":
        driver.give_up()
    await work
    assert [outcome.ending for outcome in recorder.outcomes] == [Ending.CANCELLED]
    assert recorder.in_flight == recorder.sessions_active == 0


async def test_think_time_ends_with_the_replay() -> None:
    sender = Sender()
    driver, recorder = made(sender)
    work = asyncio.create_task(driver.finish(driver.sessions([talk("a", 1, 2, think_s=3600.0)], count=1)))
    await asyncio.sleep(0)
    driver.stop()
    async with asyncio.timeout(10):
        await work
    assert recorder.outcomes == []


async def test_arrivals_keep_their_order_and_the_bound_counts_across_them() -> None:
    arrivals = [
        trace.Arrival(number / 1000, trace.Turn(1000, 2, array("Q", [7, 8 + number]), 0.0)) for number in range(3)
    ]
    sender = Sender()
    driver, recorder = made(sender)
    await driver.finish(driver.arrivals(arrivals))
    assert [outcome.bound_tokens for outcome in recorder.outcomes] == [0, 512, 512]
    first, second = (orjson.loads(call.body)["messages"][0]["content"] for call in sender.calls[:2])
    assert len(first) == 4000
    assert first[:2048] == second[:2048]
    assert first[2048:] != second[2048:]


async def test_arrivals_above_the_limit_wait() -> None:
    arrivals = [trace.Arrival(0.0, trace.Turn(64, 2, array("Q", [number]), 0.0)) for number in range(20)]
    sender = Sender()
    driver, recorder = made(sender, concurrency_max=4)
    await driver.finish(driver.arrivals(arrivals))
    assert sender.in_flight_max <= 4
    assert len(recorder.outcomes) == 20
