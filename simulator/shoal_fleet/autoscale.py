"""Replicas that come and go: the operator's production scaler and rollout planner, in virtual time.

Every tick does what the operator's reconciler does for a ModelService: figures from the router's `/state`, a count by
`shoal_operator.domain.scaling.decide`, steps by `shoal_operator.domain.rollout.plan_steps`, both imported unchanged.
Here, a replica serves `load_s` after it was asked for, and is gone as soon as it is deleted.
"""

from dataclasses import dataclass, field

from shoal_api import routes, state
from shoal_fleet.fleet import Fleet
from shoal_fleet.model import EngineModel
from shoal_fleet.policies.production import GPU, REVISION
from shoal_operator.domain import demand, fleet, naming, rollout, scaling, values

SERVICE = "fleet"
TICK_S = 2.0
"""The operator's: routers are asked, and it decides, so often."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """Bounds and objectives as in a ModelService's `spec.scaling`; `room`: replicas that fit into the cluster."""

    spec: values.Scaling
    room: int | None = None
    drain_timeout_s: float = 1800.0


@dataclass(frozen=True, slots=True)
class Tick:
    """One decision, with what it was made from."""

    at_s: float
    wanted: int
    reason: str
    ready: int
    starting: int
    draining: int
    queued_s: float
    """Prefill seconds of what waits in the router."""
    waiting: int
    """Requests that do."""
    terms: tuple[tuple[str, float], ...] = ()
    """Replicas by each term of the scaler that is known: `backlog`, `rate`, `kv`, `itl`."""


@dataclass(slots=True)
class _Replica:
    number: int
    created_s: float
    ready_s: float | None = None
    drain_since_s: float | None = None


@dataclass(slots=True)
class _Seen:
    """Starts that were measured, as the operator remembers them."""

    took_s: list[float] = field(default_factory=list)

    def p95_s(self, assumed_s: float) -> float:
        seen = sorted(self.took_s)
        return seen[min(len(seen) - 1, int(0.95 * len(seen)))] if seen else assumed_s


