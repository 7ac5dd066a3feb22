"""What routers said last, by Router: the poller writes it each tick, reconcilers read it. Pure memory, no I/O.

Answers are kept for the routers that exist now; how old an answer is stays visible, so that a reader can tell a router
that has just missed one tick from one that is gone.
"""

import collections
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shoal_api.state import ReplicaState, ServiceState
from shoal_operator.kube.routers import Answer, RouterPod


@dataclass(frozen=True, slots=True)
class Said:
    """One router process: the last state it gave, if any, how old that is, and whether the last request failed."""

    pod: RouterPod
    answer: Answer | None
    age_s: float
    failing: bool

    def service(self, name: str) -> ServiceState | None:
        """Its figures of one service; an answering router without the service has empty ones."""
        if self.answer is None or self.answer.state is None:
            return None
        for one in self.answer.state.services:
            if one.name == name:
                return one
        return ServiceState(name=name)

    def replica(self, service: str, name: str) -> ReplicaState | None:
        figures = self.service(service)
        if figures is None:
            return None
        return next((one for one in figures.replicas if one.name == name), None)


@dataclass(frozen=True, slots=True)
class Flow:
    """Tokens that went through all routers in a stretch of time."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    seconds: float


FLOW_WINDOW_S = 60.0
_SAMPLES_MAX = 40
_Totals = tuple[float, float, int, int, int]  # at, process started at, prompt, cached, output


class RouterView:
    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._good: dict[RouterPod, Answer] = {}
        self._last: dict[RouterPod, Answer] = {}
        self._totals: dict[tuple[RouterPod, str], collections.deque[_Totals]] = {}
        self._known = False

    @property
    def known(self) -> bool:
        """False until the first round: then nobody knows which routers there are."""
        return self._known

    def update(self, answers: Iterable[Answer]) -> None:
        """One round over all routers that exist; others are forgotten."""
        self._last = {answer.pod: answer for answer in answers}
        self._good = {pod: answer for pod, answer in self._good.items() if pod in self._last}
        self._good |= {pod: answer for pod, answer in self._last.items() if answer.state is not None}
        oldest_s = self._clock() - FLOW_WINDOW_S
        self._totals = {
            place: seen
            for place, seen in self._totals.items()
            if place[0] in self._last and seen[-1][0] >= oldest_s  # older: the service is gone, or its router silent
        }
        for answer in self._last.values():
            self._remember(answer)
        self._known = True

    def _remember(self, answer: Answer) -> None:
        if answer.state is None:
            return
        started_s = answer.state.started_at_s
        for one in answer.state.services:
            seen = self._totals.setdefault((answer.pod, one.name), collections.deque(maxlen=_SAMPLES_MAX))
            totals = (one.prompt_tokens_total, one.cached_tokens_total, one.output_tokens_total)
            seen.append((answer.at_s, started_s, *totals))

    def flow(self, namespace: str, router: str, service: str) -> Flow | None:
        """What went through in the last minute; None until two answers of one process are there."""
        now_s = self._clock()
        prompt = cached = output = 0
        seconds = 0.0
        for (pod, name), seen in self._totals.items():
            if (pod.namespace, pod.router, name) != (namespace, router, service):
                continue
            # Counters begin anew with the process: samples of an earlier one are about another counter.
            recent = [one for one in seen if now_s - one[0] <= FLOW_WINDOW_S and one[1] == seen[-1][1]]
            if len(recent) < 2:
                continue
            first, last = recent[0], recent[-1]
            prompt += max(0, last[2] - first[2])
            cached += max(0, last[3] - first[3])
            output += max(0, last[4] - first[4])
            seconds = max(seconds, last[0] - first[0])
        return Flow(prompt, cached, output, seconds) if seconds > 0 else None

    def forget(self) -> None:
        self._good.clear()
        self._last.clear()
        self._totals.clear()
        self._known = False

    def of(self, namespace: str, router: str) -> tuple[Said, ...]:
        """Every process of one Router, in a stable order."""
        now_s = self._clock()
        said = []
        for pod in sorted(self._last):
            if (pod.namespace, pod.router) == (namespace, router):
                good = self._good.get(pod)
                age_s = now_s - good.at_s if good is not None else float("inf")
                said.append(Said(pod, good, age_s, failing=self._last[pod].state is None))
        return tuple(said)
