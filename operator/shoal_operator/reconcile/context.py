"""What every reconciler works with, in one value that is made at the top and handed down."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from shoal_operator.kube.apply import Applier
from shoal_operator.kube.client import Client
from shoal_operator.kube.recorder import Recorder
from shoal_operator.reconcile.claims import Claims
from shoal_operator.reconcile.index import Index
from shoal_operator.reconcile.outcome import Key, Outcome
from shoal_operator.reconcile.queue import WorkQueue
from shoal_operator.reconcile.reservations import Reservations
from shoal_operator.reconcile.resolving import Resolver
from shoal_operator.reconcile.revisions import Revisions
from shoal_operator.reconcile.routerview import RouterView
from shoal_operator.reconcile.scaler import Scaler
from shoal_operator.reconcile.starts import Starts
from shoal_operator.reconcile.world import World
from shoal_operator.settings import Settings
from shoal_operator.telemetry import Metrics


@dataclass(frozen=True, slots=True)
class Context:
    client: Client
    world: World
    applier: Applier
    recorder: Recorder
    routers: RouterView
    resolver: Resolver
    claims: Claims
    revisions: Revisions
    scaler: Scaler
    starts: Starts
    reservations: Reservations
    queue: WorkQueue
    index: Index
    drains: dict[Key, tuple[str, ...]]
    """Draining replicas of each ModelService that was looked at since leadership began; its reconciler writes it."""
    refused: set[Key]
    """ModelServices that wait for a name that another one has: looked at again when any of the namespace changes."""
    refreshed: dict[Key, float]
    """When the figures in each ModelService's status were last written."""
    metrics: Metrics
    settings: Settings
    wall_clock: Callable[[], float] = time.time


Reconcile = Callable[[Context, Key], Awaitable[Outcome]]
