"""The engine's scheduler: which requests the next step computes, and what happens to the KV pool.

As SGLang's: a prompt that was cut into chunks goes on first and takes the whole chunk budget; then waiting requests
are added while budget, slots and KV last; decode runs only when no prefill batch can be formed (or together with it,
with --enable-mixed-chunk). When decode needs pages that are not there, requests are retracted and start over later
from the cache.

No I/O, no clock, no sleeping: `engine.Engine` calls `submit` and `abort`, then `plan`, waits as long as the step
takes, and calls `complete`. KV invariant: at all times locked + private + evictable + free pages = capacity, and with
no request in the scheduler nothing is locked or private.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from shoal_sim.radix import RadixCache
from shoal_sim.request import Finish, Request, State
from shoal_sim.speculation import Speculation

CLIP_NEW_TOKENS = 4096
"""Admission reserves at most this many future tokens a request, however large its limit."""
RATIO_INITIAL = 0.7
RATIO_MIN_FACTOR = 0.14
RATIO_DECAY_STEPS = 600

QUEUE_FULL = "The request queue is full."
OUTRANKED = "The request is aborted by a higher priority request."
OUT_OF_MEMORY = "Out of memory even after retracting all other requests in the decode batch."


@dataclass(frozen=True, slots=True)
class Policy:
    """The command line's share in scheduling."""

    page_tokens: int
    max_running: int
    max_queued: int | None = None
    chunk_tokens: int | None = 8192
    max_prefill_tokens: int = 16384
    prefill_max_requests: int | None = None
    mixed_chunk: bool = False
    order: str = "fcfs"
    conservativeness: float = 1.0
    radix: bool = True
    priority: bool = False
    low_values_first: bool = False
    preemption: bool = True
    preemption_threshold: int = 10


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a prompt that one step computes: `tokens` after `prefix` already there."""

    request: Request
    tokens: int
    prefix: int


@dataclass(frozen=True, slots=True)
class Batch:
    """One step. Mixed when both are filled."""

    prefill: list[Piece]
    decode: list[Request]

    @property
    def decode_kv_tokens(self) -> int:
        return sum(request.sequence_tokens for request in self.decode)


@dataclass(slots=True)
class Counters:
    """Everything that only grows."""

    submitted: int = 0
    finished: int = 0
    aborted: int = 0
    rejected: int = 0
    retracted: int = 0
    retracted_input_tokens: int = 0
    retracted_output_tokens: int = 0
    prefill_tokens: int = 0
    cached_tokens: int = 0
    decode_tokens: int = 0
    generated: int = 0
    prefill_steps: int = 0
    decode_steps: int = 0
    spec_verifies: int = 0
    spec_accepted: int = 0


@dataclass(slots=True)
class _Room:
    """What one prefill batch may still take."""

    chunk: float
    prompt: float
    slots: int
    kv: float
    pieces: list[Piece] = field(default_factory=list)


class Scheduler:
    def __init__(self, policy: Policy, cache: RadixCache, speculation: Speculation | None = None) -> None:
        self.policy = policy
        self.cache = cache
        self.counters = Counters()
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.chunked: Request | None = None
        self.prefilling: list[Request] = []
        """Requests of the step under way that are in none of the other places."""
        self._speculation = speculation
        self._ratio_initial = min(1.0, RATIO_INITIAL * policy.conservativeness)
        self._ratio_min = self._ratio_initial * RATIO_MIN_FACTOR
        self._ratio_step = (self._ratio_initial - self._ratio_min) / RATIO_DECAY_STEPS
        self.new_token_ratio = self._ratio_initial
        self._ended: list[Request] = []

    # ---- requests come and go

    @property
    def idle(self) -> bool:
        return not self.running and not self.waiting and not self.prefilling and self.chunked is None

    @property
    def active(self) -> int:
        """Requests that hold a slot."""
        return len(self.running) + len(self.prefilling) + (self.chunked is not None)

    def requests(self) -> list[Request]:
        chunked = [self.chunked] if self.chunked is not None else []
        return [*self.running, *self.prefilling, *chunked, *self.waiting]

    def submit(self, request: Request) -> None:
        """Queues a request, or ends it (or a lower-ranking one) at once where the queue is full."""
        self.counters.submitted += 1
        limit = self.policy.max_queued
        if limit is not None and len(self.waiting) + 1 > limit:
            victim = self._outranked_by(request)
            if victim is None:
                self.counters.rejected += 1
                self._end(request, Finish("abort", message=QUEUE_FULL, status=503))
                return
            self.waiting.remove(victim)
            self.counters.rejected += 1
            self._end(victim, Finish("abort", message=OUTRANKED, status=503))
        request.state = State.WAITING
        self.waiting.append(request)

    def abort(self, matches: Callable[[Request], bool]) -> None:
        """Ends every request that matches, wherever it is, and frees what it holds."""
        for request in [r for r in self.requests() if matches(r)]:
            self.counters.aborted += 1
            self._leave(request)
            self._end(request, Finish("abort", message="Aborted"))

    def take_ended(self) -> list[Request]:
        """Requests that ended outside of a step since the last call."""
        ended, self._ended = self._ended, []
        return ended

    # ---- one step

    def plan(self) -> Batch | None:
        """The next step, with its KV pages taken; None when there is nothing to do."""
        pieces = self._plan_prefill()
        if pieces:
            self.prefilling = [piece.request for piece in pieces if piece.request is not self.chunked]
            decode = self._with_room(list(self.running)) if self.policy.mixed_chunk else []
            return Batch(pieces, decode)
        decode = self._with_room(list(self.running))
        return Batch([], decode) if decode else None

    def complete(self, batch: Batch, now: float) -> list[Request]:
        """Applies the results of a step; returns the requests that have new output or have ended."""
        changed: list[Request] = []
        self.prefilling = []
        if batch.prefill:
            self.counters.prefill_steps += 1
        for piece in batch.prefill:
            if piece.request.state is State.PREFILLING:
                self._prefilled(piece, now)
                changed.append(piece.request)
        if batch.decode:
            self.counters.decode_steps += 1
        for request in batch.decode:
            if request.state is State.RUNNING:
                self._decoded(request, now)
                changed.append(request)
        if batch.decode:
            self.running = [r for r in self.running if r.state is State.RUNNING]
        return changed

    # ---- prefill

    def _plan_prefill(self) -> list[Piece]:
        policy = self.policy
        room = _Room(
            chunk=float("inf") if policy.chunk_tokens is None else policy.chunk_tokens,
            prompt=policy.max_prefill_tokens,
            slots=policy.max_running - len(self.running),
            kv=self._kv_room(),
        )
        if policy.mixed_chunk:
            room.chunk -= len(self.running)
        if self.chunked is not None:
            self._continue_chunked(room)
        self._order_waiting()
        if policy.priority and policy.preemption and room.slots <= 0 and self.chunked is None:
            self._preempt(room)
        while self.waiting and self.chunked is None and self._may_add(room):
            if not self._admit(self.waiting[0], room):
                break
        return room.pieces

    def _may_add(self, room: _Room) -> bool:
        most = self.policy.prefill_max_requests
        return room.slots > 0 and room.chunk >= 1 and (most is None or len(room.pieces) < most)

    def _continue_chunked(self, room: _Room) -> None:
        request = self.chunked
        assert request is not None
        self.chunked = None
        room.slots -= 1
        left = request.sequence_tokens - request.prefilled
        self._add_piece(request, left, room)

    def _admit(self, request: Request, room: _Room) -> bool:
        """Moves the first waiting request into the batch if it fits."""
        page = self.policy.page_tokens
        total = request.sequence_tokens
        request.hashes = request.prompt.hashes_with("".join(request.output), request.namespace)
        # The last token must be computed even where all of it is cached: its logits give the next token.
        usable = request.hashes[: (total - 1) // page] if self.policy.radix else []
        matched = self.cache.match(usable)
        left = total - matched * page
        if room.pieces and left > room.prompt:
            return False
        future = min(request.tokens_left, CLIP_NEW_TOKENS)
        alone = not room.pieces and not self.running
        if not alone and left + future + page > room.kv:
            return False
        self.cache.lock(request.hashes[:matched])
        request.locked_pages = matched
        request.prefilled = matched * page
        if not self._add_piece(request, left, room):
            self._release(request)
            return False
        self.waiting.pop(0)
        request.state = State.PREFILLING
        room.slots -= 1
        # Locking took the matched pages out of what can be evicted.
        room.kv -= left + future + matched * page
        if not request.output:
            request.cached_tokens = matched * page
        self.counters.cached_tokens += matched * page
        return True

    def _add_piece(self, request: Request, left: int, room: _Room) -> bool:
        """Adds the request's next tokens to the batch: all, or a page-aligned chunk of them."""
        page = self.policy.page_tokens
        tokens = left
        if left > room.chunk:
            tokens = int(room.chunk) // page * page
            if tokens == 0:
                return False
        needed = -(-(request.prefilled + tokens) // page) - request.locked_pages - request.private_pages
        if not self.cache.take(needed):
            if room.pieces or self.running:
                if request.state is State.PREFILLING:
                    self._requeue(request)
                return False
            # Nothing else holds pages that could come free.
            return self._fail_for_memory(request)
        request.private_pages += needed
        room.pieces.append(Piece(request, tokens, request.prefilled))
        room.chunk -= tokens
        room.prompt -= tokens
        if tokens < left:
            self.chunked = request
        return True

    def _fail_for_memory(self, request: Request) -> bool:
        self._leave(request)
        self._end(request, Finish("abort", message=OUT_OF_MEMORY, status=500))
        return False

    def _prefilled(self, piece: Piece, now: float) -> None:
        request = piece.request
        request.prefilled += piece.tokens
        self.counters.prefill_tokens += piece.tokens
        self._publish(request, request.prefilled)
        if request.prefilled < request.sequence_tokens:
            return
        if not request.times.prefill_finished:
            request.times.prefill_finished = now
        request.state = State.RUNNING
        self.running.append(request)
        if request.token_budget == 0:
            self._finish(request, Finish("length"))
        else:
            self._generate(request, 1, now)
        if request.state is State.DONE:
            self.running.remove(request)

    # ---- decode

    def _with_room(self, batch: list[Request]) -> list[Request]:
        """Takes the pages that the batch's next tokens need, retracting requests until they fit."""
        page = self.policy.page_tokens
        reach = self._speculation.draft_tokens if self._speculation else 1
        retracted = False
        while batch:
            need = []
            for request in batch:
                pages = -(-(request.sequence_tokens + reach - 1) // page)
                missing = pages - request.locked_pages - request.private_pages
                if missing > 0:
                    need.append((request, missing))
            total = sum(missing for _, missing in need)
            if not total or self.cache.take(total):
                for request, missing in need:
                    request.private_pages += missing
                break
            victim = self._victim(batch)
            batch.remove(victim)
            if batch or self.chunked is not None:
                self._retract(victim)
                retracted = True
            else:
                self.running.remove(victim)
                self._fail_for_memory(victim)
        self._adjust_ratio(batch, retracted)
        return batch

    def _decoded(self, request: Request, now: float) -> None:
        count = 1
        if self._speculation is not None:
            count = self._speculation.accepted(request.rid, request.steps)
            self.counters.spec_verifies += 1
        before = len(request.output)
        self._generate(request, count, now)
        produced = len(request.output) - before
        self.counters.decode_tokens += produced
        if self._speculation is not None:
            self.counters.spec_accepted += produced

    def _generate(self, request: Request, count: int, now: float) -> None:
        """Appends up to `count` tokens, fewer when the request ends."""
        generator, limits, output = request.generator, request.limits, request.output
        request.steps += 1
        if not output:
            request.times.first_token = now
        for _ in range(count):
            output.append(generator.next_token())
            self.counters.generated += 1
            finish = self._end_reached(request)
            if finish is not None:
                self._finish(request, finish)
                return
            if limits.max_tokens is None and generator.natural_end and not limits.ignore_eos:
                self._finish(request, Finish("stop"))
                return

    @staticmethod
    def _end_reached(request: Request) -> Finish | None:
        limits, output = request.limits, request.output
        if limits.stop_ids or limits.stop:
            matched = _stopped(output, limits.stop, limits.stop_ids)
            if matched is not None:
                return Finish("stop", matched=matched)
        return Finish("length") if len(output) >= request.token_budget else None

    # ---- leaving

    def _finish(self, request: Request, finish: Finish) -> None:
        self.counters.finished += 1
        if self.policy.radix:
            # The last generated token has no KV yet: it would have been written by the next step.
            request.hashes = request.prompt.hashes_with("".join(request.output[:-1]), request.namespace)
            self._publish(request, request.sequence_tokens - 1 if request.output else request.prompt.tokens)
        self._release(request)
        request.finish = finish
        request.state = State.DONE

    def _end(self, request: Request, finish: Finish) -> None:
        request.finish = finish
        request.state = State.DONE
        self._ended.append(request)

    def _leave(self, request: Request) -> None:
        if request in self.waiting:
            self.waiting.remove(request)
        elif request in self.running:
            self.running.remove(request)
        elif request in self.prefilling:
            self.prefilling.remove(request)
        elif request is self.chunked:
            self.chunked = None
        self._release(request)

    def _publish(self, request: Request, tokens: int) -> None:
        """Puts the request's first `tokens` tokens, in full pages, into the cache for others; it keeps them locked."""
        if not self.policy.radix:
            return
        pages = min(tokens // self.policy.page_tokens, len(request.hashes))
        new = pages - request.locked_pages
        if new <= 0:
            return
        self.cache.insert(request.hashes[:pages], new)
        self.cache.lock(request.hashes[request.locked_pages : pages])
        request.private_pages -= new
        request.locked_pages = pages

    def _release(self, request: Request) -> None:
        self.cache.unlock(request.hashes[: request.locked_pages])
        self.cache.give_back(request.private_pages)
        request.locked_pages = request.private_pages = request.prefilled = 0

    def _retract(self, request: Request) -> None:
        self.running.remove(request)
        self._requeue(request)

    def _requeue(self, request: Request) -> None:
        self.counters.retracted += 1
        self.counters.retracted_input_tokens += request.prompt.tokens
        self.counters.retracted_output_tokens += len(request.output)
        request.retractions += 1
        self._release(request)
        request.state = State.WAITING
        self.waiting.append(request)

    @staticmethod
    def _victim(batch: list[Request]) -> Request:
        """Who loses least: the fewest generated tokens, then the longest prompt."""
        return min(batch, key=lambda r: (len(r.output), -r.prompt.tokens))

    # ---- estimates and order

    def _kv_room(self) -> float:
        """Tokens that new requests may claim, after what the running ones are expected to still write."""
        cache = self.cache
        there = (cache.free_pages + cache.evictable_pages) * self.policy.page_tokens
        expected = sum(min(r.tokens_left, CLIP_NEW_TOKENS) for r in self.running) * self.new_token_ratio
        return there - expected

    def _adjust_ratio(self, batch: list[Request], retracted: bool) -> None:
        if retracted and batch:
            done = sum(len(r.output) for r in batch)
            whole = sum(r.token_budget for r in batch)
            self.new_token_ratio = min(1.0, (done + 20 * len(batch)) / (whole + 1))
        else:
            self.new_token_ratio = max(self._ratio_min, self.new_token_ratio - self._ratio_step)

    def _rank(self, request: Request) -> int:
        """Lower goes first."""
        return request.priority if self.policy.low_values_first else -request.priority

    def _order_waiting(self) -> None:
        order = self.policy.order
        if len(self.waiting) < 2:
            return
        if order == "lpm" and len(self.waiting) <= 128:
            self.waiting.sort(key=lambda r: -self.cache.peek(r.hashes))
        elif order == "shortest-prefill-first":
            page = self.policy.page_tokens
            self.waiting.sort(key=lambda r: r.sequence_tokens - self.cache.peek(r.hashes) * page)
        elif order == "lof":
            self.waiting.sort(key=lambda r: -r.token_budget)
        if self.policy.priority:
            self.waiting.sort(key=self._rank)

    def _outranked_by(self, request: Request) -> Request | None:
        if not self.policy.priority or not self.waiting:
            return None
        worst = max(self.waiting, key=self._rank)
        return worst if self._rank(request) < self._rank(worst) else None

    def _preempt(self, room: _Room) -> None:
        """Retracts the lowest-ranking running request for a waiting one that outranks it by the threshold."""
        if not self.waiting or not self.running:
            return
        victim = max(self.running, key=self._rank)
        if self._rank(victim) - self._rank(self.waiting[0]) >= self.policy.preemption_threshold:
            self._retract(victim)
            room.slots += 1
            room.kv = self._kv_room()


def _stopped(output: list[str], stop: Iterable[str], stop_ids: frozenset[int]) -> str | int | None:
    """What ended the output: a stop token or a stop string that the newest token completes. Cuts the output there."""
    last = int.from_bytes(output[-1].encode(), "little")
    if last in stop_ids:
        output[-1] = ""
        return last
    for text in stop:
        # A stop string ends within the last token, so only that many tokens can hold it.
        reach = len(text) // 4 + 2
        tail = "".join(output[-reach:])
        at = tail.find(text)
        if at >= 0:
            kept = tail[:at]
            first = max(0, len(output) - reach)
            count = len(output) - first
            output[first:] = [kept[i * 4 : i * 4 + 4] for i in range(count)]
            return text
    return None
