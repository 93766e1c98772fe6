"""Measures a precision (dtype or int8) by the cosines of its vectors with float64 vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.embedding.embedder import Embedder

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = ["COSINE_CLASSES", "Accuracy", "CosineClass", "measure_accuracy", "row_cosines"]


@dataclass(frozen=True, kw_only=True)
class CosineClass:
    """The limits for a precision: the least cosines with float64 vectors; None: no limit."""

    min_cosine: float | None = None
    mean_cosine: float | None = None


# The least quality of all results of a class: benchmarks of different classes are never compared.
COSINE_CLASSES = {
    "float32": CosineClass(min_cosine=0.999999),
    "bfloat16": CosineClass(mean_cosine=0.9995),
    "int8": CosineClass(mean_cosine=0.995),
}


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """The cosines of the vectors in a precision with the same texts' float64 vectors.

    worst_row: the row of the smallest cosine.
    """

    precision: str
    min_cosine: float
    mean_cosine: float
    worst_row: int

    @classmethod
    def of(
        cls, precision: str, vectors: npt.NDArray[np.floating], truth: npt.NDArray[np.float64]
    ) -> Accuracy:
        """Compare vectors with float64 vectors row by row, [N, D] each, with at least one row."""
        cosines = row_cosines(vectors, truth)
        return cls(
            precision=precision,
            min_cosine=float(cosines.min()),
            mean_cosine=float(cosines.mean()),
            worst_row=int(cosines.argmin()),
        )

    @property
    def failure(self) -> str | None:
        """A message that names the cosine below its limit, and both numbers.

        None: no cosine is below its limit.
        """
        limits = COSINE_CLASSES[self.precision]
        for name, found, limit in (
            ("min cosine", self.min_cosine, limits.min_cosine),
            ("mean cosine", self.mean_cosine, limits.mean_cosine),
        ):
            if limit is not None and not found >= limit:
                return f"{name} {found:.9f} is below {limit}"
        return None


def row_cosines(
    vectors: npt.NDArray[np.floating], truth: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the cosine of each pair of rows, computed in float64; -1 where it is undefined."""
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1) * np.linalg.norm(truth, axis=1)
    with np.errstate(invalid="ignore"):
        cosines: npt.NDArray[np.float64] = (wide * truth).sum(axis=1) / lengths
    return np.nan_to_num(cosines, nan=-1.0)


def measure_accuracy(path: str | os.PathLike[str], texts: Sequence[str]) -> list[Accuracy]:
    """Embed texts on the CPU in float64 and in each precision, one after the other, and compare.

    Texts beyond the model's limit are truncated in every precision. Exceptions: see
    :meth:`Embedder.from_pretrained` and :meth:`Embedder.encode`.
    """
    truth = _embed(path, texts, "float64").astype(np.float64)
    return [
        Accuracy.of(precision, _embed(path, texts, precision), truth)
        for precision in COSINE_CLASSES
    ]


def _embed(
    path: str | os.PathLike[str], texts: Sequence[str], precision: str
) -> np.ndarray[Any, np.dtype[Any]]:
    quantized = precision == "int8"
    embedder = Embedder.from_pretrained(
        path,
        device="cpu",
        dtype="auto" if quantized else precision,
        quantization="int8" if quantized else None,
    )
    return embedder.encode(texts, on_truncation="ignore")
