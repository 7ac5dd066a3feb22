"""Slices: a long uncached prompt is prefilled as growing prefixes of itself, and others on its replica get in between.

SGLang finishes a chunked prompt before it starts another and decodes nothing meanwhile. So the prompt's prefix is sent
alone, each time longer, each time a cache hit for the next; the last part is the request itself. While a slice of S
seconds runs, those who arrive wait S/2 on average; each slice costs an overhead. For a prompt of T seconds where
others arrive at a rate r, with `weight` prompts delayed by the overhead, the sum

    r*T * S/2  +  T/S * overhead_s * weight

is least at S = sqrt(2 * overhead_s * weight / r). One cut in the middle gains where T > 1.4*S: less than that is lost
in overhead; parts are rounded, so a prompt is cut from 1.5*S on. With nobody else there r is zero, S has no end, and
nothing is sliced.

Pure: told the time, does no I/O. `Sliced` is one prompt's state, `Lane` one replica's; policy.pool drives both.
"""

import math
from collections.abc import Callable
from typing import Final

from shoal_router.index import chain as chains
from shoal_router.metrics import rate
from shoal_router.policy import timing as timings

TOKENS_MIN = 2048
"""Below, a slice is mostly overhead."""
TOKENS_MAX = 32768
"""Above, running streams fall silent for longer than anyone wants, however few they are."""
OWED_WAIT_S = 0.5
"""Between two slices: how long the next one waits for turns that have no first token yet."""
DELAY_FACTOR = 1.5
"""A prompt waits between its slices for at most so many times its own prefill; then it goes on without waiting."""
AGEING_PER_S = 0.5
"""Shortest rest first, divided by 1 + so much per second since arrival. Ten times as fast as in the waiting queue: who
has begun holds KV tokens, and of those who are longer than what comes meanwhile the slowest are the ones that wait."""
OTHERS_S = 30.0
"""A session that used the replica so lately is expected there again."""
_OVERHEAD_S = 0.06
_OVERHEAD_BOUNDS_S = (0.002, 0.5)
_OVERHEAD_RATE = 0.1
_SHORTS_S = 30.0
_MISS_SHARE = 0.05
_MISS_TOKENS = 256
"""A slice that finds so much less than its predecessor computed did not help."""
_DISTRUST_S = 60.0
_DISTRUST_MAX_S = 3600.0

OnTurn = Callable[[int], None]
"""Told that it is its turn: send the first so many tokens alone; 0: send the request itself."""


class Sliced:
    """One prompt that goes in slices. Written by this module and policy.pool; others may read."""

    __slots__ = (
        "active",
        "added_s",
        "chain",
        "count",
        "delayed_s",
        "done",
        "end",
        "first_cached",
        "free_since",
        "key",
        "left_s",
        "on_turn",
        "ratio",
        "sent_at",
        "since",
        "tokens",
        "total_s",
        "whole",
    )

    def __init__(
        self, key: int, chain: tuple[int, ...], ratio: float, tokens: int, cached: int, total_s: float, now: float
    ) -> None:
        self.key = key
        """Of its binding among the replica's requests in flight."""
        self.chain = chain
        self.ratio = ratio
        """Tokens per byte of the prompt."""
        self.tokens = tokens
        """Of the prompt: estimated, exact once the ids are known."""
        self.done = cached
        """So many of them are in the replica's cache."""
        self.end = 0
        """Where the slice that runs ends; 0: none runs."""
        self.total_s = total_s
        """Prefill of the whole, alone."""
        self.left_s = total_s
        self.since = now
        """Its arrival: it ages from then on."""
        self.free_since = now
        """Since when it could go on."""
        self.sent_at = now
        self.delayed_s = 0.0
        """Waited for others before the turns that it had."""
        self.added_s = 0.0
        """Overhead of its slices."""
        self.count = 0
        """Slices sent, the request itself not counted."""
        self.first_cached: int | None = None
        """What the first slice found in the cache: what the request would have found without slices."""
        self.on_turn: OnTurn | None = None
        """Set when whoever sends is ready to."""
        self.whole = False
        """What is left goes in one piece."""
        self.active = True
        """False once the request itself has been sent, or given up."""

    def exhausted(self, now: float) -> bool:
        """It has waited long enough for others, the wait that goes on included."""
        waiting_s = 0.0 if self.end else max(0.0, now - self.free_since)
        return self.delayed_s + waiting_s >= DELAY_FACTOR * self.total_s

    def rank(self, now: float) -> float:
        """Less goes first: what is left in seconds, aged."""
        if self.exhausted(now):
            return 0.0
        return self.left_s / (1.0 + AGEING_PER_S * max(0.0, now - self.since))


class Totals:
    """Counters of one service, for `/metrics`."""

    __slots__ = ("added_s", "failures", "requests", "saved_s", "slices")

    def __init__(self) -> None:
        self.requests = 0
        """Prompts that were to go in slices."""
        self.slices = 0
        self.failures = 0
        """Slices that failed: what was left went in one piece."""
        self.added_s = 0.0
        """To sliced prompts: waiting for others between slices, and overhead."""
        self.saved_s = 0.0
        """To others, estimated: prefill of sliced prompts that they did not have to wait for."""


