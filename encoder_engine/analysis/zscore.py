"""z-scores of features, by the means and standard deviations of a corpus (Timkey & van Schijndel).

A few features can dominate a cosine; after standardisation, all count equally. A feature whose
standard deviation is below 1e-4 of the median feature's is dead: it is left out, because division
by its deviation would give noise or NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError

if TYPE_CHECKING:
    import numpy.typing as npt

    Vectors = npt.NDArray[np.floating]

__all__ = ["DEAD_SHARE", "ZScore"]

# A feature is dead whose standard deviation is below this share of the median one.
DEAD_SHARE = 1e-4


@dataclass(frozen=True, eq=False)
class ZScore:
    """Means and standard deviations of the D features of a corpus.

    ``mean``, ``deviation``: float64 [D].
    """

    mean: npt.NDArray[np.float64]
    deviation: npt.NDArray[np.float64]

    @classmethod
    def fit(cls, vectors_ND: Vectors) -> Self:
        """Measure mean and deviation of each feature of vectors, [N, D].

        Raises :class:`InputError` for fewer than two vectors, NaN or infinity, or equal vectors.
        """
        wide = np.asarray(vectors_ND, np.float64)
        if wide.ndim != 2 or len(wide) < 2 or not np.isfinite(wide).all():
            raise InputError(
                f"z-scores are of at least two vectors of finite features, got {wide.shape}"
            )
        found = cls(wide.mean(0), wide.std(0))
        if not found.alive.any():
            raise InputError("all vectors are equal: no feature has a standard deviation")
        return found

    @property
    def alive(self) -> npt.NDArray[np.bool_]:
        """The features that are kept, bool [D]."""
        return (self.deviation >= DEAD_SHARE * np.median(self.deviation)) & (self.deviation > 0)

    @property
    def num_dead(self) -> int:
        """The number of dead features, which are left out."""
        return int(np.count_nonzero(~self.alive))

    @property
    def scale(self) -> npt.NDArray[np.float64]:
        """The factor of each feature, float64 [D]; 0 for a dead feature."""
        alive = self.alive
        return np.where(alive, 1.0 / np.where(alive, self.deviation, 1.0), 0.0)

    def apply(self, vectors_ND: Vectors) -> npt.NDArray[np.float64]:
        """Return ``(vectors - mean) / deviation``, [N, D]; a dead feature is 0."""
        z: npt.NDArray[np.float64] = (np.asarray(vectors_ND, np.float64) - self.mean) * self.scale
        return z
