"""Compares two commits by the results recorded for each: ratios of medians, with their intervals.

A machine is slower in one run than in another, and the peers, which no commit changes, show by how
much: every run's times are divided by its pace, that of the peers which took part in all runs. The
interval is a percentile bootstrap (Efron 1979) over runs first and their rounds second, since
rounds of one run share the state the machine was in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from benchmarks.records.results import Result

NUM_RESAMPLES = 4000
Change = Literal["slower", "faster", "same", "too few runs"]
# Of one or two nobody can tell how much runs differ.
MIN_RUNS = 3
# A change below this is not worth a name, however certain.
THRESHOLD = 0.05
Runs = Sequence["Sequence[float] | npt.NDArray[np.float64]"]


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """Time of the second commit over time of the first; ``low`` to ``high`` holds 95 %."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The change of one of the engine's candidates between two commits.

    Times are corrected for the speed of the machine in each run, as its peers show it.
    ``num_paced``: the number of those peers; 0: times are as measured. ``num_runs``: per commit.
    """

    device: str
    case: str
    candidate: str
    base_ms: float
    head_ms: float
    ratio: Ratio
    num_paced: int
    num_runs: tuple[int, int]

    @property
    def change(self) -> Change:
        """Slower or faster only beyond the threshold and where the interval excludes 1."""
        if min(self.num_runs) < MIN_RUNS:
            return "too few runs"
        ratio = self.ratio
        if ratio.low > 1 and ratio.median > 1 + THRESHOLD:
            return "slower"
        return "faster" if ratio.high < 1 and ratio.median < 1 - THRESHOLD else "same"


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
    for result in measured:
        if _is_of(result, base) or _is_of(result, head):
            work = (result.device, result.case, str(result.threads))
            works.setdefault((*work, result.fingerprint, str(result.isa)), []).append(result)
    return [found for key in sorted(works) for found in _compare(works[key], base, head)]


def _compare(work: Sequence[Result], base: str, head: str) -> Iterator[Comparison]:
    """Compare each of the engine's candidates for the same work."""
    paces, num_paced = _paces(work)
    for candidate in sorted({result.candidate for result in work if result.role == "ours"}):
        own = [result for result in work if result.candidate == candidate]
        old, new = ([r for r in own if _is_of(r, name)] for name in (base, head))
        if old and new:
            paced = [[np.divide(r.samples_ms, paces[r.run]) for r in side] for side in (old, new)]
            yield Comparison(
                device=work[0].device,
                case=work[0].case,
                candidate=candidate,
                base_ms=_median(paced[0]),
                head_ms=_median(paced[1]),
                ratio=bootstrap_ratio(*paced),
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


def bootstrap_ratio(base: Runs, head: Runs, *, seed: int = 0) -> Ratio:
    """Estimate ``median(head) / median(base)`` of runs' samples, with a 95 % interval."""
    generator = np.random.default_rng(seed)
    ratios = [
        _median(_resample(head, generator)) / _median(_resample(base, generator))
        for _ in range(NUM_RESAMPLES)
    ]
    low, high = np.percentile(ratios, (2.5, 97.5))
    return Ratio(median=_median(head) / _median(base), low=float(low), high=float(high))


def _is_of(result: Result, commit: str) -> bool:
    """Return whether a result belongs to a commit, or to a changed tree by its source hash."""
    clean = result.dirty is False and result.commit.startswith(commit)
    return clean or result.source.startswith(commit)


def _resample(runs: Runs, generator: np.random.Generator) -> list[npt.NDArray[np.float64]]:
    chosen = generator.integers(len(runs), size=len(runs))
    return [generator.choice(np.asarray(runs[i]), size=len(runs[i])) for i in chosen]


def _median(runs: Runs) -> float:
    return float(np.median(np.concatenate([np.asarray(run) for run in runs])))
