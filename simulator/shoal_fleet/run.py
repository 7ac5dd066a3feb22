"""One scenario from start to end: a workload, a policy and a fleet of equal replicas, fixed in number or scaled.

Deterministic by its seed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from shoal_api import routes
from shoal_fleet import results
from shoal_fleet.autoscale import Autoscaler, Scaling, Tick
from shoal_fleet.clients import Clients, Pace
from shoal_fleet.clock import Clock
from shoal_fleet.fleet import Fleet, Outcome, Patience
from shoal_fleet.model import EngineModel
from shoal_fleet.policies import registry
from shoal_fleet.policies.production import GPU
from shoal_fleet.workload import Workload

SAMPLE_EVERY_S = 2.5


@dataclass(frozen=True, slots=True)
class Scenario:
    workload: Workload
    model: EngineModel
    policy: str = registry.PRODUCTION
    replicas: int = 8
    """Ignored where `scaling` says how many."""
    scaling: Scaling | None = None
    pace: Pace = field(default_factory=Pace)
    patience: Patience = field(default_factory=Patience)
    queue: routes.Queue = field(default_factory=routes.Queue)
    """Bounds of the router's queue; the defaults are production's."""
    timing: routes.Timing | None = None
    """What the router starts from; None: the engine's own, as far as a route table can say it."""
    seed: int = 1
    sample_every_s: float = SAMPLE_EVERY_S


@dataclass(frozen=True, slots=True)
class Run:
    """What a scenario gave."""

    outcomes: tuple[Outcome, ...]
    samples: tuple[results.Sample, ...]
    summary: results.Summary
    ticks: tuple[Tick, ...] = ()
    """Decisions of the scaler."""


def service_of(scenario: Scenario) -> routes.Service:
    """The route table's entry that the router works with."""
    timing = scenario.timing or scenario.model.router_timing()
    return routes.Service(name="fleet", served_name="fleet", timing={GPU: timing}, queue=scenario.queue)


def sampled(fleet: Fleet) -> results.Sample:
    replicas = {
        name: results.ReplicaSample(engine.requests, engine.waiting_tokens, engine.prefill_busy_s)
        for name, engine in fleet.engines.items()
    }
    return results.Sample(fleet.clock.now_s, fleet.policy.waiting(), replicas)


def run(scenario: Scenario, progress: Callable[[Fleet], None] | None = None) -> Run:
    """Runs it. `progress` is called at every sample. Raises ValueError for a policy that cannot be scaled by."""
    if scenario.scaling is not None and scenario.policy != registry.PRODUCTION:
        raise ValueError(f"the scaler reads the router's state, which policy {scenario.policy} does not have")
    service = service_of(scenario)
    fleet = Fleet(Clock(), registry.make(scenario.policy, service, scenario.seed), scenario.patience)
    samples: list[results.Sample] = []

    def sample() -> None:
        samples.append(sampled(fleet))
        if progress is not None:
            progress(fleet)
        fleet.clock.after(scenario.sample_every_s, sample, background=True)

    scaler = None
    if scenario.scaling is not None:
        scaler = Autoscaler(fleet, scenario.model, scenario.scaling, service.timing[GPU])
        scaler.start()
    else:
        for number in range(scenario.replicas):
            fleet.add_replica(f"replica-{number}", scenario.model)
    sample()
    Clients(fleet, scenario.workload, scenario.pace).start()
    fleet.run()
    ended_s = max((one.ended_s for one in fleet.outcomes), default=0.0)
    replica_s = scaler.replica_s(fleet.clock.now_s) if scaler is not None else ended_s * scenario.replicas
    summary = results.summarize(fleet.outcomes, samples, replica_s)
    return Run(tuple(fleet.outcomes), tuple(samples), summary, tuple(scaler.ticks) if scaler is not None else ())
