"""Projects stored vectors to two dimensions, for plots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.vectors.stored_vectors import StoredVectors

Method = Literal["pca", "umap"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Projection:
    """Projected rows: row indices ``rows`` [n], ascending; ``points`` [n, 2]; names of the axes."""

    rows: npt.NDArray[np.int64]
    points: npt.NDArray[np.float64]
    axes: tuple[str, str]


def project(store: StoredVectors, method: Method, *, most_rows: int, seed: int = 0) -> Projection:
    """Project the vectors of a store to a plane.

    method: ``"pca"`` takes the two principal components of all vectors, in two passes and constant
        memory; the largest entry of a component is positive. ``"umap"`` (extra ``plot``) fits the
        projected rows by cosine.
    most_rows: a store of more rows is subsampled evenly to this number.
    seed: the seed of UMAP.

    Raises :class:`InputError` for vectors that are not float32 and for fewer than three rows or two
    features, and :class:`MissingDependencyError` if UMAP is not installed.
    """
    if most_rows < 3:
        raise InputError(f"most_rows must be at least 3, got {most_rows}")
    num_rows, mean_D, covariance_DD = _moments(store)
    if num_rows < 3 or len(mean_D) < 2:
        raise InputError(
            f"{store.path} holds {num_rows} vectors of {len(mean_D)} features; a plane needs at "
            "least three vectors of at least two features"
        )
    rows = np.unique(np.linspace(0, num_rows - 1, min(most_rows, num_rows)).astype(np.int64))
    vectors_ND = store.take(rows)
    if method == "umap":
        return Projection(rows=rows, points=_umap(vectors_ND, seed), axes=("UMAP 1", "UMAP 2"))
    variances_D, directions_DD = np.linalg.eigh(covariance_DD)
    first_D2 = directions_DD[:, [-1, -2]]
    largest = np.abs(first_D2).argmax(axis=0)
    first_D2 = first_D2 * np.where(first_D2[largest, [0, 1]] < 0, -1.0, 1.0)
    total = max(float(variances_D.sum()), np.finfo(np.float64).tiny)
    shares = variances_D[[-1, -2]] / total
    axes = [
        f"principal component {n} ({share:.1%} of the variance)"
        for n, share in enumerate(shares, start=1)
    ]
    return Projection(rows=rows, points=(vectors_ND - mean_D) @ first_D2, axes=(axes[0], axes[1]))


def _moments(store: StoredVectors) -> tuple[int, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the number of vectors, their mean [D] and their covariance [D, D]."""
    num_rows, sum_D, gram_DD = 0, np.zeros(0), np.zeros((0, 0))
    for block_ND in store.float_blocks():
        wide_ND = block_ND.astype(np.float64)
        if not num_rows:
            sum_D, gram_DD = wide_ND.sum(axis=0), wide_ND.T @ wide_ND
        else:
            sum_D += wide_ND.sum(axis=0)
            gram_DD += wide_ND.T @ wide_ND
        num_rows += len(block_ND)
    mean_D = sum_D / max(num_rows, 1)
    return num_rows, mean_D, gram_DD / max(num_rows, 1) - np.outer(mean_D, mean_D)


def _umap(vectors_ND: npt.NDArray[np.float32], seed: int) -> npt.NDArray[np.float64]:
    try:
        import umap
    except ImportError:
        raise MissingDependencyError("UMAP", library="umap-learn", extra="plot") from None
    num_neighbors = min(15, len(vectors_ND) - 1)
    # One thread, or the same seed would give other points.
    reducer: Any = umap.UMAP(
        n_neighbors=num_neighbors, metric="cosine", random_state=seed, n_jobs=1
    )
    return np.asarray(reducer.fit_transform(vectors_ND), dtype=np.float64)
