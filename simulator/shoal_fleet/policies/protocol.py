"""What a fleet asks of a policy. All calls are at the virtual time `now_s`; none does anything on its own."""

from collections.abc import Callable
from typing import Protocol

from shoal_api import state
from shoal_fleet.workload import Job

Send = Callable[[int], None]


class Placed(Protocol):
    """A request that has its replica; told what becomes of it, and ended exactly once by `finish` or `release`."""

    @property
    def replica(self) -> str: ...

    @property
    def cached_predicted(self) -> int | None:
        """Prompt tokens expected to be cached there; None for a policy that expects nothing."""

    @property
    def ttft_predicted_s(self) -> float | None:
        """From now to its first token, as expected when it was placed."""

    def start(self, send: Send, now_s: float) -> None:
        """Has the request sent, now or later: `send(0)`. Before that perhaps slices of its prompt, one at a time:
        `send(n)` asks for the first n tokens alone, and `slice_done` or `slice_failed` answers."""

    def slice_done(self, tokens: int, cached_tokens: int, now_s: float) -> None: ...

    def slice_failed(self, now_s: float) -> None: ...

    def first_token(self, now_s: float) -> None: ...

    def tokens(self, count: int, now_s: float) -> None: ...

    def finish(self, prompt_tokens: int, output_tokens: int, cached_tokens: int, now_s: float) -> None: ...

    def release(self, now_s: float) -> None: ...


class Whole:
    """A placed request that is never sliced: the part of `Placed` that such have in common."""

    __slots__ = ()

    def start(self, send: Send, now_s: float) -> None:
        send(0)

    def slice_done(self, tokens: int, cached_tokens: int, now_s: float) -> None:
        raise AssertionError("no slice was asked for")

    def slice_failed(self, now_s: float) -> None:
        raise AssertionError("no slice was asked for")


OnPlaced = Callable[[Placed], None]
OnRefused = Callable[[str, float], None]
"""Reason, and the seconds after which the client may come back."""


class Policy(Protocol):
    """Replicas in, jobs in, places out."""

    def add(self, replica: str, kv_tokens: int, running_max: int, page_tokens: int, now_s: float) -> None:
        """A replica is ready."""

    def drain(self, replica: str, draining: bool, now_s: float) -> None:
        """It gets no new request; or, with false, gets them again."""

    def remove(self, replica: str, now_s: float) -> None: ...

    def submit(self, job: Job, on_placed: OnPlaced, on_refused: OnRefused, now_s: float) -> None:
        """One of the two is called once, now or later."""

    def next_wake_s(self) -> float | None:
        """When `wake` is to be called if nothing else happens."""

    def wake(self, now_s: float) -> None: ...

    def waiting(self) -> int:
        """Requests that have no replica yet."""

    def state(self, now_s: float) -> state.ServiceState | None:
        """What the router's `/state` says, for the scaler; None where there is no such thing."""
