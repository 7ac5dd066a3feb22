"""The engine's scheduler: which requests the next step computes, and what happens to the KV pool.

As SGLang's: a prompt that was cut into chunks goes on first and takes the whole chunk budget; then waiting requests
are added while budget, slots and KV last; decode runs only when no prefill batch can be formed (or together with it,
with --enable-mixed-chunk). When decode needs pages that are not there, requests are retracted and start over later
from the cache.

No I/O, no clock, no sleeping: `engine.Engine` calls `submit` and `abort`, then `plan`, waits as long as the step
takes, and calls `complete`. KV invariant: at all times locked + private + evictable + free pages = capacity, and with
no request in the scheduler nothing is locked or private.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shoal_sim import policy as choices
from shoal_sim.batch import Batch, Counters, Piece
from shoal_sim.headroom import Headroom, future_tokens
from shoal_sim.policy import Policy
from shoal_sim.radix import RadixCache
from shoal_sim.request import Finish, Request, State
from shoal_sim.speculation import Speculation
from shoal_sim.stopping import end_reached

QUEUE_FULL = "The request queue is full."
OUTRANKED = "The request is aborted by a higher priority request."
OUT_OF_MEMORY = "Out of memory even after retracting all other requests in the decode batch."


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
        self.speculation = speculation
        self.headroom = Headroom(policy.conservativeness)
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
            victim = choices.outranked_by(self.policy, self.waiting, request)
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

    def abort_unseen(self, requests: Sequence[Request]) -> None:
        """Ends requests that were aborted on their way here."""
        self.counters.submitted += len(requests)
        self.counters.aborted += len(requests)
        for request in requests:
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
        choices.order_waiting(policy, self.waiting, self.cache)
        if self.waiting and room.slots <= 0 and self.chunked is None:
            self._preempt_for(self.waiting[0], room)
        while self.waiting and self.chunked is None and self._may_add(room):
            if not self._admit(self.waiting[0], room):
                break
        return room.pieces

    def _kv_room(self) -> float:
        return self.headroom.tokens(self.cache, self.policy.page_tokens, self.running)

    def _preempt_for(self, request: Request, room: _Room) -> None:
        victim = choices.preempted_by(self.policy, self.running, request)
        if victim is not None:
            self._retract(victim)
            room.slots += 1
            room.kv = self._kv_room()

    def _may_add(self, room: _Room) -> bool:
        most = self.policy.prefill_max_requests
        left = room.slots > 0 and room.chunk >= 1 and room.prompt > 0
        return left and (most is None or len(room.pieces) < most)

    def _continue_chunked(self, room: _Room) -> None:
        request = self.chunked
        assert request is not None
        self.chunked = None
        room.slots -= 1
        left = request.sequence_tokens - request.prefilled
        self._add_piece(request, left, left <= room.chunk, room)

    def _admit(self, request: Request, room: _Room) -> bool:
        """Moves the first waiting request into the batch if it fits."""
        page = self.policy.page_tokens
        total = request.sequence_tokens
        request.hashes = request.prompt.hashes_with("".join(request.output), request.namespace)
        # The last token must be computed even where all of it is cached: its logits give the next token.
        usable = request.hashes[: (total - 1) // page] if self.policy.radix else []
        matched = self.cache.match(usable)
        left = total - matched * page
        charged = -(-left // page) * page
        if self.policy.chunk_tokens is None and room.pieces and charged >= room.prompt:
            return False
        future = future_tokens(request)
        alone = not room.pieces and not self.running
        if not alone and left + future + page > room.kv:
            return False
        self.cache.lock(request.hashes[:matched])
        request.locked_pages = matched
        request.prefilled = matched * page
        if not self._add_piece(request, left, charged <= room.chunk, room):
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

    def _add_piece(self, request: Request, left: int, fits: bool, room: _Room) -> bool:
        """Adds the request's next tokens to the batch: all where they fit, else a page-aligned chunk of them."""
        page = self.policy.page_tokens
        tokens = left if fits else int(room.chunk) // page * page
        if tokens <= 0:
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
        # Budgets are charged in pages.
        charged = -(-tokens // page) * page
        room.chunk -= charged
        room.prompt -= charged
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
        reach = self.speculation.draft_tokens if self.speculation else 1
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
            victim = choices.retraction_victim(batch)
            batch.remove(victim)
            if batch or self.chunked is not None:
                self._retract(victim)
                retracted = True
            else:
                self.running.remove(victim)
                self._fail_for_memory(victim)
        self.headroom.decoded(batch, retracted)
        return batch

    def _decoded(self, request: Request, now: float) -> None:
        count = 1
        if self.speculation is not None:
            count = self.speculation.accepted(request.rid, request.steps)
            self.counters.spec_verifies += 1
        before = len(request.output)
        self._generate(request, count, now)
        produced = len(request.output) - before
        self.counters.decode_tokens += produced
        if self.speculation is not None:
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
            finish = end_reached(request)
            if finish is not None:
                self._finish(request, finish)
                return
            if limits.max_tokens is None and generator.natural_end and not limits.ignore_eos:
                self._finish(request, Finish("stop"))
                return

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
