"""A target: what is wanted, and what of a run answers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.records.front_doors import FrontDoor
    from benchmarks.records.resident import Resident
    from benchmarks.targets.quantities import Quantity, Reached, Run


@dataclass(frozen=True, kw_only=True)
class Target:
    """``wanted`` is the number in words; exactly one of ``at_least`` and ``at_most`` is given.

    ``case``, ``threads`` and ``isa`` say which runs answer it, by ``quantity``; ``gpu`` is how the
    names of their devices begin, of processors nothing. ``long_run`` answers it by the memory of
    one over time, ``front_door`` by a first visit. A target that nothing answers says why in
    ``unmeasured``. ``reason``: why it is missed, where that is known.
    """

    group: str
    what: str
    wanted: str
    at_least: float | None = None
    at_most: float | None = None
    case: str = ""
    quantity: Quantity | None = None
    long_run: Callable[[Resident], Reached] | None = None
    front_door: Callable[[FrontDoor], Reached] | None = None
    threads: int | None = None
    isa: str | None = None
    gpu: str = ""
    unmeasured: str = ""
    reason: str = ""

    def find_runs(self, runs: Sequence[Run]) -> list[Run]:
        """Give the newest run of each device that can answer it, the newest first."""
        found = [
            run
            for run in sorted(runs, key=lambda run: run[0].time_utc, reverse=True)
            if run[0].case == self.case
            and run[0].isa == self.isa
            and self.threads in (None, run[0].threads)
            and self._is_on(run[0].device)
        ]
        newest: dict[str, Run] = {}
        for run in found:
            newest.setdefault(run[0].device, run)
        return list(newest.values())

    def _is_on(self, device: str) -> bool:
        return device.startswith(self.gpu) if self.gpu else not device.startswith("nvidia")

    def answer(self, run: Run) -> Reached | None:
        """Give what was reached; nothing where ours, or whom it is compared with, has no figure."""
        return None if self.quantity is None else self.quantity(run)

    def is_met(self, value: float) -> bool:
        """Compare what was reached with what is wanted."""
        if self.at_least is not None:
            return value >= self.at_least
        return self.at_most is not None and value <= self.at_most
