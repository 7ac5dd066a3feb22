"""Metric definitions and log format: a leaf that every layer may import and that imports none of them."""

import collections
import contextlib
import json
import logging
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, constant message, then the record's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {key: value for key, value in vars(record).items() if key not in _STANDARD_FIELDS}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False)


def configure_logging(level: str, stream: TextIO = sys.stderr) -> None:
    """JSON lines for us; of kopf and the clients only what a person should act on."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # kopf logs every event at INFO and every retried request as an error; httpx logs every request.
    for name, quiet in (("kopf", logging.WARNING), ("httpx", logging.WARNING), ("aiohttp.access", logging.WARNING)):
        logging.getLogger(name).setLevel(max(quiet, root.level))


class Metrics:
    """Everything under `shoal_operator_`. One object a process, made at the top and handed down."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry if registry is not None else CollectorRegistry()
        at = self.registry
        self.reconciles = Counter(
            "shoal_operator_reconcile_total", "Reconciles by kind and result.", ["kind", "result"], registry=at
        )
        self.reconcile_seconds = Histogram(
            "shoal_operator_reconcile_duration_seconds",
            "Duration of one reconcile.",
            ["kind"],
            buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
            registry=at,
        )
        self.queue_depth = Gauge(
            "shoal_operator_queue_depth", "Keys that wait for a worker now (not those due later).", registry=at
        )
        self.watch_restarts = Counter(
            "shoal_operator_watch_restarts_total", "Watch streams begun again after the first time.", registry=at
        )
        self.leader = Gauge("shoal_operator_leader", "1 while this process leads.", registry=at)
        self.apply_conflicts = Counter(
            "shoal_operator_apply_conflicts_total",
            "Applies that met another field manager on a field of ours.",
            ["kind"],
            registry=at,
        )
        self.writes = Counter("shoal_operator_writes_total", "Writes to the API.", ["kind", "verb"], registry=at)
        self.holds = Gauge(
            "shoal_operator_holds",
            "ModelServices whose next step is held, by reason.",
            ["reason"],
            registry=at,
        )
        self.replicas = Gauge(
            "shoal_operator_replicas",
            "Replicas of a ModelService by phase.",
            ["namespace", "service", "phase"],
            registry=at,
        )
        self.scale_decisions = Counter(
            "shoal_operator_scale_decision_total",
            "Scaling decisions by direction and reason.",
            ["direction", "reason"],
            registry=at,
        )
        self.signal_age_seconds = Gauge(
            "shoal_operator_signal_age_seconds",
            "Age of the oldest router state that the last decision of a ModelService was made from.",
            ["namespace", "service"],
            registry=at,
        )
        self.router_polls = Counter(
            "shoal_operator_router_poll_total", "Router state requests by result.", ["result"], registry=at
        )
        self._held: dict[tuple[str, str], str] = {}

    def hold(self, namespace: str, service: str, reason: str | None) -> None:
        """A ModelService is held for this reason, or (None) is not."""
        before = self._held.pop((namespace, service), None)
        if before is not None and before != reason:
            self.holds.labels(before).dec()
        if reason is not None:
            self._held[namespace, service] = reason
            if before != reason:
                self.holds.labels(reason).inc()

    def forget_service(self, namespace: str, service: str) -> None:
        """Its series end with it: a scrape must not show what is no more."""
        self.hold(namespace, service, None)
        for gauge, phases in ((self.replicas, _PHASES), (self.signal_age_seconds, None)):
            for phase in phases or (None,):
                labels = (namespace, service) if phase is None else (namespace, service, phase)
                with contextlib.suppress(KeyError):
                    gauge.remove(*labels)

    def count_replicas(self, namespace: str, service: str, phases: Iterable[str]) -> None:
        """How many replicas are in each phase; phases that none is in are zero."""
        counts = collections.Counter(phases)
        for phase in _PHASES:
            self.replicas.labels(namespace, service, phase).set(counts[phase])

    def forget_all(self) -> None:
        """Another process leads: what we knew about services is its to tell."""
        self._held.clear()
        for gauge in (self.holds, self.replicas, self.signal_age_seconds):
            gauge.clear()


_PHASES: Final = ("Pending", "Starting", "Ready", "NotReady", "Draining", "Failed")
