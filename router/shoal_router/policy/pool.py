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
from shoal_router.policy import choice, cost, sizes, slicing
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
        self.slicing = slicing.Slicing(service)

    def configure(self, service: routes.Service) -> None:
        """A new route table: timing constants that changed start anew, the rest of what was learned stays."""
        before, self._service = self._service, service
        self.slicing.service = service
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
        ratio = query.prompt_tokens / max(1, request.prompt.data_bytes + request.prompt.rest_bytes)
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
        lane = load.lane
        sliced = request.sliceable and self.slicing.begin(bound, load, ratio, now)
        lane.note(request.session.key, not sliced, now)
        load.flight[id(bound)] = bound
        if not sliced:
            if load.rest_s and bound.work_s < load.next_s:
                self.slicing.totals.saved_s += load.rest_s
            load.start_prefill(bound, now)
        if chosen.matched_tokens:
            load.hits.add(1.0, now)
        self._bindings.add(1.0, now)
        load.refill()
        if self.owners.entries > self._entries_max:
            self._bound_memory()
        return bound

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
                usage = slicing.without(bound.sliced, load, usage, now)
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
            self.slicing.leave(bound, bound.sliced, load, now)
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
