"""Finds in a run what a reader asks for: ours, the best of the others, and how they compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.records.results import Result

    Run = Sequence[Result]

OURS = "encoder-engine"
# Groups whose ratio is no contest: an axis is read as a whole, and an import includes torch's.
NO_CONTEST = ("growth", "import")
# Whom a group has beside it, where nobody else does the work, in words.
BESIDE = {
    "dataset": "sentence-transformers as it comes, in float32",
    "drop_in": "the same model as it comes",
}
# They are there to be compared with the engine itself.
ALONE = (", one thread", ", the steps alone")
TOGETHER = (
    "embedding/",
    "latency/",
    "cold_start/",
    "dataset/",
    "drop_in/",
    "pretraining/",
    "tokenizer/",
    "growth/",
    "import/",
)


@dataclass(frozen=True, kw_only=True)
class Facing:
    """One of ours beside the best of the others, both measured.

    ``num_others``: how many took part, those whose results were wrong included.
    """

    ours: Result
    peer: Result
    ratio: float
    num_others: int

    @property
    def lost(self) -> bool:
        """Whether the other is faster."""
        return self.ratio < 1

    @property
    def beside(self) -> str:
        """Name whom it is the fastest of; or, where it was the only one, that it was."""
        if self.num_others > 1:
            return f"best of {self.num_others}: {self.peer.candidate}"
        return f"beside: {BESIDE.get(group_of([self.ours]), self.peer.candidate)}"


def is_operation(run: Run) -> bool:
    """Say whether a case is about one operation, or an encoder's forward pass alone."""
    return not run[0].case.startswith(TOGETHER)


def group_of(run: Run) -> str:
    """Name the group of a case."""
    return run[0].case.partition("/")[0]


def measured(run: Run, role: str | None = None) -> list[Result]:
    """Give the candidates that have a time, fastest first."""
    found = [r for r in run if r.p50_ms is not None and role in (None, r.role)]
    return sorted(found, key=lambda r: r.p50_ms or 0.0)


def facing(run: Run) -> list[Facing]:
    """Put each of ours beside the best peer; of an operation's implementations the fastest.

    The result names that peer; where what one call does differs, so does its ratio.
    """
    ours = [r for r in run if r.role == "ours" and r.p50_ms and not r.candidate.endswith(ALONE)]
    if is_operation(run):
        ours = sorted(ours, key=lambda r: r.p50_ms or 0.0)[:1]
    peers = {r.candidate: r for r in run if r.role == "peer" and r.status != "skipped"}
    return [
        Facing(ours=r, peer=peers[r.best_peer], ratio=r.ratio_to_best_peer, num_others=len(peers))
        for r in ours
        if r.best_peer in peers and r.ratio_to_best_peer is not None
    ]


def broken(run: Run) -> list[Result]:
    """Give those of ours that failed, or whose results were wrong."""
    return [r for r in run if r.role == "ours" and r.status in ("failed", "gate failed")]


def by_device(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Group runs by the machine, the newest machine first."""
    newest = sorted(runs, key=lambda run: run[0].time_utc, reverse=True)
    names = dict.fromkeys(run[0].device for run in newest)
    return {name: [run for run in runs if run[0].device == name] for name in names}


def disturbed(run: Run, busy: float) -> bool:
    """Say whether other processes used more than so many cores meanwhile."""
    return max((r.other_cores or 0.0 for r in run), default=0.0) >= busy
