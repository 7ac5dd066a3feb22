"""`shoal explain`: why a replica count is what it is, and where a request would go and at what cost.

`scale` prints what the operator wrote into the status, `route` asks a router's dry run. Neither changes anything.
"""

from pathlib import Path
from typing import Any, BinaryIO

import click
import httpx
from rich.table import Table

from shoal_cli import cluster, kubectl, screen, status

TIMEOUT_S = 10.0


@click.group()
def explain() -> None:
    """Why a replica count or a routing choice is what it is."""


@explain.command()
@click.argument("name")
@cluster.options
def scale(name: str, namespace: str, kubeconfig: Path | None, context: str) -> None:
    """Show the scaler's last decisions about ModelService NAME, with the figures they were made from."""
    target = kubectl.Target(kubeconfig=kubeconfig, context=context, namespace=namespace)
    item = cluster.read(target, status.KIND, name)
    state = item.get("status") or {}
    console = screen.console()
    scaling = state.get("scaling")
    active = status.condition(state, "ScalingActive")
    if not scaling:
        console.print(active.get("message") or f"{name} has no scaling: its count is spec.replicas.", highlight=False)
        return
    counts = state.get("replicas") or {}
    console.print(
        f"{name}: {counts.get('ready', 0)} ready, {scaling['desired']} wanted: {scaling['reason']}", highlight=False
    )
    if active.get("status") == "False":
        console.print(f"Scaling is not active: {active.get('reason')}: {active.get('message')}", highlight=False)
    console.print(_inputs(scaling.get("inputs") or {}))
    history = scaling.get("history") or []
    if history:
        console.print(_history(history))


@explain.command()
@click.argument("body", type=click.File("rb"))
@click.option("--url", required=True, help="A router's admin address: http://host:8081.")
@click.option("--path", default="/v1/chat/completions", show_default=True, help="API that the body is for.")
@click.option("--session", help="Session header of the request.")
@click.option("--json", "as_json", is_flag=True, help="Print the router's answer as it is.")
def route(body: BinaryIO, url: str, path: str, session: str | None, as_json: bool) -> None:
    """Show where a router would send the request in BODY (a file, or - for stdin): every candidate with its cost."""
    headers = {"content-type": "application/json", **({"x-session-id": session} if session else {})}
    address = url.rstrip("/") + "/debug/route"
    try:
        answer = httpx.post(
            address, params={"path": path}, content=body.read(), headers=headers, timeout=TIMEOUT_S, trust_env=False
        )
    except httpx.HTTPError as error:
        raise click.ClickException(f"{address}: {error or repr(error)}") from error
    if answer.status_code != 200:
        raise click.ClickException(f"{address} answered {answer.status_code}: {answer.text[:500]}")
    if as_json:
        click.echo(answer.text)
        return
    console = screen.console()
    for part in _parts(answer.json()):
        console.print(part, highlight=False)


def _inputs(inputs: dict[str, float]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in inputs.items():
        table.add_row(f"  {name}", f"{value:g}")
    return table


def _history(history: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("TIME", "FROM", "TO", "REASON", "INPUTS"):
        table.add_column(column)
    for one in history:
        inputs = " ".join(f"{name}={value:g}" for name, value in (one.get("inputs") or {}).items())
        table.add_row(one["time"], str(one["from"]), str(one["to"]), one["reason"], inputs)
    return table


def _parts(answer: dict[str, Any]) -> list[Table]:
    """Plain facts first, then one table for every list of objects (the candidates)."""
    facts = Table(box=None, pad_edge=False, show_header=False)
    lists: list[Table] = []
    for name, value in answer.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lists.append(_rows(name, value))
        else:
            facts.add_row(name, _fact(name, value))
    return [facts, *lists]


def _fact(name: str, value: object) -> str:
    """`slices` is into how many the prompt would be cut, and none says that it would go whole."""
    return f"{value} (whole)" if name == "slices" and value == 0 else _cell(value)


def _rows(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    for column in columns:
        table.add_column(column.upper())
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    return table


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "-" if value is None else str(value)