class Lane:
    """The sliced prompts of one replica, and what decides whether more are sliced there."""

    __slots__ = (
        "_distrust",
        "_distrusted_until",
        "_other",
        "_recent",
        "free_since",
        "overhead_s",
        "running",
        "shorts",
        "turn_at",
        "waiting",
    )

    def __init__(self) -> None:
        self.waiting: dict[int, Sliced] = {}
        """By id of their binding: those of which no slice runs."""
        self.running: Sliced | None = None
        self.free_since = -math.inf
        """When its last turn was over, whosesoever that was."""
        self.turn_at = math.inf
        """When `next_turn` should be asked again if nothing happens before."""
        self.overhead_s = _OVERHEAD_S
        self.shorts = rate.Rate(_SHORTS_S)
        """Bindings of requests that are not sliced."""
        self._recent = (0, -math.inf)
        """Session and time of the last binding; `_other` is the last of another session."""
        self._other = (0, -math.inf)
        self._distrust = 0.0
        self._distrusted_until = -math.inf

    def note(self, session: int, short: bool, now: float) -> None:
        """A request of this session was bound here."""
        if short:
            self.shorts.add(1.0, now)
        if self._recent[0] != session:
            self._other = self._recent
        self._recent = (session, now)

    def others_likely(self, session: int, now: float) -> bool:
        """Whether a session other than this one used the replica lately."""
        key, at = self._recent
        if key == session:
            at = self._other[1]
        return now - at < OTHERS_S

    def quantum_s(
        self, timing: timings.Timing, cold: int, step_s: float, itl_objective_s: float | None, now: float, cached: int
    ) -> float:
        """Seconds of prefill that a slice should take behind so many tokens, while `cold` other long prompts wait.
        `step_s`: a decode step of the streams that run, 0 where none does; one is made between two slices."""
        shorts_per_s = self.shorts.value(now) or 0.0
        seconds = math.inf
        if shorts_per_s > 0.0:
            seconds = math.sqrt(2.0 * (self.overhead_s + step_s) * (1 + cold) / shorts_per_s)
        if step_s and itl_objective_s is not None:
            seconds = min(seconds, itl_objective_s)
        least, most = timing.compute_s(TOKENS_MIN, cached), timing.compute_s(TOKENS_MAX, cached)
        return max(least, min(seconds, most))

    def worth(self, session: int, streams: int, now: float) -> bool:
        """Whether a long prompt of this session should be sliced here at all: somebody else is there, or expected, and
        slices have been of use."""
        if now < self._distrusted_until:
            return False
        return streams > 0 or self.count > 0 or self.others_likely(session, now)

    @property
    def count(self) -> int:
        """Sliced prompts here."""
        return len(self.waiting) + (self.running is not None)

    # Turns

    def next_turn(self, owed: bool, now: float) -> Sliced | None:
        """Whose turn it is. `owed`: requests on the replica have no first token yet."""
        self.turn_at = math.inf
        if self.running is not None or not self.waiting:
            return None
        first: Sliced | None = None
        rank = math.inf
        for one in self.waiting.values():
            if one.on_turn is not None:
                its = one.rank(now)
                if its < rank or first is None:
                    first, rank = one, its
        if first is None:
            return None
        if owed:
            left_s = DELAY_FACTOR * first.total_s - first.delayed_s
            until = max(first.free_since, self.free_since) + min(OWED_WAIT_S, max(0.0, left_s))
            if now < until:
                self.turn_at = until
                return None
        return first

    def rest_s(self) -> float:
        """Prefill of its sliced prompts that has not started."""
        total = 0.0
        for one in self.waiting.values():
            total += one.left_s
        if self.running is not None:
            total += self.running.left_s
        return total

    def next_s(self, now: float) -> float:
        """Rank of the one that goes next: longer requests go after it."""
        least = self.running.rank(now) if self.running is not None else math.inf
        for one in self.waiting.values():
            least = min(least, one.rank(now))
        return least

    def missing_s(self, chain: tuple[int, ...], timing: timings.Timing) -> float:
        """Prefill that a request of this chain counts on and that a sliced prompt has yet to do."""
        missing = 0.0
        for one in self.waiting.values():
            missing = max(missing, _missing_s(one, chain, timing))
        return missing if self.running is None else max(missing, _missing_s(self.running, chain, timing))

    # Learning

    def learn_overhead(self, observed_s: float, compute_s: float) -> None:
        """A slice took so long, of which so much is prefill."""
        low, high = _OVERHEAD_BOUNDS_S
        sample = min(high, max(low, observed_s - compute_s))
        self.overhead_s += _OVERHEAD_RATE * (sample - self.overhead_s)

    def useful(self, expected: int, cached: int, page_tokens: int, now: float) -> bool:
        """Whether what slices computed was found again; if not, none are cut here for a while, longer each time."""
        if expected - cached <= max(_MISS_TOKENS, 2 * page_tokens, _MISS_SHARE * expected):
            self._distrust = 0.0
            return True
        self._distrust = min(_DISTRUST_MAX_S, max(_DISTRUST_S, 2.0 * self._distrust))
        self._distrusted_until = now + self._distrust
        return False


def cut(one: Sliced, quantum_s: float, timing: timings.Timing, page_tokens: int) -> int:
    """Where the next slice ends, at a page's end; 0: the rest is short enough to go as the request itself.

    What is left is shared out evenly, so that the last part is no crumb."""
    count = parts(one, quantum_s, timing)
    if count <= 1:
        return 0
    tokens = int(timing.tokens_in(timing.compute_s(one.tokens - one.done, one.done) / count, one.done))
    page: Final = max(1, page_tokens)
    end = (one.done + max(tokens, page)) // page * page
    return end if one.done < end < one.tokens - page else 0


def parts(one: Sliced, quantum_s: float, timing: timings.Timing) -> int:
    """How many parts the rest of a prompt makes, the request itself included."""
    if one.whole or quantum_s <= 0.0:
        return 1
    return max(1, round(timing.compute_s(one.tokens - one.done, one.done) / quantum_s))


def _missing_s(one: Sliced, chain: tuple[int, ...], timing: timings.Timing) -> float:
    missing = int(chains.length_bytes(chains.common(one.chain, chain)) * one.ratio) - one.done
    return timing.compute_s(missing, one.done) if missing > _MISS_TOKENS else 0.0
