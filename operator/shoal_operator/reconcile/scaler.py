"""The scaler's memory between decisions, by ModelService; the decision itself is `domain.scaling.decide`.

Lost with the process and at every change of leadership, on purpose: the first window after that never scales down.
"""

from collections.abc import Sequence

from shoal_api.modelservice import ModelServiceStatus
from shoal_operator.domain import demand, scaling
from shoal_operator.reconcile.outcome import Key
from shoal_operator.reconcile.routerview import Said


class Scaler:
    def __init__(self) -> None:
        self._memory: dict[Key, scaling.Memory] = {}
        self._desired: dict[Key, int] = {}

    def forget(self, key: Key) -> None:
        self._memory.pop(key, None)
        self._desired.pop(key, None)

    def forget_all(self) -> None:
        self._memory.clear()
        self._desired.clear()

    def in_force(self, key: Key, status: ModelServiceStatus, replicas: int, least: int) -> int:
        """The count decided last: in this process, else as the status has it, else what runs, but at least `min`."""
        known = self._desired.get(key)
        if known is not None:
            return known
        if status.scaling is not None:
            return status.scaling.desired
        return max(replicas, least)

    def decide(self, key: Key, inputs: scaling.Inputs) -> scaling.Decision:
        decision, memory = scaling.decide(inputs, self._memory.get(key, scaling.Memory()))
        self._memory[key] = memory
        self._desired[key] = decision.desired
        return decision

    def changes(self, key: Key) -> tuple[scaling.Change, ...]:
        """The last changes of the count in this process, newest first."""
        memory = self._memory.get(key)
        return memory.history if memory is not None else ()


def reports_of(service: str, routers: Sequence[Said], now_s: float) -> tuple[demand.Report, ...]:
    """What each router said of this service; one that did not answer stands there with nothing."""
    found = []
    for one in routers:
        state = one.answer.state if one.answer is not None else None
        uptime_s = max(0.0, now_s - state.started_at_s) if state is not None else 0.0
        found.append(demand.Report(one.pod.pod, one.service(service), uptime_s=uptime_s, age_s=one.age_s))
    return tuple(found)
