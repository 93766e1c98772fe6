"""Selects results of a run: the engine's, the best peer, and their ratio."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.records.results import Result

    Run = Sequence[Result]

OURS = "encoder-engine"
# It is there to be compared with the engine itself.
ALONE = ", one thread"
# Groups in which every candidate of the engine is compared, not only the one that calls take.
TOGETHER = (
    *("embedding/", "latency/", "cold_start/", "drop_in/", "calls/", "tokenizer/", "import/"),
    *("finetuning/", "finetuning_gpu/", "pretraining/", "pretraining_gpu/"),
)


@dataclass(frozen=True, kw_only=True)
class Facing:
    """One of the engine's candidates compared with the best peer, both measured.

    ``ratio``: the peer's time divided by the engine's.
    ``num_others``: the number of peers that took part, failed ones included.
    """

    ours: Result
    peer: Result
    ratio: float
    num_others: int

    @property
    def lost(self) -> bool:
        """True if the peer is faster than the engine."""
        return self.ratio < 1

    @property
    def beside(self) -> str:
        """The peer's name in words: the best of several, or the only one."""
        if self.num_others > 1:
            return f"best of {self.num_others}: {self.peer.candidate}"
        return f"beside: {self.peer.candidate}"


def is_operation(run: Run) -> bool:
    """Return whether the case of a run is in no group of :data:`TOGETHER`, such as an operation's.

    Of such a run :func:`facing` compares the engine's default candidate, of others all candidates.
    """
    return not run[0].case.startswith(TOGETHER)


def measured(run: Run, role: str | None = None) -> list[Result]:
    """Return the results that have a time, fastest first; ``role``: "ours" or "peer" alone."""
    found = [r for r in run if r.p50_ms is not None and role in (None, r.role)]
    return sorted(found, key=lambda r: r.p50_ms or 0.0)


def default(run: Run) -> Result | None:
    """Return the result of the candidate that calls use by default; it may have failed.

    That is the one named after the engine, else the engine's first that the machine can run.
    """
    ours = [r for r in run if r.role == "ours" and r.status != "skipped"]
    return next((r for r in ours if r.candidate == OURS), next(iter(ours), None))


def facing(run: Run) -> list[Facing]:
    """Compare the engine's candidates with the best peer; of an operation, only the default one.

    An operation's other candidates may be PyTorch's own. Peer and ratio are recorded in the result:
    the ratio allows for calls of different size.
    """
    ours = [r for r in run if r.role == "ours" and not r.candidate.endswith(ALONE)]
    if is_operation(run):
        ours = [r for r in ours if r is default(run)]
    peers = {r.candidate: r for r in run if r.role == "peer" and r.status != "skipped"}
    return [
        Facing(ours=r, peer=peers[r.best_peer], ratio=r.ratio_to_best_peer, num_others=len(peers))
        for r in ours
        if r.p50_ms and r.best_peer in peers and r.ratio_to_best_peer is not None
    ]


def broken(run: Run) -> list[Result]:
    """Return the results of the engine's candidates that failed or were wrong."""
    return [r for r in run if r.role == "ours" and r.status in ("failed", "gate failed")]


def by_device(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Group runs by the machine, the newest machine first."""
    newest = sorted(runs, key=lambda run: run[0].time_utc, reverse=True)
    names = dict.fromkeys(run[0].device for run in newest)
    return {name: [run for run in runs if run[0].device == name] for name in names}


def disturbed(run: Run, busy: float) -> bool:
    """Return whether other processes used at least ``busy`` cores during the run."""
    return max((r.other_cores or 0.0 for r in run), default=0.0) >= busy
