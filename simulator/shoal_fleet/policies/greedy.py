"""Least predicted time to first token, at once: the production index, timing and costs, without price and queue.

What the price and the late binding are measured against.
"""

import random

from shoal_api import routes, state
from shoal_fleet.policies.production import GPU, request_of
from shoal_fleet.policies.protocol import OnPlaced, OnRefused, Whole
from shoal_fleet.workload import Job
from shoal_router import model
from shoal_router.policy import binding, choice, pool

RETRY_AFTER_S = 5.0


def _seconds(terms: model.CostTerms) -> float:
    return terms.busy_s + terms.work_s + terms.interference_s + terms.kv_pressure_s


class _Bound(Whole):
    __slots__ = ("_binding", "_pool", "cached_predicted", "replica", "ttft_predicted_s")

    def __init__(self, made: pool.Pool, bound: binding.Binding) -> None:
        self._pool = made
        self._binding = bound
        self.replica = bound.replica.name
        self.cached_predicted: int | None = bound.matched_tokens
        self.ttft_predicted_s: float | None = bound.cost_s

    def first_token(self, now_s: float) -> None:
        self._pool.first_token(self._binding, now_s)

    def tokens(self, count: int, now_s: float) -> None:
        self._pool.tokens(self._binding, count, now_s)

    def finish(self, prompt_tokens: int, output_tokens: int, cached_tokens: int, now_s: float) -> None:
        self._pool.finish(self._binding, model.Usage(prompt_tokens, output_tokens, cached_tokens), now_s)

    def release(self, now_s: float) -> None:
        self._pool.release(self._binding, now_s)


class Greedy:
    """See the module."""

    def __init__(self, service: routes.Service, rng: random.Random) -> None:
        self._pool = pool.Pool(service.model_copy(update={"slicing": "Off"}), rng)
        self._rng = rng

    def add(self, replica: str, kv_tokens: int, running_max: int, page_tokens: int, now_s: float) -> None:
        load = self._pool.add(model.Replica(replica, f"http://{replica}", replica, gpu=GPU), now_s)
        load.set_facts(model.EngineFacts(kv_tokens, running_max, page_tokens))
        self._pool.set_state(replica, model.ReplicaState.ROUTABLE, now_s)

    def drain(self, replica: str, draining: bool, now_s: float) -> None:
        to = model.ReplicaState.DRAINING if draining else model.ReplicaState.ROUTABLE
        self._pool.set_state(replica, to, now_s)

    def remove(self, replica: str, now_s: float) -> None:
        self._pool.remove(replica)

    def submit(self, job: Job, on_placed: OnPlaced, on_refused: OnRefused, now_s: float) -> None:
        made = self._pool
        query = made.query(request_of(job))
        known = made.explain(query, now_s)
        if not known:
            on_refused("no_replica", RETRY_AFTER_S)
            return
        self._rng.shuffle(known)  # equal ones at random
        best = min(known, key=_seconds)
        chosen = choice.Choice(query, made.loads[best.replica], _seconds(best))
        on_placed(_Bound(made, made.bind(chosen, now_s)))

    def next_wake_s(self) -> float | None:
        return None

    def wake(self, now_s: float) -> None:
        """Nothing waits here."""

    def waiting(self) -> int:
        return 0

    def state(self, now_s: float) -> state.ServiceState | None:
        return None
