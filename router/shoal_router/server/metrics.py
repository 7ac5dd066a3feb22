"""`/metrics` in Prometheus' text form, rendered when it is asked for from the slots that the hot path adds to.

Labels are bounded: services, replicas, statuses and reasons of closed sets. Never anything out of a request.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from shoal_router import build
from shoal_router.dispatch.fleet import Fleet
from shoal_router.dispatch.service import Service
from shoal_router.metrics.histogram import Histogram
from shoal_router.server.frontend import Frontend
from shoal_router.server.listener import Listener

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
_PREFIX: Final = "shoal_router_"
_FAST_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_SLOW_S: Final = (
    0.01,
    0.02,
    0.04,
    0.08,
    0.16,
    0.32,
    0.64,
    1.28,
    2.56,
    5.12,
    10.24,
    20.48,
    40.96,
    81.92,
    163.84,
    655.36,
)

Labels = Mapping[str, str]


class Page:
    """Lines of one scrape."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def family(self, name: str, kind: str, help_text: str, samples: Iterable[tuple[Labels, float]]) -> None:
        rows = [f"{_PREFIX}{name}{_labels(labels)} {_number(value)}" for labels, value in samples]
        if rows:
            self._lines += (f"# HELP {_PREFIX}{name} {help_text}", f"# TYPE {_PREFIX}{name} {kind}", *rows)

    def histogram(
        self, name: str, help_text: str, bounds_s: tuple[float, ...], samples: Iterable[tuple[Labels, Histogram]]
    ) -> None:
        full = _PREFIX + name
        rows: list[str] = []
        for labels, found in samples:
            counts = found.cumulative(bounds_s)
            rows += [
                f"{full}_bucket{_labels({**labels, 'le': _number(bound)})} {count}"
                for bound, count in zip(bounds_s, counts, strict=True)
            ]
            rows.append(f"{full}_bucket{_labels({**labels, 'le': '+Inf'})} {found.count}")
            rows.append(f"{full}_sum{_labels(labels)} {_number(found.sum_s)}")
            rows.append(f"{full}_count{_labels(labels)} {found.count}")
        if rows:
            self._lines += (f"# HELP {full} {help_text}", f"# TYPE {full} histogram", *rows)

    def text(self) -> bytes:
        return ("\n".join(self._lines) + "\n").encode()


def render(fleet: Fleet, frontend: Frontend, listener: Listener, now_s: float) -> bytes:
    page = Page()
    services = list(fleet.services.values())
    _requests(page, services, frontend)
    _slices(page, services)
    _latencies(page, services)
    _queues(page, services, now_s)
    _replicas(page, services, now_s)
    page.family("client_connections", "gauge", "Open client connections.", [({}, listener.open_connections)])
    page.family(
        "client_connections_refused_total", "counter", "Refused for lack of room.", [({}, listener.refused_connections)]
    )
    page.family("client_write_stalls_total", "counter", "Clients that stopped reading.", [({}, frontend.write_stalls)])
    page.family("build_info", "gauge", "1 for what runs.", [(_build(), 1)])
    page.family("discovery_synced", "gauge", "Route table and replicas are known.", [({}, fleet.synced)])
    return page.text()


def _build() -> Labels:
    return {"version": build.version(), "compiled": "true" if build.compiled() else "false"}


def _requests(page: Page, services: list[Service], frontend: Frontend) -> None:
    page.family(
        "requests_total",
        "counter",
        "Requests by the status answered and the reason; service is empty where none was found.",
        [
            *(
                ({"service": service.name, "code": str(code), "reason": reason}, count)
                for service in services
                for (code, reason), count in service.counters.ended().items()
            ),
            *(
                ({"service": "", "code": str(code), "reason": reason}, count)
                for (code, reason), count in frontend.refusals.items()
            ),
        ],
    )
    page.family(
        "retries_total",
        "counter",
        "Attempts given up for another replica, by what went wrong.",
        [
            ({"service": service.name, "reason": reason}, count)
            for service in services
            for reason, count in service.counters.retries.items()
        ],
    )
    page.family(
        "ejections_total",
        "counter",
        "Replicas taken out, by why.",
        [
            ({"service": service.name, "reason": reason}, count)
            for service in services
            for reason, count in service.counters.ejections.items()
        ],
    )
    for name, help_text, slot in (
        ("retries_denied_total", "Retries not made because the retry budget was spent.", "retries_denied"),
        ("aborts_total", "Requests aborted on their engine because the client had gone.", "aborts"),
        ("broken_streams_total", "Streams that had begun and ended with an error event.", "broken_streams"),
        ("wasted_tokens_total", "Output tokens generated for nobody.", "wasted_tokens"),
    ):
        page.family(
            name, "counter", help_text, [(_of(service), getattr(service.counters, slot)) for service in services]
        )
    for name, help_text, slot in (
        ("prompt_tokens_total", "Prompt tokens that engines reported.", "prompt_tokens"),
        ("cached_tokens_total", "Prompt tokens that engines found in their cache.", "cached_tokens"),
        ("output_tokens_total", "Output tokens.", "output_tokens"),
    ):
        page.family(
            name, "counter", help_text, [(_of(service), getattr(service.core.counters, slot)) for service in services]
        )


