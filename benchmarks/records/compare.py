"""Compares two commits by the results recorded for each: ratios of medians of runs.

A machine is slower in one run than in another, and the peers, which no commit changes, show by how
much: every run's times are divided by its pace, the relative time of the peers which took part in
all runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.records.results import Result

# Of one or two nobody can tell how much runs differ.
MIN_RUNS = 3
# A change below this is not worth a name.
THRESHOLD = 0.05


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One of the engine's candidates at two commits: the median time of every run at each.

    ``num_paced``: the number of peers that the times are corrected by; 0: they are as measured.
    """

    device: str
    case: str
    candidate: str
    base_ms: list[float]
    head_ms: list[float]
    num_paced: int

    @property
    def ratio(self) -> float:
        """The time at the second commit divided by that at the first."""
        return median(self.head_ms) / median(self.base_ms)

    @property
    def change(self) -> str:
        """Return "slower", "faster", "same" or "too few runs".

        Slower: by more than :data:`THRESHOLD`, and every later run is slower than all earlier ones.
        """
        if min(len(self.base_ms), len(self.head_ms)) < MIN_RUNS:
            return "too few runs"
        if self.ratio > 1 + THRESHOLD and min(self.head_ms) > max(self.base_ms):
            return "slower"
        faster = self.ratio < 1 - THRESHOLD and max(self.head_ms) < min(self.base_ms)
        return "faster" if faster else "same"


def compare(results: Sequence[Result], base: str, head: str) -> list[Comparison]:
    """Compare the results of two commits on the same device, threads and inputs.

    A clean tree is named by its commit, a changed one by the hash of its source. Raises
    ``ValueError`` where one of the two has no measured result.
    """
    measured = [r for r in results if r.status == "measured"]
    for name in (base, head):
        if not any(_is_of(result, name) for result in measured):
            names = (r.commit if r.dirty is False else r.source for r in measured)
            known = ", ".join(dict.fromkeys(names)) or "none"
            raise ValueError(f"no result was measured at commit {name}; measured were: {known}")
    works: dict[tuple[str, ...], list[Result]] = {}
    for r in measured:
        if _is_of(r, base) or _is_of(r, head):
            key = (r.device, r.case, str(r.threads), r.fingerprint, str(r.isa))
            works.setdefault(key, []).append(r)
    return [found for key in sorted(works) for found in _compare(works[key], base, head)]


def _compare(work: Sequence[Result], base: str, head: str) -> Iterator[Comparison]:
    """Yield the comparison of each of the engine's candidates in results of the same work."""
    paces, num_paced = _paces(work)
    for candidate in sorted({result.candidate for result in work if result.role == "ours"}):
        own = [result for result in work if result.candidate == candidate]
        old, new = (
            [median(r.samples_ms) / paces[r.run] for r in own if _is_of(r, name)]
            for name in (base, head)
        )
        if old and new:
            yield Comparison(
                device=work[0].device,
                case=work[0].case,
                candidate=candidate,
                base_ms=old,
                head_ms=new,
                num_paced=num_paced,
            )


def _paces(work: Sequence[Result]) -> tuple[dict[str, float], int]:
    """Return each run's pace, the relative time of its peers (mean 1), and the number of peers."""
    runs = list(dict.fromkeys(result.run for result in work))
    medians: dict[tuple[str, ...], dict[str, float]] = {}
    for result in work:
        if result.role == "peer":
            peer = (result.candidate, str(result.settings), str(result.versions))
            medians.setdefault(peer, {})[result.run] = median(result.samples_ms)
    steady = [by_run for by_run in medians.values() if len(by_run) == len(runs)]
    if not steady:
        return dict.fromkeys(runs, 1.0), 0
    logs = np.log([[by_run[run] for run in runs] for by_run in steady])
    paces = np.exp(np.median(logs - logs.mean(axis=1, keepdims=True), axis=0))
    return dict(zip(runs, map(float, paces), strict=True)), len(steady)


def _is_of(result: Result, commit: str) -> bool:
    """Return whether a result is of a clean tree of ``commit``, or of sources with this hash."""
    clean = result.dirty is False and result.commit.startswith(commit)
    return clean or result.source.startswith(commit)
