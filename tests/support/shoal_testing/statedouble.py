"""Routers for operator tests: real sockets on the admin port, answering `/state` as a router would.

Each follows the route table and the Pods of the cluster like a router; tests add requests in flight, or make one deaf
(it keeps the route table it has) or dead (no answer).
"""

import contextlib
import http.server
import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from shoal_api import keys
from shoal_api.routes import RouteTable
from shoal_testing.cluster import Cluster, Object


@dataclass
class Traffic:
    """What the routers of one namespace have to tell; changed by tests while they run."""

    in_flight: dict[str, int] = field(default_factory=dict)
    """Requests in flight by replica name."""
    service: dict[str, Any] = field(default_factory=dict)
    """Fields of every service's state: queue, rate, ttft, ..."""
    replica: dict[str, Any] = field(default_factory=dict)
    """Fields of every replica's state."""
    deaf: bool = False
    dead: bool = False
    heard: RouteTable | None = None
    """The route table in force: what a deaf router goes on with."""


class StateDouble:
    """One router process on `address`:8081."""

    def __init__(self, cluster: Cluster, namespace: str, router: str, address: str, traffic: Traffic) -> None:
        double = self
        self._cluster = cluster
        self._namespace = namespace
        self._router = router
        self._traffic = traffic
        self._address = address
        self._started_s = time.time()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if traffic.dead:
                    self.close_connection = True
                    return
                body = json.dumps(double.state()).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self._server = http.server.ThreadingHTTPServer((address, keys.ROUTER_ADMIN_PORT), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def table(self) -> RouteTable | None:
        if self._traffic.deaf and self._traffic.heard is not None:
            return self._traffic.heard
        stored = self._cluster.get("ConfigMap", keys.routes_config_map(self._router), self._namespace)
        if stored is not None:
            self._traffic.heard = RouteTable.model_validate_json(stored["data"][keys.ROUTES_KEY])
        return self._traffic.heard

    def state(self) -> Object:
        table = self.table()
        services = [self._service(one.name, set(one.draining)) for one in (table.services if table else ())]
        return {
            "router": self._router,
            "instance": self._address,
            "started_at_s": self._started_s,
            "routes_generation": table.generation if table else None,
            "discovery_synced": True,
            "services": services,
        }

    def _service(self, name: str, draining: set[str]) -> Object:
        pods = self._cluster.list("Pod", self._namespace, f"{keys.LABEL_SERVICE}={name}")
        replicas = [self._replica(pod, draining) for pod in pods if pod.get("status", {}).get("podIP")]
        return {"name": name, "replicas": replicas, **self._traffic.service}

    def _replica(self, pod: Object, draining: set[str]) -> Object:
        name = pod["metadata"]["labels"][keys.LABEL_REPLICA]
        conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", [])}
        if name in draining or "deletionTimestamp" in pod["metadata"]:
            state = "Draining"
        else:
            state = "Routable" if conditions.get("Ready") == "True" else "NotReady"
        return {
            "name": name,
            "uid": pod["metadata"]["uid"],
            "revision": pod["metadata"]["labels"][keys.LABEL_REVISION],
            "state": state,
            "in_flight_requests": self._traffic.in_flight.get(name, 0),
            **self._traffic.replica,
        }


class Farm:
    """A double for every router Pod that runs, as soon as it has an address; `traffic` by namespace."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._doubles: dict[str, StateDouble] = {}
        self._traffic: dict[str, Traffic] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="router doubles", daemon=True)

    def traffic(self, namespace: str) -> Traffic:
        return self._traffic.setdefault(namespace, Traffic())

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(20)
        for double in self._doubles.values():
            double.stop()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            try:
                pods = self._cluster.list("Pod", labels=f"{keys.LABEL_COMPONENT}=router")
            except (AssertionError, httpx.HTTPError, ValueError):
                continue
            for pod in pods:
                self._serve(pod)
            living = {pod["metadata"]["uid"] for pod in pods}
            for uid in [uid for uid in self._doubles if uid not in living]:
                self._doubles.pop(uid).stop()

    def _serve(self, pod: Object) -> None:
        meta, ip = pod["metadata"], pod.get("status", {}).get("podIP")
        if ip is None or meta["uid"] in self._doubles:
            return
        router = meta["labels"][keys.LABEL_ROUTER]
        double = StateDouble(self._cluster, meta["namespace"], router, ip, self.traffic(meta["namespace"]))
        double.start()
        self._doubles[meta["uid"]] = double
