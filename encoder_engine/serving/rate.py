"""Estimates the cost per second of a lane from its past batches."""

from __future__ import annotations

__all__ = ["FIRST_COST", "Rate"]

# The share of a new batch in the estimate: the last 10 batches are two thirds of it.
SHARE = 0.1
# A batch beyond 400 tokens gains nothing: the budget of a lane without an estimate, and of several
# clients together where a model is slow. A smaller batch counts in the estimate by its cost: it is
# slower per token, and would make a long queue look slower than it is.
FIRST_COST = 400.0
# The shortest time that is counted for a batch: the rate stays finite.
LEAST_SECONDS = 1e-5


class Rate:
    """Cost per second of one lane, learned by a moving average."""

    def __init__(self) -> None:
        self._seconds = self._cost = self._seconds_each = 0.0

    @property
    def known(self) -> bool:
        """Whether a batch has been observed."""
        return self._seconds > 0.0

    @property
    def per_second(self) -> float:
        """The cost that a lane computes a second; 0 before the first batch."""
        return self._cost / self._seconds if self.known else 0.0

    def observe(self, cost: float, seconds: float) -> None:
        """Add a computed batch to the estimate."""
        share = SHARE * min(1.0, cost / FIRST_COST) if self.known else 1.0
        self._cost += share * (cost - self._cost)
        self._seconds += share * (max(seconds, LEAST_SECONDS) - self._seconds)
        self._seconds_each = self._seconds / self._cost

    def reset(self) -> None:
        """Forget all batches."""
        self._seconds = self._cost = self._seconds_each = 0.0

    def seconds(self, cost: float) -> float:
        """Return the time that a cost takes one lane; 0 before the first batch."""
        return cost * self._seconds_each

    def budget(self, milliseconds: float) -> float:
        """Return the cost of a batch that takes so long; before the first batch, a fixed one."""
        return self.per_second * milliseconds / 1000.0 if self.known else FIRST_COST
