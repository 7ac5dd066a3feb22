"""Policies by name, for the command line and for benchmarks."""

import random
from collections.abc import Callable

from shoal_api import routes
from shoal_fleet.policies import greedy, peers, production
from shoal_fleet.policies.protocol import Policy


def _unsliced(service: routes.Service) -> routes.Service:
    return service.model_copy(update={"slicing": "Off"})


_MAKERS: dict[str, Callable[[routes.Service, random.Random], Policy]] = {
    "price_and_hold": lambda service, rng: production.PriceAndHold(service, rng, predict=True),
    "price_and_hold_whole": lambda service, rng: production.PriceAndHold(_unsliced(service), rng, predict=True),
    "greedy": greedy.Greedy,
    "cache_aware": lambda service, rng: peers.CacheAware(rng),
    "cache_aware_tree": lambda service, rng: peers.CacheAware(rng, miss="smallest_tree"),
    "least_loaded": lambda service, rng: peers.LeastLoaded(rng),
    "round_robin": lambda service, rng: peers.RoundRobin(rng),
}
NAMES = tuple(_MAKERS)
PRODUCTION = "price_and_hold"


def make(name: str, service: routes.Service, seed: int) -> Policy:
    """Raises KeyError for an unknown name."""
    return _MAKERS[name](service, random.Random(seed))
