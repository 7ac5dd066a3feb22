"""How long the router's policy takes to hash a prompt, to bind a request and to release it, by number of replicas.

    PYTHONPATH=build/compiled python bench/router_binding.py    # as it ships, after `make compiled`
    python bench/router_binding.py                              # the sources

Prints a table; asserts nothing. Budgets: binding at most 50 us at 64 replicas, 150 us at 1,000; a 400 KB prompt hashed
in well under 1 ms. `warm`: next turns of sessions (100 KB and growing); `cold`: 4 KB prompts never seen;
`shared`: 40 KB prompts of which half is one prefix that every replica holds. All replicas have streams running.
"""

import gc
import itertools
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator

from shoal_api import routes
from shoal_router import build, model
from shoal_router.admission import core, ticket
from shoal_router.index import chain
from shoal_router.policy import binding

ROUNDS = 3000
RUNNING = 4


def request(data: bytes, session: int) -> model.Request:
    return model.Request(model.Prompt(data), chain.chain(data), model.Session(session, "bench"), body_bytes=len(data))


def fleet(replicas: int) -> core.ServiceCore:
    service = routes.Service(name="bench", served_name="bench")
    made = core.ServiceCore(service, random.Random(1))
    for number in range(replicas):
        name = f"r{number}"
        made.add_replica(model.Replica(name, f"http://{name}"), 0.0)
        made.set_facts(name, model.EngineFacts(2_000_000, 1024), 0.0)
        made.set_state(name, model.ReplicaState.ROUTABLE, 0.0)
    return made


def warm() -> Iterator[model.Request]:
    texts = [os.urandom(100_000) for _ in range(64)]
    for turn in itertools.count():
        texts[turn % 64] += os.urandom(1000)
        yield request(texts[turn % 64], turn % 64)


def cold() -> Iterator[model.Request]:
    for turn in itertools.count():
        yield request(os.urandom(4096), turn)


def shared() -> Iterator[model.Request]:
    prefix = os.urandom(20_000)
    for turn in itertools.count():
        yield request(prefix + os.urandom(20_000), turn)


def measure(made: core.ServiceCore, requests: Iterator[model.Request], rounds: int) -> tuple[list[float], list[float]]:
    """Microseconds of each submit that binds, and of each first token with finish."""
    bind_us, rest_us = [], []
    got: list[binding.Binding] = []

    def refused(outcome: model.Outcome, _: float) -> None:
        raise AssertionError(outcome)

    now = made.counters.last_request_at or 0.0
    for one in itertools.islice(requests, rounds):
        now += 1.0  # prefill of the one before is over, so none waits
        wanted = ticket.Ticket(one, got.append, refused)
        start = time.perf_counter()
        made.submit(wanted, now)
        bound = time.perf_counter()
        given = got.pop()
        made.first_token(given, now + 0.1)
        made.finish(given, model.Usage(given.prompt_tokens, 64, given.matched_tokens), now + 0.5)
        end = time.perf_counter()
        bind_us.append((bound - start) * 1e6)
        rest_us.append((end - bound) * 1e6)
    return bind_us, rest_us


def occupy(made: core.ServiceCore, replicas: int) -> list[binding.Binding]:
    """Streams that run all the time."""
    held: list[binding.Binding] = []
    for number in range(replicas * RUNNING):
        made.submit(ticket.Ticket(request(os.urandom(2048), -1 - number), held.append, lambda *_: None), 0.0)
        made.first_token(held[-1], 0.0)
    return held


def show(name: str, figures_us: list[float]) -> str:
    ordered = sorted(figures_us)
    return f"{name} {statistics.median(ordered):7.1f} {ordered[int(0.99 * len(ordered))]:8.1f}"


def main() -> None:
    cases: dict[str, Callable[[], Iterator[model.Request]]] = {"warm": warm, "cold": cold, "shared": shared}
    print(f"shoal-router {build.describe()}")
    print("replicas case        bind us p50      p99   first token + finish us p50      p99")
    for replicas in (8, 64, 1000):
        for name, make in cases.items():
            made = fleet(replicas)
            held = occupy(made, replicas)
            requests = make()
            measure(made, requests, 300)
            gc.collect()
            bind_us, rest_us = measure(made, requests, ROUNDS)
            print(f"{replicas:8} {name:8} {show('     ', bind_us)} {show('                        ', rest_us)}")
            assert len(held) == replicas * RUNNING
    for size in (4_000, 40_000, 400_000, 4_000_000):
        data = os.urandom(size)
        times_us = []
        for _ in range(200):
            start = time.perf_counter()
            hashes = chain.chain(data)
            times_us.append((time.perf_counter() - start) * 1e6)
        print(f"hash a prompt of {size:9,} bytes: {len(hashes):5} hashes, {show('us p50, p99', times_us)}")


if __name__ == "__main__":
    main()