def _slices(page: Page, services: list[Service]) -> None:
    for name, help_text, slot in (
        ("sliced_requests_total", "Requests whose prompts were to go in slices.", "requests"),
        ("slices_total", "Slices sent, the requests themselves not counted.", "slices"),
        ("slice_failures_total", "Slices that failed; what was left went in one piece.", "failures"),
        ("slice_added_seconds_total", "Added to sliced requests: waiting for others, and overhead.", "added_s"),
        ("slice_saved_seconds_total", "Prefill that others did not wait for, estimated.", "saved_s"),
    ):
        page.family(
            name, "counter", help_text, [(_of(service), getattr(service.core.slicing, slot)) for service in services]
        )


def _latencies(page: Page, services: list[Service]) -> None:
    page.histogram(
        "ttft_seconds",
        "Arrival to first token of streams.",
        _SLOW_S,
        [(_of(service), service.core.counters.ttft) for service in services],
    )
    page.histogram(
        "itl_seconds",
        "Time between tokens of streams.",
        _FAST_S,
        [(_of(service), service.core.counters.itl_total) for service in services],
    )
    page.histogram(
        "request_seconds",
        "Arrival to last byte of requests that succeeded.",
        _SLOW_S,
        [(_of(service), service.counters.e2e) for service in services],
    )
    page.histogram(
        "queue_wait_seconds",
        "Arrival to binding.",
        _SLOW_S,
        [(_of(service), service.core.counters.queue_wait) for service in services],
    )


def _queues(page: Page, services: list[Service], now_s: float) -> None:
    queues = [(service, service.core.queue_state(now_s)) for service in services]
    for name, help_text, slot in (
        ("queue_requests", "Requests that wait for a replica.", "requests"),
        ("queue_bytes", "Bytes of their bodies.", "bytes"),
        ("queue_prompt_tokens", "Their prompt tokens.", "prompt_tokens"),
        ("queue_uncached_tokens", "Their prompt tokens that no replica is thought to hold.", "uncached_tokens"),
        ("queue_work_seconds", "Prefill seconds of what waits.", "work_s"),
        ("queue_oldest_seconds", "Age of the oldest that waits.", "oldest_s"),
    ):
        page.family(name, "gauge", help_text, [(_of(service), getattr(queue, slot)) for service, queue in queues])


def _replicas(page: Page, services: list[Service], now_s: float) -> None:
    figures = [
        ({"service": service.name, "replica": figure.name}, figure)
        for service in services
        for figure in service.core.replica_reports(now_s)
    ]
    page.family(
        "replica_state",
        "gauge",
        "1 for the state a replica is in.",
        [
            ({"service": service.name, "replica": name, "state": handle.state.value}, 1)
            for service in services
            for name, handle in service.handles.items()
        ],
    )
    for name, kind, help_text, slot in (
        ("replica_requests", "gauge", "Requests in flight.", "in_flight"),
        ("replica_tokens", "gauge", "KV tokens reserved by requests in flight.", "in_flight_tokens"),
        ("replica_busy_seconds", "gauge", "Prefill bound and not done.", "busy_s"),
        ("slice_overhead_seconds", "gauge", "What a slice costs beyond its prefill.", "slice_overhead_s"),
        ("replica_mirror_tokens", "gauge", "Tokens that the mirror of its cache holds.", "mirror_tokens"),
        ("replica_mirror_entries", "gauge", "Chain hashes that the mirror holds.", "mirror_entries"),
        ("replica_cached_predicted_tokens_total", "counter", "Predicted to be cached.", "cached_predicted_tokens"),
        ("replica_cached_actual_tokens_total", "counter", "Reported as cached.", "cached_actual_tokens"),
        ("replica_cached_error_tokens_total", "counter", "Sum of the differences.", "cached_error_tokens"),
    ):
        page.family(name, kind, help_text, [(labels, getattr(figure, slot)) for labels, figure in figures])


def _of(service: Service) -> Labels:
    return {"service": service.name}


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(int(value))
