"""Which prompts of one service go in slices, and when each slice goes: the state of policy.slices, kept with the loads.

Part of policy.pool, called by it and by admission.core. A sliced binding has its place among the replica's requests and
its KV tokens from the start; of its prefill only the slice that runs counts as the replica's pending work.
"""

from shoal_api import routes
from shoal_router import model
from shoal_router.policy import binding as bindings
from shoal_router.policy import choice, slices
from shoal_router.policy import load as loads


class Slicing:
    """See the module."""

    def __init__(self, service: routes.Service) -> None:
        self.service = service
        self.lanes: dict[int, loads.Load] = {}
        """By id: replicas with sliced prompts whose last turn is to come, removed ones too, since what they have goes
        on there; one of the same name may be in its place by then."""
        self.totals = slices.Totals()

    def begin(self, bound: bindings.Binding, load: loads.Load, ratio: float, now: float) -> bool:
        """Let a long prompt go in slices if others on its replica gain by it; it waits for its turns from now on."""
        lane = load.lane
        tokens, cached = bound.prompt_tokens, bound.matched_tokens
        one = self._planned(id(bound), bound.request, load, ratio, tokens, cached, bound.work_s, now)
        if one is None:
            return False
        bound.sliced = one
        bound.prefilling = False
        lane.waiting[id(bound)] = one
        self.lanes[id(load)] = load
        self.totals.requests += 1
        load.lane_changed(now)
        return True

    def expected(self, query: choice.Query, load: loads.Load, now: float) -> int:
        """In how many slices a request would be sent there, itself not counted; 0: whole. Changes nothing."""
        tokens, (cached, _) = query.prompt_tokens, query.matched(load)
        work_s = load.timing.prefill_s(tokens - cached, cached)
        one = self._planned(0, query.request, load, 0.0, tokens, cached, work_s, now)
        if one is None:
            return 0
        return slices.parts(one, self._quantum_s(one, load, load.lane.count, now), load.timing) - 1

    def _planned(
        self,
        key: int,
        request: model.Request,
        load: loads.Load,
        ratio: float,
        tokens: int,
        cached: int,
        work_s: float,
        now: float,
    ) -> slices.Sliced | None:
        """A prompt as it would be sliced there; None where it goes whole."""
        if not (request.sliceable and self._may_slice(load)):
            return None
        lane = load.lane
        if not lane.worth(request.session.key, len(load.flight), now):
            return None
        one = slices.Sliced(key, request.chain, ratio, tokens, cached, work_s, now)
        return one if self._cut(one, load, lane.count, now) else None

    def _may_slice(self, load: loads.Load) -> bool:
        """Not where an engine has several ranks: which of them gets a slice is its own to say, and each has a cache."""
        ranks = load.facts.ranks
        return self.service.slicing != "Off" and (ranks is None or ranks == 1)

    def _quantum_s(self, one: slices.Sliced, load: loads.Load, others: int, now: float) -> float:
        cold = load.waiting_long + others
        return load.lane.quantum_s(load.timing, cold, load.streams_step_s, self.service.itl_objective_s, now, one.done)

    def _cut(self, one: slices.Sliced, load: loads.Load, others: int, now: float) -> int:
        """Where its next slice ends, with so many other sliced prompts there; 0: the rest goes in one piece."""
        quantum_s = self._quantum_s(one, load, others, now)
        return slices.cut(one, quantum_s, load.timing, load.facts.page_tokens or 1)

    def ready(self, bound: bindings.Binding, tokens: int, on_turn: slices.OnTurn, now: float) -> None:
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

    def unwanted(self, bound: bindings.Binding, on_turn: slices.OnTurn, now: float) -> None:
        """It cannot be sent in slices, or no further: the rest goes in one piece when its turn comes."""
        one = bound.sliced
        if one is not None and one.active and not bound.released:
            if one.end:
                self._end_slice(bound, one, now)
                bound._load.spoilt = True
                self.totals.failures += 1
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
            self.totals.slices += 1
        else:
            lane.free_since = now
            self._settle(bound, one, load)
        load.start_prefill(bound, now)
        load.lane_changed(now)
        load.refresh()
        return on_turn, end

    def done(self, bound: bindings.Binding, tokens: int, cached_tokens: int | None, now: float) -> None:
        """A slice of so many tokens is in the replica's cache; `cached_tokens` had been there before (None: not known).

        Cut as text, a slice is not quite as long as was asked for."""
        one, load = bound.sliced, bound._load
        if one is None or not one.end or bound.released:
            return
        end, lane, timing = max(1, min(tokens, one.tokens - 1)), load.lane, load.timing
        before = one.done if cached_tokens is None else min(cached_tokens, end - 1)
        if one.count == 1:
            one.first_cached = cached_tokens
        elif cached_tokens is not None and one.first_cached is not None and cached_tokens > one.done:
            one.first_cached = cached_tokens  # more than its slices brought: it was there before, and not known of
        elif cached_tokens is not None and not _useful(one, cached_tokens, load, now):
            one.whole = True
        step_s = load.streams_step_s
        if bound._alone and not load.spoilt:
            observed_s = now - one.sent_at
            beside_s = lane.overhead_s + step_s - timing.a_s
            prefill_s = timing.prefill_s(end - before, before)
            timing.observe_prefill(prefill_s, 1, max(0.0, observed_s - max(0.0, beside_s)))
            lane.learn_overhead(observed_s, prefill_s - timing.a_s + step_s)
        load.spoilt = False
        one.added_s += lane.overhead_s + step_s
        one.done = end
        self._end_slice(bound, one, now)

    def _end_slice(self, bound: bindings.Binding, one: slices.Sliced, now: float) -> None:
        """The slice that runs is over, one way or the other: its prompt waits for its next turn."""
        load = bound._load
        if bound.prefilling and not load.drop_pending(bound, now):
            load.spoilt = True
        load.last_sample = None
        load.lane.running = None
        load.lane.free_since = now
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
        self.totals.added_s += one.delayed_s + one.added_s
        if not load.lane.count:
            self.lanes.pop(id(load), None)

    def leave(self, bound: bindings.Binding, one: slices.Sliced, load: loads.Load, now: float) -> None:
        """It was released before its last turn."""
        lane = load.lane
        lane.waiting.pop(id(bound), None)
        if lane.running is one:
            lane.running = None
        self._settle(bound, one, load)
        load.lane_changed(now)


def without(one: slices.Sliced, load: loads.Load, usage: model.Usage, now: float) -> model.Usage:
    """Usage as it would have been without slices: what they computed for this request was not cached before it."""
    if not one.count or usage.cached_tokens is None:
        return usage
    if one.first_cached is not None and usage.cached_tokens > one.done:
        return usage  # more than its slices brought
    _useful(one, usage.cached_tokens, load, now)
    return model.Usage(usage.prompt_tokens, usage.completion_tokens, one.first_cached)


def _useful(one: slices.Sliced, cached_tokens: int, load: loads.Load, now: float) -> bool:
    """Whether what its slices computed was found again, of which the replica's lane takes note."""
    return load.lane.useful(one.done, cached_tokens, load.facts.page_tokens or 1, now)
