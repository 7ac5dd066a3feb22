"""Pictures of a replay: a live panel on a terminal, one line every few seconds elsewhere, the table at the end.

Reads `results`, prints, decides nothing. Called by `run` and, for the table, by the demo and the benchmark.
"""

import asyncio
from collections.abc import Callable

from rich.console import Console
from rich.live import Live
from rich.table import Table

from shoal_cli.replay import results
from shoal_fleet import percentiles

REFRESH_S = 0.5
LINE_S = 5.0


async def watch(console: Console, recorder: results.Recorder) -> None:
    """Shows progress until it is cancelled."""
    if not console.is_terminal:
        while True:
            await asyncio.sleep(LINE_S)
            console.print(line(recorder.live()), highlight=False, soft_wrap=True)
    with Live(picture(recorder.live()), console=console, transient=True, auto_refresh=False) as live:
        while True:
            live.update(picture(recorder.live()), refresh=True)
            await asyncio.sleep(REFRESH_S)


def line(now: results.Live) -> str:
    return (
        f"{now.elapsed_s:6.0f} s  sessions {now.sessions_active}  in flight {now.in_flight}  turns {now.requests}  "
        f"hit rate {share(now.hit_rate)}  TTFT p50 {seconds(now.ttft_p50_s)} p90 {seconds(now.ttft_p90_s)}  "
        f"{now.output_tokens_per_s:.0f} tokens/s  failed {now.failed}  error events {now.ended_with_error_event}  "
        f"retried {now.retried}"
    )


def picture(now: results.Live) -> Table:
    table = Table(title=f"replay, {now.elapsed_s:.0f} s", title_justify="left", box=None, header_style="bold")
    cells: dict[str, str] = {
        "sessions": str(now.sessions_active),
        "in flight": str(now.in_flight),
        "turns": str(now.requests),
        "hit rate": share(now.hit_rate),
        "TTFT p50": seconds(now.ttft_p50_s),
        "TTFT p90": seconds(now.ttft_p90_s),
        "tokens/s": f"{now.output_tokens_per_s:.0f}",
        "failed": str(now.failed),
        "error events": str(now.ended_with_error_event),
        "retried": str(now.retried),
    }
    for name in cells:
        table.add_column(name, justify="right")
    table.add_row(*cells.values())
    return table


def report(summary: results.Summary) -> Table:
    table = Table(title="Replay", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in _rows(summary):
        table.add_row(name, value)
    for error, count in summary.errors.items():
        table.add_row(f"  {error}", str(count))
    return table


def _rows(summary: results.Summary) -> list[tuple[str, str]]:
    rows = [
        ("requests", str(summary.requests)),
        ("  completed", str(summary.completed)),
        ("  failed", str(summary.failed)),
        ("  ended with an error event", str(summary.ended_with_error_event)),
        ("retried", str(summary.retried)),
        ("cancelled at the end", str(summary.cancelled)),
        ("sessions", str(summary.sessions)),
        ("seconds (wall clock)", f"{summary.wall_s:.1f}"),
        ("speed-up of think times", f"{summary.speedup:g}"),
        ("hit rate, token-weighted", share(summary.hit_rate)),
        ("  bound: infinite cache", share(summary.hit_rate_bound)),
        ("prompt tokens", f"{summary.prompt_tokens:,}"),
        ("output tokens", f"{summary.output_tokens:,}"),
    ]
    rows += _spread("TTFT", summary.ttft_s, seconds)
    rows += _spread("decode tokens/s per user", summary.decode_tokens_per_s_per_user, number)
    rows.append(("tokens per GPU per minute", number(summary.tokens_per_gpu_per_minute)))
    return rows


def _spread(name: str, spread: percentiles.Percentiles, shown: Callable[[float | None], str]) -> list[tuple[str, str]]:
    return [(f"{name} p50 / p90 / p99", f"{shown(spread.p50)} / {shown(spread.p90)} / {shown(spread.p99)}")]


def share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"
