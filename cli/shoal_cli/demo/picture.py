"""The live picture: phases, fleet, TTFT and replicas over time, the replay's figures, the last events.

Draws what stage, fleet and recorder hold; keeps nothing but the two series. On no terminal: one line every few seconds.
"""

import asyncio
from collections import deque

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from shoal_cli.demo import stage, watch
from shoal_cli.replay import results, show
from shoal_cli.replay.outcome import Ending

REFRESH_S = 0.5
SAMPLE_S = 1.0
LINE_S = 5.0
SERIES_MAX = 90
EVENTS_SHOWN_MAX = 8
EVENTS_SHOWN_MIN = 2
OTHER_ROWS = 24
"""Rows of everything but events when all phases and six replicas are shown."""
BARS = " ▁▂▃▄▅▆▇█"


class Picture:
    def __init__(self, scene: stage.Stage) -> None:
        self._stage = scene
        self.fleet: watch.Fleet | None = None
        self.recorder: results.Recorder | None = None
        self._ttft: deque[float | None] = deque(maxlen=SERIES_MAX)
        self._ready: deque[float | None] = deque(maxlen=SERIES_MAX)
        self._events_shown = EVENTS_SHOWN_MAX

    async def draw(self, console: Console) -> None:
        """Until cancelled."""
        if not console.is_terminal:
            while True:
                await asyncio.sleep(LINE_S)
                if line := self.line():
                    console.print(line, highlight=False, markup=False, soft_wrap=True)
        self._events_shown = max(EVENTS_SHOWN_MIN, min(EVENTS_SHOWN_MAX, console.height - OTHER_ROWS))
        with Live(self.render(), console=console, auto_refresh=False) as live:
            turn = 0
            while True:
                if turn % round(SAMPLE_S / REFRESH_S) == 0:
                    self._sample()
                live.update(self.render(), refresh=True)
                turn += 1
                await asyncio.sleep(REFRESH_S)

    def line(self) -> str:
        """The present in one line; empty before there is a fleet."""
        if self.fleet is None:
            return ""
        ready, desired = self.fleet.counts
        parts = [f"[{self._stage.now_s():5.1f} s]", f"replicas {ready}/{desired}"]
        if self.recorder is not None:
            parts.append(show.line(self.recorder.live()).lstrip())
        return "  ".join(parts)

    def render(self) -> RenderableType:
        parts: list[RenderableType] = [self._phases()]
        if self.fleet is not None:
            parts.append(self._fleet(self.fleet))
            parts.append(self._series())
        if self.recorder is not None:
            parts.append(show.picture(self.recorder.live()))
        parts.append(self._events())
        return Panel(Group(*parts), title=f"shoal demo, {self._stage.now_s():.0f} s", title_align="left")

    def _sample(self) -> None:
        if self.fleet is not None:
            self._ready.append(float(self.fleet.counts[0]))
        if self.recorder is not None:
            self._ttft.append(self.recorder.live().ttft_p50_s)

    def _phases(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for phase in self._stage.phases:
            running = phase.seconds is None
            seconds = self._stage.now_s() - phase.began_s if phase.seconds is None else phase.seconds
            mark = "…" if running else "failed" if phase.failed else "done"
            table.add_row(mark, Text(phase.name, style="bold" if running else ""), f"{seconds:.1f} s")
        return table

    def _fleet(self, fleet: watch.Fleet) -> Table:
        ready, desired = fleet.counts
        scaling = fleet.status.get("scaling") or {}
        title = f"replicas: {ready} ready, {desired} wanted"
        if scaling:
            title += f" ({scaling.get('reason')})"
        if fleet.router is not None:
            title += f"; {fleet.router.queue.requests} requests wait in the router"
        table = Table(title=title, title_justify="left", box=None, header_style="bold")
        for column in ("REPLICA", "STATE", "GPU", "NODE", "RUNNING", "TOKENS", "KV IN USE", "SESSIONS", "HIT RATE"):
            table.add_column(column)
        hits = self._hits()
        for row in fleet.rows():
            table.add_row(
                row.name,
                row.phase,
                row.gpu,
                row.node,
                _count(row.in_flight),
                _count(row.in_flight_tokens),
                "-" if row.kv_share is None else f"{row.kv_share:.0%}",
                _count(row.sessions),
                show.share(hits.get(row.name)),
            )
        return table

    def _hits(self) -> dict[str, float]:
        """Hit rate of the recent answers by replica."""
        sums: dict[str, tuple[int, int]] = {}
        for outcome in self.recorder.outcomes[-200:] if self.recorder else ():
            if outcome.ending is Ending.COMPLETED and outcome.usage and outcome.usage.cached_tokens is not None:
                cached, prompt = sums.get(outcome.replica, (0, 0))
                sums[outcome.replica] = cached + outcome.usage.cached_tokens, prompt + outcome.usage.prompt_tokens
        return {name: cached / prompt for name, (cached, prompt) in sums.items() if prompt}

    def _series(self) -> Table:
        table = Table.grid(padding=(0, 2))
        table.add_row("replicas ready", sparkline(list(self._ready)), _last(self._ready, "{:.0f}"))
        table.add_row("TTFT p50", sparkline(list(self._ttft)), show.seconds(self._ttft[-1] if self._ttft else None))
        return table

    def _events(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for event in list(self._stage.events)[-self._events_shown :]:
            table.add_row(f"{event.at_s:5.1f} s", Text(event.text, overflow="ellipsis", no_wrap=True))
        return table


def sparkline(series: list[float | None]) -> str:
    """One character a sample, scaled to the largest; a gap where there was no sample."""
    top = max((value for value in series if value is not None), default=0.0)
    if top <= 0:
        return " " * len(series)
    return "".join(
        " " if value is None else BARS[max(1, round(value / top * (len(BARS) - 1)))] if value > 0 else "▁"
        for value in series
    )


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _last(series: deque[float | None], form: str) -> str:
    return form.format(series[-1]) if series and series[-1] is not None else "-"
