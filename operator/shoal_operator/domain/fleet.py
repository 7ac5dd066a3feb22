"""What the rollout planner sees and what it answers: values only.

The reconciler fills `Fleet` from StatefulSets, Pods and routers' `/state`; `rollout.plan_steps` returns a `Plan`; the
executor carries out its steps in order. The planner keeps nothing between calls: everything it needs is observed anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Phase(Enum):
    """How far a replica group has come. `READY` is the Pod's own readiness, `accepted` tells whether routers agree."""

    PENDING = "Pending"
    """No Pod yet, or not placed on a node."""
    STARTING = "Starting"
    """Placed; pulling, loading weights or capturing graphs for the first time."""
    READY = "Ready"
    NOT_READY = "NotReady"
    """Was ready before."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica group (one StatefulSet) as observed."""

    name: str
    number: int
    revision: str
    """The eight digits of label shoal.dev/revision."""
    gpu: str
    phase: Phase = Phase.PENDING
    accepted: bool | None = None
    """All answering routers list it Routable (True) or not (False); None when none of those there are answers. Where
    there is no router at all, nobody is there to refuse it: True."""
    failing: str | None = None
    """Why its container keeps dying (`CrashLoopBackOff: exit 137 OOMKilled`); None while it does not."""
    draining_for_s: float | None = None
    """Seconds since annotation shoal.dev/drain-since; None when it is not draining."""
    drain_acked: bool = False
    """Every router has in force a route table that names this replica as draining, and says so in `/state`."""
    in_flight_requests: int | None = None
    """Summed over routers; None when a router is missing, which is not zero."""
    deleting: bool = False
    """Its StatefulSet has a deletionTimestamp."""
    leaving: bool = False
    """Its Pod is on its way out by another hand than ours: an eviction, a node drain, a lost node."""
    stalled: bool = False
    """Not serving for longer than 1.5 x the p95 cold start: no longer counted as supply."""
    age_s: float = 0.0
    in_flight_work_s: float = 0.0
    unique_hot_tokens: int = 0
    reuse_per_s: float = 0.0
    prefill_b_s: float = 0.0
    cost_per_hour: float = 0.0

    @property
    def draining(self) -> bool:
        return self.draining_for_s is not None

    @property
    def serving(self) -> bool:
        """May be taking requests now: removing it could hurt. Unknown acceptance is not refusal."""
        going = self.draining or self.deleting or self.leaving
        return self.phase is Phase.READY and self.accepted is not False and not going

    @property
    def proven(self) -> bool:
        """Takes requests by the word of every router: only such a one can stand in for another."""
        return self.serving and self.accepted is True


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a plan. `starts_max` keeps a big scale-up from pulling the same weights everywhere at once."""

    max_surge: int = 1
    max_unavailable: int = 0
    drain_timeout_s: float = 1800.0
    starts_max: int = 8
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everything that the planner decides from.

    `room`: GPU type -> how many more replicas of this service fit there now (None: not known, try it), in the order in
    which profiles are preferred. `creatable`: revisions that the caller can render; the target is always one of them.
    """

    target: str
    desired: int
    replicas: tuple[Replica, ...]
    room: Mapping[str, int | None]
    limits: Limits = field(default_factory=Limits)
    creatable: frozenset[str] = frozenset()
    cold_start_s: float = 600.0
    """p95 of the cold start as measured or assumed: younger replicas than this are bad victims."""
    taken: frozenset[tuple[str, int]] = frozenset()
    """(revision, number) of Pods whose StatefulSet is gone and that finish their requests: their names exist."""


@dataclass(frozen=True, slots=True)
class Create:
    """Make replica `number` of `revision` on GPU type `gpu`."""

    revision: str
    number: int
    gpu: str


@dataclass(frozen=True, slots=True)
class StartDrain:
    """Annotate the replica with the time and name it as draining in the route table."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class CancelDrain:
    """Take the annotation and the route table's entry away again: the replica is wanted after all."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the StatefulSet (and its Service): nothing of a client's is running on it, or its time is up."""

    name: str
    reason: str


Step = Create | StartDrain | CancelDrain | Delete


@dataclass(frozen=True, slots=True)
class Hold:
    """Why nothing more is done now: a gate from `rollout.Gate`, and a sentence for people."""

    gate: str
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps to carry out now, what holds the rest, and whether the fleet is where it should be."""

    steps: tuple[Step, ...] = ()
    hold: Hold | None = None
    complete: bool = False
    """Every replica has the target revision and serves, their number is the desired one, nothing drains."""
