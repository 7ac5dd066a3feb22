"""What an operator process is told: flags with environment defaults, in one frozen value."""

import argparse
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shoal_api import keys

LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class Settings:
    host: str
    metrics_port: int
    health_port: int
    kubeconfig: Path | None
    context: str | None
    namespace: str
    """Where the Lease is."""
    watch_namespace: str | None
    """Serve this namespace only; None: all."""
    lease_name: str
    identity: str
    router_image: str
    workers: int
    tick_s: float
    resync_s: float
    log_level: str


def parse(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Settings:
    """`shoal-operator run ...`; exits with a usage message where the arguments are wrong."""
    parser = argparse.ArgumentParser(
        prog="shoal-operator",
        allow_abbrev=False,
        description="Keeps fleets of SGLang engines as their ModelServices say.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the operator until SIGTERM", allow_abbrev=False)
    run.add_argument("--host", default="0.0.0.0", help="address of the metrics and health ports")  # noqa: S104
    run.add_argument("--metrics-port", type=_port, default=keys.OPERATOR_METRICS_PORT)
    run.add_argument("--health-port", type=_port, default=keys.OPERATOR_HEALTH_PORT)
    run.add_argument("--kubeconfig", type=Path, help="outside a cluster; default: in-cluster, then ~/.kube/config")
    run.add_argument("--context", help="context of the kubeconfig")
    run.add_argument(
        "--namespace", default=environment.get("POD_NAMESPACE") or _own_namespace(), help="namespace of the Lease"
    )
    run.add_argument("--watch-namespace", help="serve one namespace only; default: all")
    run.add_argument("--lease-name", default="shoal-operator")
    run.add_argument(
        "--identity",
        default=environment.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}",
        help="who holds the Lease; one per process",
    )
    run.add_argument(
        "--router-image",
        default=environment.get("SHOAL_ROUTER_IMAGE", ""),
        help="image of routers whose spec names none; default: the environment's SHOAL_ROUTER_IMAGE",
    )
    run.add_argument("--workers", type=_positive, default=8, help="objects reconciled at once")
    run.add_argument("--tick-seconds", type=float, default=2.0, help="how often routers are asked for their state")
    run.add_argument("--resync-seconds", type=float, default=300.0, help="how often everything is looked at anew")
    run.add_argument("--log-level", choices=LOG_LEVELS, default=environment.get("SHOAL_LOG_LEVEL", "INFO"))
    given = parser.parse_args(arguments)
    if not given.router_image:
        run.error("no router image: give --router-image, or set SHOAL_ROUTER_IMAGE")
    return Settings(
        host=given.host,
        metrics_port=given.metrics_port,
        health_port=given.health_port,
        kubeconfig=given.kubeconfig,
        context=given.context,
        namespace=given.namespace,
        watch_namespace=given.watch_namespace,
        lease_name=given.lease_name,
        identity=given.identity,
        router_image=given.router_image,
        workers=given.workers,
        tick_s=given.tick_seconds,
        resync_s=given.resync_seconds,
        log_level=given.log_level,
    )


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"not a port: {text}")
    return port


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1: {text}")
    return number


def _own_namespace() -> str:
    """The Pod's own namespace, else `default`."""
    try:
        return NAMESPACE_FILE.read_text().strip() or "default"
    except OSError:
        return "default"
