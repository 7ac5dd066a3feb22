"""Command line of the router: every flag. What changes at run time is in the route table instead."""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from shoal_api import keys
from shoal_router import build


@dataclass(frozen=True, slots=True)
class Settings:
    """Either `routes_path` and `replicas_path`, or `router` and `namespace`."""

    host: str
    port: int
    admin_host: str
    admin_port: int
    instance: str
    grace_s: float
    listen_after_term_s: float
    connections_max: int
    log_level: str
    access_log: bool
    router: str
    namespace: str = ""
    kubeconfig: Path | None = None
    routes_path: Path | None = None
    replicas_path: Path | None = None

    @property
    def static(self) -> bool:
        return self.routes_path is not None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="shoal-router", description="Routes requests to SGLang replicas.")
    add = parser.add_argument
    add("--version", action="version", version=f"%(prog)s {build.describe()}")
    # All interfaces is what a Pod wants where nobody tells its address.
    add("--host", default="0.0.0.0", help="address of the client port (default %(default)s)")  # noqa: S104
    add("--port", type=int, default=keys.ROUTER_PORT, help="client port; 0: any free one (default %(default)s)")
    add("--admin-host", help="address of the admin port (default: that of --host)")
    add("--admin-port", type=int, default=keys.ROUTER_ADMIN_PORT, help="admin port; 0: any (default %(default)s)")
    kubernetes = parser.add_argument_group("discovery from Kubernetes")
    kubernetes.add_argument("--router", help="name of the Router this process belongs to")
    kubernetes.add_argument("--namespace", default=os.environ.get("POD_NAMESPACE", ""), help="its namespace")
    kubernetes.add_argument("--kubeconfig", type=Path, help="kubeconfig for use outside a Pod")
    files = parser.add_argument_group("discovery from files, read again when they change")
    files.add_argument("--routes", type=Path, help="route table, JSON")
    files.add_argument("--replicas", type=Path, help="engines, JSON")
    add("--instance", default="", help="name of this process in /state (default: the Pod's name, else host:port)")
    add(
        "--grace-s",
        type=float,
        default=600.0,
        help="time that running requests get after SIGTERM (default %(default)s)",
    )
    add(
        "--listen-after-term-s",
        type=float,
        default=5.0,
        help="time after SIGTERM in which new connections are still taken (default %(default)s)",
    )
    add("--connections-max", type=int, default=0, help="open client connections (default: by the limit of open files)")
    add("--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
    add("--access-log", action="store_true", help="one JSON line per request on stderr, without its content")
    return parser


def parse(argv: list[str] | None = None) -> Settings:
    """Exits with a message where the flags make no sense together."""
    parser = _parser()
    given = parser.parse_args(argv)
    static = given.routes is not None or given.replicas is not None
    if static and (given.routes is None or given.replicas is None):
        parser.error("--routes and --replicas go together")
    if static and (given.kubeconfig is not None):
        parser.error("--kubeconfig does not go with --routes and --replicas")
    if not static and not (given.router and given.namespace):
        parser.error("give --router and --namespace, or --routes and --replicas")
    return Settings(
        host=given.host,
        port=given.port,
        admin_host=given.admin_host or given.host,
        admin_port=given.admin_port,
        instance=given.instance or os.environ.get("POD_NAME", ""),
        grace_s=given.grace_s,
        listen_after_term_s=given.listen_after_term_s,
        connections_max=given.connections_max,
        log_level=given.log_level,
        access_log=given.access_log,
        router=given.router or "static",
        namespace=given.namespace,
        kubeconfig=given.kubeconfig,
        routes_path=given.routes,
        replicas_path=given.replicas,
    )
