"""Similarities of vectors as sentence-transformers names them, in NumPy.

Dimensions: N and M vectors of D features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import numpy as np

from encoder_engine.errors import InputError, ShapeError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

__all__ = [
    "SIMILARITIES",
    "Similarity",
    "check_similarity",
    "pairwise_similarities",
    "similarities",
    "unit_vectors",
]

Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
SIMILARITIES: tuple[Similarity, ...] = get_args(Similarity)
Floating = TypeVar("Floating", bound="np.floating[Any]")
Array = np.ndarray[Any, np.dtype[Any]]
# What directories also call the dot product.
_OTHER_NAMES: dict[str, Similarity] = {"dot_product": "dot"}
# The most numbers in the differences that are in memory at a time: 64 MiB of float32.
_CHUNK = 1 << 24


def check_similarity(name: str | None) -> Similarity:
    """Return the name of a similarity; None: cosine. Raises :class:`InputError` for others."""
    if name is None:
        return "cosine"
    for known in SIMILARITIES:
        if _OTHER_NAMES.get(name, name) == known:
            return known
    raise InputError(f"no similarity {name!r}; there are {', '.join(SIMILARITIES)}")


def unit_vectors(vectors_ND: npt.NDArray[Floating]) -> npt.NDArray[Floating]:
    """Divide each vector by its length, in its own dtype; zero vectors are returned unchanged."""
    lengths = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    return np.asarray(vectors_ND / np.maximum(lengths, np.float32(1e-12)))


def similarities(first: object, second: object, name: Similarity = "cosine") -> Array:
    """Compare all vectors of ``first`` with all of ``second``: float32 [N, M].

    first, second: [N, D] and [M, D], or [D] for one vector; arrays, tensors or lists.
    name: ``"cosine"``, ``"dot"``, or the negative distance ``"euclidean"`` or ``"manhattan"``.

    Raises :class:`ShapeError` for vectors of different widths and for quantized ones.
    """
    left_ND, right_MD = _matrices(first, second)
    if name in ("cosine", "dot"):
        if name == "cosine":
            left_ND, right_MD = unit_vectors(left_ND), unit_vectors(right_MD)
        return left_ND @ right_MD.T
    distance = _DISTANCES[name]
    found_NM = np.empty((len(left_ND), len(right_MD)), dtype=np.float32)
    rows = max(1, _CHUNK // max(1, right_MD.size))
    for start in range(0, len(left_ND), rows):
        part = left_ND[start : start + rows, None] - right_MD[None]
        found_NM[start : start + rows] = -distance(part)
    return found_NM


def pairwise_similarities(first: object, second: object, name: Similarity = "cosine") -> Array:
    """Compare each vector of ``first`` with the vector in the same row of ``second``: float32 [N].

    Arguments and exceptions: see :func:`similarities`. Raises :class:`ShapeError` for different
    numbers of vectors.
    """
    left_ND, right_ND = _matrices(first, second)
    if len(left_ND) != len(right_ND):
        raise ShapeError(f"{len(left_ND)} vectors cannot be paired with {len(right_ND)}")
    if name == "cosine":
        left_ND, right_ND = unit_vectors(left_ND), unit_vectors(right_ND)
    if name in ("cosine", "dot"):
        return np.asarray(np.einsum("nd,nd->n", left_ND, right_ND))
    return np.asarray(-_DISTANCES[name](left_ND - right_ND))


def _euclidean(differences: Array) -> Array:
    return np.asarray(np.sqrt(np.square(differences).sum(axis=-1)))


def _manhattan(differences: Array) -> Array:
    return np.asarray(np.abs(differences).sum(axis=-1))


_DISTANCES: dict[str, Callable[[Array], Array]] = {"euclidean": _euclidean, "manhattan": _manhattan}


def _matrices(first: object, second: object) -> tuple[Array, Array]:
    """Return both arguments as float32 matrices of one width, [N, D] and [M, D]."""
    found = [_matrix(value) for value in (first, second)]
    if found[0].shape[1] != found[1].shape[1]:
        raise ShapeError(
            f"vectors of {found[0].shape[1]} features cannot be compared with vectors of "
            f"{found[1].shape[1]}; use the same model and truncate_dim"
        )
    return found[0], found[1]


def _matrix(value: Any) -> Array:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        # NumPy has no bfloat16.
        value = (value.float() if value.is_floating_point() else value).numpy()
    try:
        array = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise ShapeError(f"vectors must be [N, D] or [D]: {error}") from error
    if array.dtype.kind not in "iubf":
        raise ShapeError(f"vectors must be numbers, got {array.dtype}")
    if array.dtype.itemsize == 1:
        raise ShapeError(
            f"the vectors are {array.dtype}: quantized, or stored in bits; compare float32 "
            "vectors, or rescore candidates by them"
        )
    array = np.atleast_2d(array.astype(np.float32, copy=False))
    if array.ndim != 2:
        raise ShapeError(f"vectors must be [N, D] or [D], got {list(array.shape)}")
    return array
