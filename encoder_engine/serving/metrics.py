"""Exports the metrics of a service in Prometheus's text format."""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from encoder_engine.serving.service import Service
    from encoder_engine.serving.signals import Histogram

__all__ = ["write_metrics"]

_PREFIX = "encoder_engine_"


def write_metrics(service: Service) -> tuple[bytes, str]:
    """Return the metrics of a service and their content type."""
    registry = CollectorRegistry()
    registry.register(_Collector(service))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Collector:
    """A Prometheus collector that reads the counters of a service at each scrape."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        service, signals = self._service, self._service.signals
        requests = CounterMetricFamily(
            f"{_PREFIX}requests",
            "Requests by route, status and the name of the key.",
            labels=("route", "code", "client"),
        )
        for (route, code, client), number in signals.requests.items():
            requests.add_metric([route, str(code), client], number)
        yield requests
        for name, label, values in (
            ("texts", "model", signals.texts),
            ("rejected", "reason", signals.rejected),
            ("batch_failures", "error", signals.batch_failures),
            ("cancelled", "stage", signals.cancelled),
        ):
            family = CounterMetricFamily(
                _PREFIX + name,
                f"{name.replace('_', ' ')} by {label}.".capitalize(),
                labels=(label,),
            )
            for value, number in values.items():
                family.add_metric([value], number)
            yield family
        for name, text, total in (
            ("tokens", "Tokens of all requests.", signals.tokens),
            ("truncated_texts", "Texts that lost tokens.", signals.truncated),
            ("lane_busy_seconds", "Time that lanes computed.", signals.lane_busy_seconds),
        ):
            yield CounterMetricFamily(_PREFIX + name, text, value=total)
        for name in ("request", "refusal", "queue", "tokenize", "compute"):
            yield _histogram(f"{name}_seconds", "Seconds.", getattr(signals, f"{name}_seconds"))
        for name in ("batch_tokens", "batch_texts"):
            yield _histogram(name, "Sizes of batches.", getattr(signals, name))
        scheduler = service.dispatcher.scheduler
        for name, text, now in (
            ("queued_texts", "Texts that wait.", scheduler.num_texts),
            ("queued_tokens", "Tokens that wait.", scheduler.num_tokens),
            (
                "queued_bytes",
                "Bytes of texts that wait or are computed.",
                service.admission.num_bytes,
            ),
            ("connections", "Open connections.", signals.connections),
        ):
            yield GaugeMetricFamily(_PREFIX + name, text, value=now)
        speed = GaugeMetricFamily(
            f"{_PREFIX}tokens_per_second", "The measured speed of a lane.", labels=("model",)
        )
        for model, rate in service.dispatcher.rates.items():
            speed.add_metric([model], rate.per_second)
        yield speed
        version = sys.modules["encoder_engine"].__version__
        yield InfoMetricFamily(
            f"{_PREFIX}build",
            "The versions of the server.",
            value={"version": version, "python": platform.python_version()},
        )


def _histogram(name: str, text: str, found: Histogram) -> HistogramMetricFamily:
    buckets: list[tuple[str, float]] = []
    seen = 0
    for bound, count in zip((*found.bounds, float("inf")), found.counts, strict=True):
        seen += count
        buckets.append(("+Inf" if bound == float("inf") else str(bound), seen))
    return HistogramMetricFamily(
        _PREFIX + name,
        text,
        buckets=buckets,
        sum_value=found.total,
    )
