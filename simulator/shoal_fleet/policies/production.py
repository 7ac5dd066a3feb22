"""The router's own core as a policy: `shoal_router.admission.core.ServiceCore` and `shoal_router.policy`, unchanged.

Only their public surface is used, so what is simulated is what is shipped.
"""

import random

from shoal_api import routes, state
from shoal_fleet import prefix
from shoal_fleet.policies.protocol import OnPlaced, OnRefused, Send
from shoal_fleet.workload import Job
from shoal_router import model
from shoal_router.admission import core, ticket
from shoal_router.policy import binding

GPU = "sim"
REVISION = "00000000"


def request_of(job: Job) -> model.Request:
    """A job as the router sees it after its body was read and hashed."""
    size = job.input_tokens * prefix.TOKEN_BYTES
    return model.Request(
        prompt=model.Prompt(b"", dropped_bytes=size),
        chain=prefix.router_chain(job),
        session=model.Session(job.session, "simulated"),
        parent=job.parent,
        body_bytes=size,
        output_max=job.output_tokens,
        sliceable=True,
    )


class _Bound:
    """A binding of the core."""

    __slots__ = ("_binding", "_core", "_send", "_tokens", "cached_predicted", "replica", "ttft_predicted_s")

    def __init__(self, made: core.ServiceCore, bound: binding.Binding, tokens: int, ttft_s: float | None) -> None:
        self._core = made
        self._binding = bound
        self._tokens = tokens
        self._send: Send | None = None
        self.replica = bound.replica.name
        self.cached_predicted: int | None = bound.matched_tokens
        self.ttft_predicted_s = ttft_s

    def start(self, send: Send, now_s: float) -> None:
        if self._binding.sliced is None:
            send(0)
        else:
            self._send = send
            self._core.slices_ready(self._binding, self._tokens, send, now_s)

    def slice_done(self, tokens: int, cached_tokens: int, now_s: float) -> None:
        self._core.slice_done(self._binding, tokens, cached_tokens, now_s)

    def slice_failed(self, now_s: float) -> None:
        assert self._send is not None
        self._core.slices_unwanted(self._binding, self._send, now_s)

    def first_token(self, now_s: float) -> None:
        self._core.first_token(self._binding, now_s)

    def tokens(self, count: int, now_s: float) -> None:
        self._core.tokens(self._binding, count, now_s)

    def finish(self, prompt_tokens: int, output_tokens: int, cached_tokens: int, now_s: float) -> None:
        self._core.finish(self._binding, model.Usage(prompt_tokens, output_tokens, cached_tokens), now_s)

    def release(self, now_s: float) -> None:
        self._core.release(self._binding, now_s, failed=True)


class PriceAndHold:
    """See the module. `predict`: also say when each first token is expected, which costs a second look-up."""

    def __init__(self, service: routes.Service, rng: random.Random, *, predict: bool = False) -> None:
        self.core = core.ServiceCore(service, rng)
        self._predict = predict

    def add(self, replica: str, kv_tokens: int, running_max: int, page_tokens: int, now_s: float) -> None:
        self.core.add_replica(model.Replica(replica, f"http://{replica}", replica, REVISION, GPU), now_s)
        self.core.set_facts(replica, model.EngineFacts(kv_tokens, running_max, page_tokens), now_s)
        self.core.set_state(replica, model.ReplicaState.ROUTABLE, now_s)

    def drain(self, replica: str, draining: bool, now_s: float) -> None:
        to = model.ReplicaState.DRAINING if draining else model.ReplicaState.ROUTABLE
        self.core.set_state(replica, to, now_s)

    def remove(self, replica: str, now_s: float) -> None:
        self.core.remove_replica(replica, now_s)

    def submit(self, job: Job, on_placed: OnPlaced, on_refused: OnRefused, now_s: float) -> None:
        request = request_of(job)

        def bound(given: binding.Binding) -> None:
            on_placed(_Bound(self.core, given, job.input_tokens, self._first_token_in_s(request, given)))

        def rejected(outcome: model.Outcome, retry_after_s: float) -> None:
            on_refused(outcome.value, retry_after_s)

        self.core.submit(ticket.Ticket(request, bound, rejected), now_s)

    def next_wake_s(self) -> float | None:
        return self.core.next_wake()

    def wake(self, now_s: float) -> None:
        self.core.pump(now_s)

    def waiting(self) -> int:
        return self.core.waiting

    def state(self, now_s: float) -> state.ServiceState | None:
        return self.core.state(now_s)

    def _first_token_in_s(self, request: model.Request, given: binding.Binding) -> float | None:
        """Its replica's prefill that is bound and not done, its own included."""
        if not self._predict:
            return None
        if given.sliced is not None:
            return given.sliced.total_s
        terms = self.core.explain(request, given.bound_at)
        return next((one.busy_s for one in terms if one.replica == given.replica.name), None)
