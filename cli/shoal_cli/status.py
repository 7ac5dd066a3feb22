"""`shoal status`: ModelServices with their conditions, replicas and what the scaler wants, on one screen.

Reads through kubectl and prints; what it shows is the objects' own status, and of one how routers are told to treat it.
Nothing is worked out here.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from shoal_cli import cluster, kubectl, screen

KIND = "modelservices.shoal.dev"


@click.command()
@click.argument("name", required=False)
@click.option("-A", "--all-namespaces", is_flag=True)
@cluster.options
def status(name: str | None, all_namespaces: bool, namespace: str, kubeconfig: Path | None, context: str) -> None:
    """Show ModelServices; with NAME, one with its replicas and conditions."""
    if name and all_namespaces:
        raise click.UsageError("NAME and --all-namespaces exclude each other")
    target = kubectl.Target(kubeconfig=kubeconfig, context=context, namespace=namespace)
    console = screen.console()
    if name:
        show_one(console, cluster.read(target, KIND, name))
        return
    found = cluster.read(target, KIND, *(["--all-namespaces"] if all_namespaces else []))
    items: list[dict[str, Any]] = found.get("items") or []
    if not items:
        console.print("No ModelServices.")
        return
    console.print(overview(items))


def overview(items: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("NAMESPACE", "NAME", "READY", "REPLICAS", "REVISION", "REASON", "SCALING", "HIT RATE", "TTFT P50"):
        table.add_column(column)
    for item in items:
        state = item.get("status") or {}
        ready = condition(state, "Ready")
        performance = state.get("performance") or {}
        table.add_row(
            item["metadata"].get("namespace", ""),
            item["metadata"]["name"],
            ready.get("status", "Unknown"),
            (state.get("replicas") or {}).get("summary") or "-",
            state.get("currentRevision") or "-",
            ready.get("reason") or "-",
            _scaling(state),
            _number(performance.get("cacheHit")),
            (performance.get("ttft") or {}).get("p50") or "-",
        )
    return table


def show_one(console: Console, item: dict[str, Any]) -> None:
    console.print(overview([item]))
    for title, table in details(item):
        console.print(f"\n{title}", style="bold")
        console.print(table)


def details(item: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    state = item.get("status") or {}
    replicas = state.get("replicaDetails") or []
    if replicas:
        columns = {"name": "NAME", "phase": "PHASE", "revision": "REVISION", "gpu": "GPU", "node": "NODE",
                   "sessions": "SESSIONS", "inFlightTokens": "TOKENS IN FLIGHT"}  # fmt: skip
        yield "Replicas", _table(replicas, columns)
    routing = (item.get("spec") or {}).get("routing")
    if routing:
        yield "Routing", _table([routing], {"affinity": "AFFINITY", "slicing": "SLICING"})
    conditions = state.get("conditions") or []
    if conditions:
        yield (
            "Conditions",
            _table(conditions, {"type": "TYPE", "status": "STATUS", "reason": "REASON", "message": "MESSAGE"}),
        )
    hold = (state.get("rollout") or {}).get("hold")
    if hold:
        yield "Rollout is held", _table([hold], {"gate": "GATE", "reason": "REASON", "since": "SINCE"})
    failure = (state.get("rollout") or {}).get("lastFailure")
    if failure:
        yield "Last failure", _table([failure], {"replica": "REPLICA", "reason": "REASON", "message": "MESSAGE"})


def condition(state: dict[str, Any], kind: str) -> dict[str, Any]:
    """The condition of that type, or an empty one."""
    return next((one for one in state.get("conditions") or () if one.get("type") == kind), {})


def _table(rows: list[dict[str, Any]], columns: dict[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in columns.values():
        table.add_column(title)
    for row in rows:
        table.add_row(*("-" if row.get(key) is None else str(row[key]) for key in columns))
    return table


def _scaling(state: dict[str, Any]) -> str:
    scaling = state.get("scaling")
    return f"{scaling.get('desired')} ({scaling.get('reason')})" if scaling else "-"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
