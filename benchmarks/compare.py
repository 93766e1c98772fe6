"""Compares two commits by the results recorded for each: ratios of medians, with their intervals.

The interval is a percentile bootstrap (Efron 1979) over runs first and their rounds second, since
rounds of one run share the state the machine was in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from benchmarks.results import Result

NUM_RESAMPLES = 4000
Change = Literal["slower", "faster", "same"]
# A change below this is not worth a name, however certain.
THRESHOLD = 0.03
Runs = Sequence[Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """Time of the second commit over time of the first; ``low`` to ``high`` holds 95 %."""

    median: float
    low: float
    high: float

    @property
    def change(self) -> Change:
        """Name a change only when the whole interval lies beyond the threshold."""
        if self.low > 1 + THRESHOLD:
            return "slower"
        return "faster" if self.high < 1 - THRESHOLD else "same"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One candidate of one case under both commits."""

    device: str
    case: str
    candidate: str
    base_ms: float
    head_ms: float
    ratio: Ratio


def compare(results: Sequence[Result], base: str, head: str) -> list[Comparison]:
    """Compare whatever was measured under both, on the same device, threads and inputs.

    Raises ``ValueError`` where a commit has no measured result.
    """
    before, after = _collect(results, base), _collect(results, head)
    for name, found in ((base, before), (head, after)):
        if not found:
            known = ", ".join(dict.fromkeys(r.commit for r in results)) or "none"
            raise ValueError(f"no result was measured at commit {name}; measured were: {known}")
    comparisons = []
    for key in sorted(before.keys() & after.keys()):
        device, case, candidate = key[:3]
        old, new = before[key], after[key]
        comparisons.append(
            Comparison(
                device=device,
                case=case,
                candidate=candidate,
                base_ms=_median(old),
                head_ms=_median(new),
                ratio=bootstrap_ratio(old, new),
            )
        )
    return comparisons


def bootstrap_ratio(base: Runs, head: Runs, *, seed: int = 0) -> Ratio:
    """Estimate ``median(head) / median(base)`` of runs' samples, with a 95 % interval."""
    generator = np.random.default_rng(seed)
    ratios = [
        _median(_resample(head, generator)) / _median(_resample(base, generator))
        for _ in range(NUM_RESAMPLES)
    ]
    low, high = np.percentile(ratios, (2.5, 97.5))
    return Ratio(median=_median(head) / _median(base), low=float(low), high=float(high))


def _collect(results: Sequence[Result], commit: str) -> dict[tuple[str, ...], list[list[float]]]:
    runs: dict[tuple[str, ...], list[list[float]]] = {}
    for result in results:
        if result.status == "measured" and _is_of(result, commit):
            work = (result.device, result.case, result.candidate)
            key = (*work, str(result.threads), result.fingerprint, str(result.isa))
            runs.setdefault(key, []).append(result.samples_ms)
    return runs


def _is_of(result: Result, commit: str) -> bool:
    """Accept the hash of the source too: it tells changed trees of one commit apart."""
    return result.commit.startswith(commit) or result.source.startswith(commit)


def _resample(runs: Runs, generator: np.random.Generator) -> list[npt.NDArray[np.float64]]:
    chosen = generator.integers(len(runs), size=len(runs))
    return [generator.choice(np.asarray(runs[i]), size=len(runs[i])) for i in chosen]


def _median(runs: Sequence[Sequence[float] | npt.NDArray[np.float64]]) -> float:
    return float(np.median(np.concatenate([np.asarray(run) for run in runs])))
