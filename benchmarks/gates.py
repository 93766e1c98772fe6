"""Correctness gates: what a candidate's output must be before its time is worth anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.case import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


@dataclass(frozen=True, kw_only=True)
class CosineClass:
    """What a precision class must reach; None: not asked."""

    min_cosine: float | None = None
    mean_cosine: float | None = None


# The quality every result of a class has: benchmarks of different classes are never compared.
COSINE_CLASSES = {
    "float32": CosineClass(min_cosine=0.999999),
    "bfloat16": CosineClass(mean_cosine=0.9995),
    "int8": CosineClass(mean_cosine=0.995),
}


@dataclass(frozen=True, kw_only=True)
class CosineGate:
    """Compare rows of the output with their float64 truth: ``rows`` are the truth's places.

    The whole output must have ``num_rows`` finite rows of the truth's width.
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
        cosines = row_cosines(vectors[list(self.rows)], self.truth)
        found = {"min_cosine": float(cosines.min()), "mean_cosine": float(cosines.mean())}
        return _judge(found, COSINE_CLASSES[self.precision])


def row_cosines(
    vectors: npt.NDArray[np.floating], truth: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the cosine of each pair of rows, computed in float64."""
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1) * np.linalg.norm(truth, axis=1)
    with np.errstate(invalid="ignore"):
        cosines: npt.NDArray[np.float64] = (wide * truth).sum(axis=1) / lengths
    return np.nan_to_num(cosines, nan=-1.0)


def _judge(found: dict[str, float], asked: CosineClass) -> Verdict:
    for name in ("min_cosine", "mean_cosine"):
        limit = asked.min_cosine if name == "min_cosine" else asked.mean_cosine
        if limit is not None and not found[name] >= limit:
            reason = f"{name.replace('_', ' ')} {found[name]:.9f} is below {limit}"
            return Verdict(passed=False, figures=found, reason=reason)
    return Verdict(passed=True, figures=found)


@dataclass(frozen=True, kw_only=True)
class ParityGate:
    """Compare rows of integers with their truth: each must be the same to the last token."""

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
