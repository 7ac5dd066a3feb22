"""What every reconciler works with, in one value that is made at the top and handed down."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from shoal_operator.kube.apply import Applier
from shoal_operator.kube.client import Client
from shoal_operator.kube.recorder import Recorder
from shoal_operator.reconcile.index import Index
from shoal_operator.reconcile.outcome import Key, Outcome
from shoal_operator.reconcile.queue import WorkQueue
from shoal_operator.reconcile.routerview import RouterView
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
    queue: WorkQueue
    index: Index
    metrics: Metrics
    settings: Settings
    wall_clock: Callable[[], float] = time.time


Reconcile = Callable[[Context, Key], Awaitable[Outcome]]
