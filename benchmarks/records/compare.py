"""Compares two commits by the results recorded for each: ratios of medians, with their intervals.

A machine is slower in one run than in another, and the peers, which no commit changes, show by how
much: every run's times are divided by its pace, that of the peers which took part in all runs. The
interval is a percentile bootstrap (Efron 1979) over runs first and their rounds second, since
rounds of one run share the state the machine was in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from benchmarks.records.results import Result

    Runs = Sequence[npt.NDArray[np.float64]]

NUM_RESAMPLES = 4000
# Of one or two nobody can tell how much runs differ.
MIN_RUNS = 3
# A change below this is not worth a name, however certain.
THRESHOLD = 0.05


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The change of one of the engine's candidates between two commits.

    ``ratio``: time of the second commit over that of the first; ``low`` to ``high`` holds 95 %.
    ``num_paced``: the number of peers that the times are corrected by; ``num_runs``: per commit.
    """

    device: str
    case: str
    candidate: str
    base_ms: float
    head_ms: float
    low: float
    high: float
    num_paced: int
    num_runs: tuple[int, int]

    @property
    def ratio(self) -> float:
        return self.head_ms / self.base_ms

    @property
    def change(self) -> str:
        """Slower or faster only beyond the threshold and where the interval excludes 1."""
        if min(self.num_runs) < MIN_RUNS:
            return "too few runs"
        if self.low > 1 and self.ratio > 1 + THRESHOLD:
            return "slower"
        return "faster" if self.high < 1 and self.ratio < 1 - THRESHOLD else "same"


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
    """Compare each of the engine's candidates for the same work."""
    paces, num_paced = _paces(work)
    for candidate in sorted({result.candidate for result in work if result.role == "ours"}):
        own = [result for result in work if result.candidate == candidate]
        old, new = (
            [np.divide(r.samples_ms, paces[r.run]) for r in own if _is_of(r, name)]
            for name in (base, head)
        )
        if old and new:
            low, high = bootstrap(old, new)
            yield Comparison(
                device=work[0].device,
                case=work[0].case,
                candidate=candidate,
                base_ms=float(np.median(np.concatenate(old))),
                head_ms=float(np.median(np.concatenate(new))),
                low=low,
                high=high,
                num_paced=num_paced,
                num_runs=(len(old), len(new)),
            )


def _paces(work: Sequence[Result]) -> tuple[dict[str, float], int]:
    """Return each run's relative time of its peers, 1 on average, and the number of peers."""
    runs = list(dict.fromkeys(result.run for result in work))
    medians: dict[tuple[str, ...], dict[str, float]] = {}
    for result in work:
        if result.role == "peer":
            peer = (result.candidate, str(result.settings), str(result.versions))
            medians.setdefault(peer, {})[result.run] = float(np.median(result.samples_ms))
    steady = [by_run for by_run in medians.values() if len(by_run) == len(runs)]
    if not steady:
        return dict.fromkeys(runs, 1.0), 0
    logs = np.log([[by_run[run] for run in runs] for by_run in steady])
    paces = np.exp(np.median(logs - logs.mean(axis=1, keepdims=True), axis=0))
    return dict(zip(runs, map(float, paces), strict=True)), len(steady)


def bootstrap(base: Runs, head: Runs) -> tuple[float, float]:
    """Return the 95 % interval of ``median(head) / median(base)`` of runs' samples."""
    generator = np.random.default_rng(0)

    def median(runs: Runs) -> float:
        chosen = generator.integers(len(runs), size=len(runs))
        drawn = [generator.choice(runs[i], size=len(runs[i])) for i in chosen]
        return float(np.median(np.concatenate(drawn)))

    ratios = [median(head) / median(base) for _ in range(NUM_RESAMPLES)]
    low, high = np.percentile(ratios, (2.5, 97.5))
    return float(low), float(high)


def _is_of(result: Result, commit: str) -> bool:
    """Return whether a result belongs to a commit, or to a changed tree by its source hash."""
    clean = result.dirty is False and result.commit.startswith(commit)
    return clean or result.source.startswith(commit)
