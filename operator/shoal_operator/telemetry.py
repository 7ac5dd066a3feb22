"""Metric definitions and log format: a leaf that every layer may import and that imports none of them."""

import json
import logging
import sys
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