class Autoscaler:
    """Owns the fleet's replicas. `ticks` are all decisions; `replica_s` is what they cost."""

    def __init__(self, served: Fleet, model: EngineModel, wanted: Scaling, timing: routes.Timing) -> None:
        self.ticks: list[Tick] = []
        self._fleet = served
        self._model = model
        self._wanted = wanted
        self._timing = timing
        self._replicas: dict[str, _Replica] = {}
        self._memory = scaling.Memory()
        self._desired = wanted.spec.min
        self._seen = _Seen()
        self._ended_s = 0.0

    def start(self) -> None:
        """`min` replicas are ready; the first tick follows."""
        for number in range(self._wanted.spec.min):
            name = naming.replica_name(SERVICE, REVISION, number)
            now_s = self._fleet.clock.now_s
            self._replicas[name] = _Replica(number, now_s - self._model.load_s, ready_s=now_s)
            self._seen.took_s.append(self._model.load_s)
            self._fleet.add_replica(name, self._model)
        self._fleet.clock.after(TICK_S, self._tick, background=True)

    def replica_s(self, until_s: float) -> float:
        """Seconds of replicas, from when each was asked for until it was gone; nothing before the run began."""
        alive = sum(until_s - max(0.0, one.created_s) for one in self._replicas.values())
        return self._ended_s + alive

    def _tick(self) -> None:
        now_s = self._fleet.clock.now_s
        said = self._fleet.policy.state(now_s)
        assert said is not None, "only a policy with a state can be scaled by"
        cold_start_s = self._seen.p95_s(self._model.load_s)
        replicas = tuple(self._observed(name, said, cold_start_s) for name in self._replicas)
        decision = self._decide(said, replicas, cold_start_s)
        plan = rollout.plan_steps(self._world(replicas, cold_start_s))
        self._note(said, replicas, decision)
        for step in plan.steps:
            self._carry_out(step)
        self._fleet.clock.after(TICK_S, self._tick, background=True)

    def _decide(
        self, said: state.ServiceState, replicas: tuple[fleet.Replica, ...], cold_start_s: float
    ) -> scaling.Decision:
        now_s = self._fleet.clock.now_s
        pending = [one for one in replicas if not one.serving and not one.draining]
        inputs = scaling.Inputs(
            now_s=now_s,
            scaling=self._wanted.spec,
            reports=(demand.Report("router-0", said, uptime_s=now_s),),
            supply=scaling.Supply(
                ready=sum(one.serving for one in replicas),
                pending=len(pending),
                draining=sum(one.draining for one in replicas),
                stalled=tuple(one.name for one in pending if one.stalled),
            ),
            desired=self._desired,
            timing=self._timing,
            kv_per_replica=float(self._model.kv_tokens),
            cold_start_s=cold_start_s,
        )
        decision, self._memory = scaling.decide(inputs, self._memory)
        self._desired = decision.desired
        return decision

    def _world(self, replicas: tuple[fleet.Replica, ...], cold_start_s: float) -> fleet.Fleet:
        room = self._wanted.room
        return fleet.Fleet(
            target=REVISION,
            desired=self._desired,
            replicas=replicas,
            room={GPU: None if room is None else max(0, room - len(replicas))},
            limits=fleet.Limits(drain_timeout_s=self._wanted.drain_timeout_s, starts_max=self._wanted.spec.starts_max),
            creatable=frozenset({REVISION}),
            cold_start_s=cold_start_s,
        )

    def _observed(self, name: str, said: state.ServiceState, cold_start_s: float) -> fleet.Replica:
        one = self._replicas[name]
        now_s = self._fleet.clock.now_s
        figures = next((each for each in said.replicas if each.name == name), None)
        age_s = now_s - one.created_s
        draining_s = None if one.drain_since_s is None else now_s - one.drain_since_s
        return fleet.Replica(
            name=name,
            number=one.number,
            revision=REVISION,
            gpu=GPU,
            phase=fleet.Phase.STARTING if one.ready_s is None else fleet.Phase.READY,
            accepted=figures is not None and figures.state == "Routable",
            draining_for_s=draining_s,
            drain_acked=figures is None or figures.state == "Draining",
            in_flight_requests=figures.in_flight_requests if figures is not None else 0,
            stalled=one.ready_s is None and scaling.stalled(age_s, cold_start_s),
            age_s=age_s,
            in_flight_work_s=figures.in_flight_work_s if figures is not None else 0.0,
            unique_hot_tokens=figures.unique_hot_tokens if figures is not None else 0,
            reuse_per_s=figures.reuse_per_s if figures is not None else 0.0,
            prefill_b_s=(figures.prefill_b_s or 0.0) if figures is not None else 0.0,
        )

    def _carry_out(self, step: fleet.Step) -> None:
        now_s = self._fleet.clock.now_s
        if isinstance(step, fleet.Create):
            name = naming.replica_name(SERVICE, step.revision, step.number)
            made = self._replicas[name] = _Replica(step.number, now_s)
            self._fleet.clock.after(self._model.load_s, lambda: self._loaded(name, made))
        elif isinstance(step, fleet.StartDrain):
            self._replicas[step.name].drain_since_s = now_s
            self._fleet.drain(step.name)
        elif isinstance(step, fleet.CancelDrain):
            self._replicas[step.name].drain_since_s = None
            self._fleet.drain(step.name, draining=False)
        else:
            gone = self._replicas.pop(step.name)
            self._ended_s += now_s - max(0.0, gone.created_s)
            if gone.ready_s is not None:
                self._fleet.remove_replica(step.name)

    def _loaded(self, name: str, made: _Replica) -> None:
        if self._replicas.get(name) is made:  # not deleted meanwhile
            made.ready_s = self._fleet.clock.now_s
            self._seen.took_s.append(made.ready_s - made.created_s)
            self._fleet.add_replica(name, self._model)

    def _note(self, said: state.ServiceState, replicas: tuple[fleet.Replica, ...], decision: scaling.Decision) -> None:
        figures = dict(decision.figures)
        self.ticks.append(
            Tick(
                at_s=self._fleet.clock.now_s,
                wanted=decision.desired,
                reason=decision.reason.value,
                ready=sum(one.serving for one in replicas),
                starting=sum(one.phase is fleet.Phase.STARTING for one in replicas),
                draining=sum(one.draining for one in replicas),
                queued_s=said.queue.work_s,
                waiting=said.queue.requests,
                terms=tuple((name, figures[name]) for name in ("backlog", "rate", "kv", "itl") if name in figures),
            )
        )
