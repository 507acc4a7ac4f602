"""Metrics of the gateway for Prometheus. Each gateway has its own registry: nothing is global."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_EVENTS = (1, 10, 50, 100, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 200_000)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "frazil_http_requests", "HTTP requests answered.", ["route", "status"], registry=self.registry
        )
        self._request_seconds = Histogram(
            "frazil_http_request_seconds",
            "Time to answer a request.",
            ["route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._in_flight = Gauge("frazil_http_requests_in_flight", "Requests being served.", registry=self.registry)
        self._connections = Gauge("frazil_http_connections", "Open HTTP connections.", registry=self.registry)
        self._refused = Counter(
            "frazil_http_refused",
            "Requests and connections that were ended before they had a route.",
            ["code"],
            registry=self.registry,
        )
        self._accepted = Counter(
            "frazil_events_accepted", "New events with a receipt.", ["table"], registry=self.registry
        )
        self._duplicates = Counter(
            "frazil_events_duplicate", "Events of a receipt that were there already.", ["table"], registry=self.registry
        )
        self._rejected = Counter(
            "frazil_batches_rejected",
            "Batches of events that got no receipt.",
            ["table", "code"],
            registry=self.registry,
        )
        self._publish_seconds = Histogram(
            "frazil_publish_seconds",
            "Time of a publish to the bus, fsync included.",
            ["table"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._publish_requests = Histogram(
            "frazil_publish_requests",
            "Requests that shared one publish.",
            ["table"],
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
            registry=self.registry,
        )
        self._publish_events = Histogram(
            "frazil_publish_events", "Events of one publish.", ["table"], buckets=_EVENTS, registry=self.registry
        )
        self._published_bytes = Counter(
            "frazil_published_bytes",
            "Bytes of events published, before compression.",
            ["table"],
            registry=self.registry,
        )

    def request_began(self) -> None:
        self._in_flight.inc()

    def request_ended(self, route: str, status: int, seconds: float) -> None:
        self._in_flight.dec()
        self._requests.labels(route, str(status)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def connections(self, number: int) -> None:
        self._connections.set(number)

    def refused(self, code: str) -> None:
        self._refused.labels(code).inc()

    def received(self, table: str, accepted: int, duplicates: int) -> None:
        self._accepted.labels(table).inc(accepted)
        self._duplicates.labels(table).inc(duplicates)

    def rejected(self, table: str, code: str) -> None:
        self._rejected.labels(table, code).inc()

    def published(self, table: str, seconds: float, requests: int, events: int, size: int) -> None:
        self._publish_seconds.labels(table).observe(seconds)
        self._publish_requests.labels(table).observe(requests)
        self._publish_events.labels(table).observe(events)
        self._published_bytes.labels(table).inc(size)

    def text(self, more: Iterable[Metric] = ()) -> bytes:
        """All metrics, and those that are computed on request."""
        return generate_latest(self.registry) + _text_of(more)


class _Given(Collector):
    def __init__(self, metrics: Callable[[], Iterable[Metric]]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics()


def _text_of(metrics: Iterable[Metric]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Given(lambda: metrics))
    return bytes(generate_latest(registry))


def gauge(name: str, help_text: str, values: Iterable[tuple[Iterable[str], float | None]], *labels: str) -> Metric:
    """A gauge of values known elsewhere; those that are None are left out."""
    metric = GaugeMetricFamily(name, help_text, labels=labels)
    for label_values, value in values:
        if value is not None:
            metric.add_metric(list(label_values), value)
    return metric


def counter(name: str, help_text: str, values: Iterable[tuple[Iterable[str], float | None]], *labels: str) -> Metric:
    """A counter that another process counts."""
    metric = CounterMetricFamily(name, help_text, labels=labels)
    for label_values, value in values:
        if value is not None:
            metric.add_metric(list(label_values), value)
    return metric
