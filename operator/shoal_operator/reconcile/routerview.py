"""What routers said last, by Router: the poller writes it each tick, reconcilers read it. Pure memory, no I/O.

Answers are kept for the routers that exist now; how old an answer is stays visible, so that a reader can tell a router
that has just missed one tick from one that is gone.
"""

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


class RouterView:
    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._good: dict[RouterPod, Answer] = {}
        self._last: dict[RouterPod, Answer] = {}
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
        self._known = True

    def forget(self) -> None:
        self._good.clear()
        self._last.clear()
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
