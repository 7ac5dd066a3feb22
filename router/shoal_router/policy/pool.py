"""All replicas of one service: what they hold, what is bound to them, and what is learned from how they answer.

`choose` and `bind` are one step without an await, so two requests never see the same free place. Every reservation is
undone by `release`, once, whatever happened in between. Called by admission.core only.
"""

import random
from collections.abc import Set

from shoal_api import routes
from shoal_router import model
from shoal_router.index import mirror, owners, sessions
from shoal_router.metrics import rate
from shoal_router.policy import binding as bindings
from shoal_router.policy import choice, cost, sizes, slices
from shoal_router.policy import load as loads
from shoal_router.policy import timing as timings

INDEX_BYTES_MAX = 256 << 20
SESSIONS_MAX = 65536
_BATCHED_SHARE = 0.2
_ERROR_TOKENS = 256
_ERROR_SHARE = 0.05
_EVICT_SHARE = 0.01
_STREAM_S = 10.0
_CROWD_S = 60.0
"""Over so long is measured how many requests a replica gets."""


class Pool:
    """See the module. `routable` are the loads that may get requests."""

    def __init__(self, service: routes.Service, rng: random.Random, index_bytes_max: int = INDEX_BYTES_MAX) -> None:
        self._service = service
        self._rng = rng
        self._entries_max = max(1024, index_bytes_max // owners.BYTES_PER_ENTRY)
        self._timings: dict[str, timings.Timing] = {}
        self._by_bit: dict[int, loads.Load] = {}
        self._bits = 0
        """Those of `_by_bit`, together."""
        self.loads: dict[str, loads.Load] = {}
        self.routable: list[loads.Load] = []
        self._routable_bits = 0
        self.owners = owners.Owners()
        self.sessions = sessions.Sessions(SESSIONS_MAX)
        self.sizes = sizes.Sizes()
        self._bindings = rate.Rate(_CROWD_S)
        self.sliced: dict[str, loads.Load] = {}
        """Replicas with sliced prompts whose turn is to come."""
        self.slicing = slices.Totals()

    def configure(self, service: routes.Service) -> None:
        """A new route table: timing constants that changed start anew, the rest of what was learned stays."""
        before, self._service = self._service, service
        for gpu in list(self._timings):
            initial = service.timing.get(gpu, routes.Timing())
            if initial != before.timing.get(gpu, routes.Timing()):
                self._timings[gpu] = timings.Timing(initial)
        for load in self.loads.values():
            load.timing = self.timing(load.replica.gpu)
            load.refresh()

    def timing(self, gpu: str) -> timings.Timing:
        known = self._timings.get(gpu)
        if known is None:
            known = self._timings[gpu] = timings.Timing(self._service.timing.get(gpu, routes.Timing()))
        return known

    def cold_s(self, request: model.Request) -> float:
        """Prefill seconds of a request where nothing is cached and nobody is there to ask."""
        first = next(iter(self._timings.values()), None) or self.timing(next(iter(self._service.timing), ""))
        return first.prefill_s(self.sizes.prompt_tokens(request.prompt), 0.0)

    # Replicas

    def add(self, replica: model.Replica, now: float) -> loads.Load:
        """A replica appeared, or one of the same name came back: with another uid or URL its cache is empty."""
        load = self.loads.get(replica.name)
        if load is None:
            free = ~self._bits & (self._bits + 1)  # the lowest that is not set
            self._bits |= free
            held = mirror.Mirror(self.owners, free)
            load = loads.Load(replica, free, held, self.timing(replica.gpu), now)
            self.loads[replica.name] = self._by_bit[free] = load
            return load
        restarted = load.replica.uid != replica.uid or load.replica.url != replica.url
        load.replica = replica
        load.timing = self.timing(replica.gpu)
        if restarted:
            self.clear(load)
            load.set_facts(model.EngineFacts())
        return load

    def remove(self, name: str) -> None:
        """Forget a replica; bindings to it are still released one by one, on the load they hold."""
        load = self.loads.pop(name, None)
        if load is not None:
            self.clear(load)
            self.sliced.pop(name, None)
            del self._by_bit[load.bit]
            self._bits ^= load.bit
            load.state = model.ReplicaState.NOT_READY
            self._select()

    def clear(self, load: loads.Load) -> None:
        """Its engine restarted: the cache is empty. What is in flight stays reserved until released."""
        load.epoch += 1
        load.mirror.clear()
        load.last_sample = None
        load.refresh()

    def set_state(self, name: str, state: model.ReplicaState, now: float) -> None:
        load = self.loads.get(name)
        if load is not None and load.state is not state:
            load.state = state
            load.state_since = now
            self._select()

    def _select(self) -> None:
        self.routable = [load for load in self.loads.values() if load.state is model.ReplicaState.ROUTABLE]
        self._routable_bits = sum(load.bit for load in self.routable)

    # Choosing and binding

    def query(self, request: model.Request) -> choice.Query:
        """Look a request up in the index and in the session table."""
        last = parent = None
        if self._service.affinity != "Off":
            last = self.sessions.get(request.tenant, request.session.key)
            if last is None and request.parent is not None:
                parent = self.sessions.get(request.tenant, request.parent)
            if last is not None and not self._same_engine(last):
                last = None
        return choice.Query(
            request,
            self.sizes.prompt_tokens(request.prompt),
            self.sizes.output(request),
            self.owners.lookup(request.chain, self._routable_bits),
            last,
            parent.replica if parent is not None else "",
            self.sizes.reply(last.reply_tokens) if last is not None else 0,
        )

    def choose(self, query: choice.Query, excluded: Set[str], now: float) -> choice.Choice | None:
        """The cheapest routable replica not in `excluded`; None if there is none."""
        routable = self.routable
        favoured = self.loads.get(query.home or query.hint)
        if favoured is not None:
            favoured.presume(now)
            if favoured.state is not model.ReplicaState.ROUTABLE or favoured.replica.name in excluded:
                favoured = None
        seen = choice.candidates(query, routable, favoured, self._by_bit, excluded, self._rng)
        stream_s = self.sizes.life_s.value_or(_STREAM_S)
        return choice.cheapest(query, seen, favoured, stream_s, self._crowd(now), now, self._rng)

    def explain(self, query: choice.Query, now: float) -> list[model.CostTerms]:
        """Every routable replica with its terms, cheapest first."""
        stream_s = self.sizes.life_s.value_or(_STREAM_S)
        crowd = self._crowd(now)
        return sorted(
            [choice.terms(query, load, stream_s, crowd, now) for load in self.routable], key=lambda terms: terms.cost_s
        )

    def _crowd(self, now: float) -> float:
        return cost.crowd((self._bindings.value(now) or 0.0) / max(1, len(self.routable)))

    def bind(self, chosen: choice.Choice, now: float) -> bindings.Binding:
        """Reserve: requests, prefill seconds, KV tokens; and the mirror holds the prompt from now on."""
        load, query = chosen.load, chosen.query
        request = query.request
        ratio = _ratio(request, query.prompt_tokens)
        held = load.mirror
        depth = held.match(request.chain)
        idle = held.idle(request.chain, depth)
        tail = max(0.0, query.prompt_tokens - held.length(request.chain) * ratio)
        node = held.insert(request.chain, depth, ratio, tail, now)
        bound = bindings.Binding(request, load, node, now)
        bound.cost_s, bound.work_s = chosen.cost_s, chosen.work_s
        bound.prompt_tokens, bound.matched_tokens = query.prompt_tokens, chosen.matched_tokens
        bound._matched_depth, bound._matched_idle = depth, idle
        bound._last = query.last if query.home == load.replica.name else None
        bound._reserved = tail
        load.loose += tail
        lane, session = load.lane, request.session.key
        sliced = request.sliceable and self._slice(bound, load, now)
        lane.note(session, not sliced, now)
        load.flight[id(bound)] = bound
        if not sliced:
            if load.rest_s and bound.work_s <= load.next_s:
                self.slicing.saved_s += load.rest_s
            self._start_prefill(bound, load, now)
        if chosen.matched_tokens:
            load.hits.add(1.0, now)
        self._bindings.add(1.0, now)
        load.refill()
        if self.owners.entries > self._entries_max:
            self._bound_memory()
        return bound

    def _start_prefill(self, bound: bindings.Binding, load: loads.Load, now: float) -> None:
        """`work_s` of it is on its way from now on."""
        bound._alone = not load.pending
        if not load.pending:
            load.head_since = now
        load.pending[id(bound)] = bound
        load.pending_s += bound.work_s
        bound.prefilling = True

    def _bound_memory(self) -> None:
        largest = max(self.loads.values(), key=lambda load: len(load.mirror))
        surplus = self.owners.entries - self._entries_max
        largest.mirror.evict_entries(surplus + int(_EVICT_SHARE * self._entries_max))

    def _same_engine(self, last: sessions.Last) -> bool:
        load = self.loads.get(last.replica)
        return load is not None and load.replica.uid == last.uid

    # What happens to a binding

    def first_token(self, bound: bindings.Binding, now: float) -> None:
        """Its prefill is over."""
        if bound.released or bound.first_token_at is not None:
            return
        load = bound._load
        bound.first_token_at = bound.last_token_at = now
        if bound.prefilling:
            since = load.head_since
            if load.drop_pending(bound, now):
                self._take_sample(bound, now - since)
            else:
                load.spoilt = True  # the one in front shared its batch: its own time would look too long
        self._remember(bound, 0, now)
        load.refresh()

    def _take_sample(self, bound: bindings.Binding, observed_s: float) -> None:
        load = bound._load
        if load.spoilt:
            load.spoilt = False
            load.last_sample = None
            return
        before = load.last_sample
        if before is not None and not bound._alone and observed_s < _BATCHED_SHARE * bound.work_s:
            before.observed_s += observed_s  # prefilled in one batch with the one before
            before.left += 1
            bound._sample = before
        else:
            bound._sample = load.last_sample = bindings.Sample(observed_s)

    def tokens(self, bound: bindings.Binding, count: int, now: float) -> None:
        """So many output tokens arrived."""
        if not bound.released:
            bound.tokens += count
            bound.last_token_at = now
            bound._reserved += count
            load = bound._load
            load.loose += count
            load.slack -= count
            load.decoded += count

    def finish(self, bound: bindings.Binding, usage: model.Usage | None, now: float) -> model.Usage | None:
        """The engine's answer is complete: learn from it, then release. Gives usage as it is without slices."""
        if bound.released:
            return usage
        load = bound._load
        sizes_ = self.sizes
        sizes_.life_s.add(now - bound.bound_at)
        if usage is not None:
            sizes_.output_tokens.add(usage.completion_tokens)
            sizes_.learn_prompt(bound.request.prompt, usage.prompt_tokens)
            self._learn_time(bound, usage, now)
            if bound.sliced is not None:
                usage = self._without_slices(bound.sliced, load, usage, now)
            bound.prompt_tokens = usage.prompt_tokens
            if bound._epoch == load.epoch:
                self._learn_cache(bound, usage)
                load.mirror.add_reply(bound._node, usage.completion_tokens)
                self._remember(bound, usage.completion_tokens, now)
        self._undo(bound, True, now)
        return usage

    def release(self, bound: bindings.Binding, now: float) -> None:
        """Undo the reservation, once; without a first token the mirror forgets what only this request brought."""
        if not bound.released:
            self._undo(bound, bound.first_token_at is not None, now)

    def _undo(self, bound: bindings.Binding, cached: bool, now: float) -> None:
        bound.released = True
        load = bound._load
        if bound._sample is not None:
            bound._sample.spoilt = True
            bound._sample = None
        if bound.prefilling:
            # How much of its prefill was done is unknown: the next one's time tells nothing.
            load.spoilt = load.drop_pending(bound, now) or load.spoilt
        if bound.sliced is not None and bound.sliced.active:
            self._leave_lane(bound, bound.sliced, load, now)
        del load.flight[id(bound)]
        load.loose = max(0.0, load.loose - bound._reserved) if load.flight else 0.0
        if bound._epoch == load.epoch:
            load.mirror.unlock(bound._node)
            if not cached:
                load.mirror.retract(bound._node, bound._matched_depth, bound.bound_at)
        load.refresh()

    def _remember(self, bound: bindings.Binding, reply_tokens: int, now: float) -> None:
        request, replica = bound.request, bound._load.replica
        if bound._epoch == bound._load.epoch:
            tip = request.chain[-1] if request.chain else 0
            last = sessions.Last(
                replica.name, replica.uid, len(request.chain), tip, bound.prompt_tokens, reply_tokens, now
            )
            self.sessions.put(request.tenant, request.session.key, last)

    # Slices

    def _slice(self, bound: bindings.Binding, load: loads.Load, now: float) -> bool:
        """Let a long prompt go in slices if others on its replica gain by it; it waits for its turns from now on."""
        lane, ranks = load.lane, load.facts.ranks
        if self._service.slicing == "Off" or (ranks is not None and ranks > 1):
            return False  # which of several ranks gets a slice is the engine's to say, and each has its own cache
        if not lane.worth(bound.request.session.key, len(load.flight), now):
            return False
        one = slices.Sliced(
            id(bound),
            bound.request.chain,
            _ratio(bound.request, bound.prompt_tokens),
            bound.prompt_tokens,
            bound.matched_tokens,
            bound.work_s,
            now,
        )
        if not self._cut(one, load, lane.count, now):
            return False
        bound.sliced = one
        bound.prefilling = False
        lane.waiting[id(bound)] = one
        self.sliced[load.replica.name] = load
        self.slicing.requests += 1
        load.lane_changed(now)
        return True

    def slice_tokens(self, query: choice.Query, load: loads.Load, now: float) -> int:
        """How long the first slice of a request would be there; 0: it would go whole. Changes nothing."""
        lane, ranks = load.lane, load.facts.ranks
        request = query.request
        if not request.sliceable or self._service.slicing == "Off" or (ranks is not None and ranks > 1):
            return 0
        if not lane.worth(request.session.key, len(load.flight), now):
            return 0
        matched_tokens, _ = query.matched(load)
        work_s = load.timing.prefill_s(query.prompt_tokens - matched_tokens, matched_tokens)
        one = slices.Sliced(0, request.chain, 0.0, query.prompt_tokens, matched_tokens, work_s, now)
        end = self._cut(one, load, lane.count, now)
        return end - matched_tokens if end else 0

    def _cut(self, one: slices.Sliced, load: loads.Load, others: int, now: float) -> int:
        """Where its next slice ends, with so many other sliced prompts there; 0: the rest goes in one piece."""
        lane, timing = load.lane, load.timing
        streams = len(load.flight) - len(load.pending) - len(lane.waiting)
        quantum_s = lane.quantum_s(
            timing, load.waiting_long + others, streams, self._service.itl_objective_s, now, one.done
        )
        return slices.cut(one, quantum_s, timing, load.facts.page_tokens or 1)

    def slices_ready(self, bound: bindings.Binding, tokens: int, on_turn: slices.OnTurn, now: float) -> None:
        """Whoever sends can send slices of a prompt that has exactly so many tokens."""
        one, load = bound.sliced, bound._load
        if one is None or not one.active or bound.released:
            return
        one.tokens = tokens
        one.done = min(one.done, tokens - 1)
        one.left_s = load.timing.prefill_s(tokens - one.done, one.done)
        one.on_turn = on_turn
        one.free_since = now
        load.lane_changed(now)

    def slices_unwanted(self, bound: bindings.Binding, on_turn: slices.OnTurn, now: float) -> None:
        """It cannot be sent in slices, or no further: the rest goes in one piece when its turn comes."""
        one = bound.sliced
        if one is not None and one.active and not bound.released:
            if one.end:
                self._end_slice(bound, one, now)
                bound._load.spoilt = True
                self.slicing.failures += 1
            one.on_turn = on_turn
            one.whole = True

    def begin_turn(self, load: loads.Load, now: float) -> tuple[slices.OnTurn, int] | None:
        """The next slice of a replica may be sent now: whom to tell, and where it ends (0: the request itself)."""
        lane = load.lane
        one = lane.next_turn(bool(load.pending), now)
        if one is None or one.on_turn is None:
            return None
        on_turn = one.on_turn
        bound = load.flight[one.key]
        end = self._cut(one, load, len(lane.waiting) - 1, now)
        one.delayed_s += now - one.free_since
        one.sent_at = now
        del lane.waiting[id(bound)]
        timing = load.timing
        last = one.tokens if end == 0 else end
        bound.work_s = timing.prefill_s(last - one.done, one.done)
        if end:
            one.end = end
            one.count += 1
            one.left_s = max(0.0, timing.prefill_s(one.tokens - end, end))
            lane.running = one
            bound.seen = True
            self.slicing.slices += 1
        else:
            self._settle(bound, one, load)
        self._start_prefill(bound, load, now)
        load.lane_changed(now)
        load.refresh()
        return on_turn, end

    def slice_done(self, bound: bindings.Binding, cached_tokens: int | None, now: float) -> None:
        """A slice is in the replica's cache; so many of its tokens had been there before (None: not known)."""
        one, load = bound.sliced, bound._load
        if one is None or not one.end or bound.released:
            return
        end, lane, timing = one.end, load.lane, load.timing
        before = one.done if cached_tokens is None else min(cached_tokens, end - 1)
        if one.count == 1:
            one.first_cached = cached_tokens
        elif cached_tokens is not None and not lane.useful(one.done, cached_tokens, now):
            one.whole = True
        prefill_s = timing.prefill_s(end - before, before)
        observed_s = now - one.sent_at
        if bound._alone and not load.spoilt:
            timing.observe_prefill(prefill_s, 1, max(0.0, observed_s - max(0.0, lane.overhead_s - timing.a_s)))
            lane.learn_overhead(observed_s, prefill_s - timing.a_s)
        load.spoilt = False
        one.added_s += lane.overhead_s
        self._end_slice(bound, one, now)
        one.done = end
        load.lane_changed(now)

    def _end_slice(self, bound: bindings.Binding, one: slices.Sliced, now: float) -> None:
        """The slice that runs is over, one way or the other: its prompt waits for its next turn."""
        load = bound._load
        if bound.prefilling and not load.drop_pending(bound, now):
            load.spoilt = True
        load.last_sample = None
        load.lane.running = None
        load.lane.waiting[id(bound)] = one
        one.end = 0
        one.free_since = now
        load.lane_changed(now)
        load.refresh()

    def _settle(self, bound: bindings.Binding, one: slices.Sliced, load: loads.Load) -> None:
        """No more slices of it: from here on it is a request like others."""
        one.active = False
        one.left_s = 0.0
        one.on_turn = None
        bound.seen = bound.request.stream
        self.slicing.added_s += one.delayed_s + one.added_s
        if not load.lane.waiting:
            self.sliced.pop(load.replica.name, None)

    def _leave_lane(self, bound: bindings.Binding, one: slices.Sliced, load: loads.Load, now: float) -> None:
        """It was released before its last turn."""
        lane = load.lane
        lane.waiting.pop(id(bound), None)
        if lane.running is one:
            lane.running = None
        self._settle(bound, one, load)
        load.lane_changed(now)

    def _without_slices(self, one: slices.Sliced, load: loads.Load, usage: model.Usage, now: float) -> model.Usage:
        """Usage as it would have been without slices: what they computed for this request was not cached before it."""
        if not one.count or usage.cached_tokens is None:
            return usage
        load.lane.useful(one.done, usage.cached_tokens, now)
        return model.Usage(usage.prompt_tokens, usage.completion_tokens, one.first_cached)

    # Learning

    def _learn_cache(self, bound: bindings.Binding, usage: model.Usage) -> None:
        if usage.cached_tokens is None:
            return
        load = bound._load
        predicted, actual = bound.matched_tokens, usage.cached_tokens
        load.cached_predicted += predicted
        load.cached_actual += actual
        load.cached_error += abs(predicted - actual)
        if bound._last is not None:
            self.sizes.learn_reply(bound._last.prompt_tokens, bound._last.reply_tokens, actual)
        allowed = max(_ERROR_TOKENS, _ERROR_SHARE * usage.prompt_tokens)
        if predicted - actual <= allowed:
            if predicted:
                load.mirror.grow()
        elif bound._matched_idle:
            # Had a running request shared the prefix, it might not have been computed yet: no sign of eviction.
            load.mirror.shrink()

    def _learn_time(self, bound: bindings.Binding, usage: model.Usage, now: float) -> None:
        load = bound._load
        cached = usage.cached_tokens
        if cached is None:
            cached = bound.matched_tokens if bound.sliced is None else bound.sliced.done
        prefill_s = load.timing.prefill_s(max(1, usage.prompt_tokens - cached), cached)
        step_s = load.step_s or load.timing.decode_step_s(1, load.kv_tokens)
        if bound.first_token_at is not None and bound.last_token_at is not None:
            if bound.tokens > 1 and bound.last_token_at > bound.first_token_at:
                count = max(bound.tokens, usage.completion_tokens) - 1
                load.timing.observe_decode(step_s, (bound.last_token_at - bound.first_token_at) / max(1, count))
            self._learn_prefill(bound, prefill_s)
        elif bound._alone:
            # No first token was seen: the whole time teaches both factors alike.
            predicted_s = prefill_s + usage.completion_tokens * step_s
            ratio = (now - bound.bound_at) / predicted_s if predicted_s else 1.0
            load.timing.observe_prefill(prefill_s, 1, prefill_s * ratio)
            load.timing.observe_decode(step_s, step_s * ratio)

    def _learn_prefill(self, bound: bindings.Binding, prefill_s: float) -> None:
        sample, bound._sample = bound._sample, None
        if sample is None:
            return
        sample.predicted_s += prefill_s
        sample.requests += 1
        sample.left -= 1
        if not sample.left and not sample.spoilt:
            sample.spoilt = True  # one use: a late member of its batch must not teach it twice
            bound._load.timing.observe_prefill(sample.predicted_s, sample.requests, sample.observed_s)


def _ratio(request: model.Request, tokens: int) -> float:
    """Tokens per byte of a prompt that has so many."""
    return tokens / max(1, request.prompt.data_bytes + request.prompt.rest_bytes)
