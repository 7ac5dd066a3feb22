"""Scheduler and profile together, in virtual time: long prompts hold up others as measured on a real engine.

Measured: SGLang 0.5.17 on one H200, the 8B shape, chunks of 8192, 16 running streams of 1,104 tokens.
"""

import pytest

from shoal_sim import profiles
from shoal_sim.policy import Policy
from shoal_sim.prompt import Prompt
from shoal_sim.radix import RadixCache
from shoal_sim.request import Limits, Request, Signal
from shoal_sim.scheduler import Scheduler

PROFILE = profiles.load_profiles()["llama-8b-h200"]


class Clock:
    """Steps a scheduler and adds up what the steps take."""

    def __init__(self, mixed_chunk: bool = False) -> None:
        policy = Policy(page_tokens=64, max_running=128, chunk_tokens=8192, mixed_chunk=mixed_chunk)
        self.scheduler = Scheduler(policy, RadixCache(10_000))
        self.now_s = 0.0
        self.decoded_at_s: list[float] = []

    def submit(self, rid: str, tokens: int, output: int) -> Request:
        request = Request(rid, Prompt(f"{rid:>4}".encode() * tokens, 64), Limits(output), Signal())
        request.token_budget = output
        self.scheduler.submit(request)
        return request

    def step(self) -> None:
        batch = self.scheduler.plan()
        assert batch is not None
        if batch.prefill:
            self.now_s += PROFILE.prefill_s([(piece.tokens, piece.prefix) for piece in batch.prefill])
        else:
            self.now_s += PROFILE.decode_s(len(batch.decode), batch.decode_kv_tokens)
        if batch.decode:
            self.decoded_at_s.append(self.now_s)
        self.scheduler.complete(batch, self.now_s)

    def until_first_token(self, request: Request) -> float:
        start = self.now_s
        while not request.output:
            self.step()
        return self.now_s - start


def with_streams(mixed_chunk: bool = False) -> Clock:
    clock = Clock(mixed_chunk)
    for index in range(16):
        clock.submit(f"s{index}", 1104, 10_000)
    while not clock.decoded_at_s:
        clock.step()
    for _ in range(10):
        clock.step()
    clock.decoded_at_s = clock.decoded_at_s[-1:]
    return clock


@pytest.mark.parametrize(("tokens", "ttft_s", "gap_s"), [(4096, 0.100, 0.090), (32768, 1.198, 1.185)])
def test_an_arriving_prompt_stops_running_streams(tokens: int, ttft_s: float, gap_s: float) -> None:
    clock = with_streams()
    assert clock.until_first_token(clock.submit("long", tokens, 10)) == pytest.approx(ttft_s, rel=0.08)
    clock.step()
    before, after = clock.decoded_at_s
    # The engine prepares the next decode step while the last chunk runs; the simulator does one after the other.
    assert after - before == pytest.approx(gap_s, rel=0.25)


def test_mixed_chunks_keep_streams_going() -> None:
    clock = with_streams(mixed_chunk=True)
    clock.until_first_token(clock.submit("long", 32768, 10))
    gaps = [b - a for a, b in zip(clock.decoded_at_s, clock.decoded_at_s[1:], strict=False)]
    assert max(gaps) < 0.5


def test_a_short_prompt_waits_for_the_long_one_before_it() -> None:
    """And, with its prefix cached, takes a fraction when it comes first."""
    clock = Clock()
    clock.until_first_token(clock.submit("warm", 8192, 1))
    long, short = clock.submit("cold", 65536, 1), clock.submit("warm", 8192, 1)
    behind = clock.until_first_token(short)
    assert long.output
    assert behind == pytest.approx(3.36, rel=0.05)
    alone = clock.until_first_token(clock.submit("warm", 8192, 1))
    assert alone < 0.03
