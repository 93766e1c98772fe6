"""Counters and durations of a service, as plain numbers; :mod:`metrics` exports them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import field, fields

from encoder_engine.dataclass import dataclass

__all__ = ["Histogram", "Signals"]

# Upper bounds: 0.5 ms to 60 s, each about twice the one before; sizes by powers of two.
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0)
SIZES = tuple(float(2**power) for power in range(17))


@dataclass
class Histogram:
    """A histogram: how many values lie between successive bounds, and the sum of all values."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count a value in the interval that holds it, and add it to the sum."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


def _seconds() -> Histogram:
    return Histogram(SECONDS)


def _sizes() -> Histogram:
    return Histogram(SIZES)


@dataclass
class Signals:
    """The counters and durations since a service started.

    requests: the number of requests by route, status and client's name, which is empty if no key is
        needed.
    texts, rejected, batch_failures: numbers by model, by reason, and by the error's type.
    refusal_seconds: for requests that were refused because of the load, the time from reading the
        head to the answer. It includes up to 30 seconds in which a body waits for room. The time
        in which a busy event loop has not yet read the head is not included.
    cancelled: requests whose client went away, by stage: tokenize, queue, compute, answer.
    """

    requests: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    texts: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    batch_failures: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    truncated: int = 0
    cancelled: Counter[str] = field(default_factory=Counter)
    connections: int = 0
    lane_busy_seconds: float = 0.0
    request_seconds: Histogram = field(default_factory=_seconds)
    refusal_seconds: Histogram = field(default_factory=_seconds)
    queue_seconds: Histogram = field(default_factory=_seconds)
    tokenize_seconds: Histogram = field(default_factory=_seconds)
    compute_seconds: Histogram = field(default_factory=_seconds)
    batch_tokens: Histogram = field(default_factory=_sizes)
    batch_texts: Histogram = field(default_factory=_sizes)

    def reset(self) -> None:
        """Set everything to zero but the number of open connections."""
        fresh = Signals(connections=self.connections)
        for one in fields(self):
            setattr(self, one.name, getattr(fresh, one.name))
