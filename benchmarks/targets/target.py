"""A target: the wanted value, and the runs and quantity that answer it."""

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
    """A wanted value in words, and as exactly one of ``at_least`` and ``at_most``.

    - ``case``, ``threads``, ``isa``: the runs that answer the target, by ``quantity``.
    - ``gpu``: the prefix of the runs' device names; empty: CPUs.
    - ``long_run``: answers by a long run's memory over time; ``front_door``: by README's commands.
    - ``unmeasured``: why nothing answers the target.
    - ``reason``: why the target is missed, where that is known.
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
        """Return each device's newest run that can answer the target, the newest first."""
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
        """Return the value that a run reached; None where the engine or the peer has no figure."""
        return None if self.quantity is None else self.quantity(run)

    def is_met(self, value: float) -> bool:
        """Return whether a value meets the target."""
        if self.at_least is not None:
            return value >= self.at_least
        return self.at_most is not None and value <= self.at_most
