"""Correctness gates: a candidate is timed only if its output passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.measuring.case import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


@dataclass(frozen=True, kw_only=True)
class CosineGate:
    """A gate for vectors [N, D]: compare a sample of their rows with float64 references.

    ``rows``: the sample's indices in the output. The output must have ``num_rows`` finite rows.
    """

    truth: npt.NDArray[np.float64]
    rows: Sequence[int]
    num_rows: int
    precision: str = "float32"

    def __call__(self, output: Any) -> Verdict:
        vectors = np.asarray(output)
        expected = (self.num_rows, self.truth.shape[1])
        if vectors.shape != expected:
            return Verdict(passed=False, reason=f"shape {vectors.shape}, expected {expected}")
        num_bad = int((~np.isfinite(vectors).all(axis=1)).sum())
        if num_bad:
            return Verdict(passed=False, reason=f"{num_bad} vectors are not finite")
        # Not above: a worker that runs a peer imports nothing of ours.
        from encoder_engine.embedding.accuracy import Accuracy

        found = Accuracy.of(self.precision, vectors[list(self.rows)], self.truth)
        figures = {"min_cosine": found.min_cosine, "mean_cosine": found.mean_cosine}
        return Verdict(passed=found.failure is None, figures=figures, reason=found.failure)


@dataclass(frozen=True, kw_only=True)
class ParityGate:
    """A gate for token ids: every row of the output must equal the reference's."""

    truth: Sequence[npt.NDArray[np.int64]]

    def __call__(self, output: Any) -> Verdict:
        expected = len(self.truth)
        if len(output) != expected:
            return Verdict(passed=False, reason=f"{len(output)} rows, expected {expected}")
        pairs = zip(output, self.truth, strict=True)
        differing = sum(not np.array_equal(found, right) for found, right in pairs)
        figures = {"rows": expected, "differing_rows": differing}
        if not differing:
            return Verdict(passed=True, figures=figures)
        reason = f"fails parity: {differing} of {expected} rows differ"
        return Verdict(passed=False, figures=figures, reason=reason)
