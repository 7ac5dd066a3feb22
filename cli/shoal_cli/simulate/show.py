"""What `shoal simulate` prints: progress while it runs, one row a policy, and what a reader must know beside."""

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Self

import click
from rich.table import Table

from shoal_cli.replay.show import number, seconds, share
from shoal_fleet import results, run
from shoal_fleet.fleet import Fleet

EVERY_S = 0.5


class Progress:
    """One line on the error output while a policy runs: rewritten on a terminal, once every while elsewhere."""

    def __init__(self, policy: str, requests: int) -> None:
        self._policy = policy
        self._requests = requests
        self._terminal = sys.stderr.isatty()
        self._next_s = 0.0

    def __enter__(self) -> Self:
        self._next_s = time.monotonic() + EVERY_S
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._terminal:
            click.echo("\r\x1b[K", err=True, nl=False)

    def update(self, fleet: Fleet) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + (EVERY_S if self._terminal else 10 * EVERY_S)
        text = (
            f"{self._policy}: {len(fleet.outcomes):,} of {self._requests:,} requests, "
            f"{fleet.clock.now_s:,.0f} s simulated, {fleet.in_flight} open"
        )
        if self._terminal:
            click.echo(f"\r\x1b[K{text}", err=True, nl=False)
        else:
            click.echo(text, err=True)

    def done(self, summary: results.Summary, took_s: float) -> None:
        click.echo(f"{self._policy}: {summary.simulated_s:,.0f} s simulated in {took_s:.1f} s", err=True)


_ROWS: tuple[tuple[str, Callable[[results.Summary], str]], ...] = (
    ("requests", lambda one: f"{one.requests:,}"),
    ("  failed", lambda one: f"{one.failed:,}"),
    ("  refused once or more", lambda one: f"{one.refused:,}"),
    ("seconds simulated", lambda one: f"{one.simulated_s:,.0f}"),
    ("TTFT mean", lambda one: seconds(one.ttft_s.mean)),
    ("  p50", lambda one: seconds(one.ttft_s.p50)),
    ("  p90", lambda one: seconds(one.ttft_s.p90)),
    ("  p99", lambda one: seconds(one.ttft_s.p99)),
    ("hit rate, token-weighted", lambda one: share(one.hit_rate)),
    ("decode tokens/s per user p50", lambda one: number(one.decode_tokens_per_s_per_user.p50)),
    ("tokens per replica per minute", lambda one: number(one.tokens_per_replica_minute)),
    ("replica hours", lambda one: number(one.replica_s / 3600)),
    ("prefill, share of time", lambda one: share(one.prefill_share)),
    ("  coefficient of variation", lambda one: share(one.spread_prefill_cv)),
    ("spread of requests", lambda one: number(one.spread_requests)),
    ("spread of queued tokens", lambda one: number(one.spread_waiting_tokens)),
    ("cached tokens: error of the router", lambda one: share(one.cached_error)),
    ("TTFT after binding: real / expected p50", lambda one: share(one.ttft_ratio.p50)),
)


def report(made: Mapping[str, run.Run]) -> Table:
    """One column a policy."""
    table = Table(title="Simulated fleet", title_justify="left", header_style="bold")
    table.add_column("")
    for name in made:
        table.add_column(name, justify="right")
    for title, shown in _ROWS:
        table.add_row(title, *(shown(one.summary) for one in made.values()))
    return table


def notes(made: Mapping[str, run.Run]) -> Iterator[str]:
    """Failures by reason, and what the scaler did."""
    for name, one in made.items():
        for reason, count in one.summary.failures.items():
            yield f"{name}: {count:,} requests failed: {reason}"
        if one.ticks:
            most = max(tick.ready for tick in one.ticks)
            changes = sum(before.wanted != after.wanted for before, after in itertools.pairwise(one.ticks))
            yield f"{name}: {one.ticks[0].ready} to {most} replicas, {changes} changes of the count"
