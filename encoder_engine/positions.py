"""Tables of positions and distances: rotary angles, and the buckets of T5, MPNet and DeBERTa."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.errors import ShapeError

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "log_position_entries",
    "log_positions_are_settled",
    "relative_position_buckets",
    "relative_positions_are_settled",
    "rotary_table",
    "table_of_frequencies",
]

# The sizes of published models, whose tables were compared with PyTorch's.
PUBLISHED_BIAS = (32, 128)
PUBLISHED_VECTORS = (256, 512)
# A logarithm of float32, its argument and the two operations after it are each off by at most one
# unit in the last place.
ROUNDINGS = 4


def rotary_table(
    num_positions: int, head_dim: int, *, base: float, divisor: float = 1.0, first: int = 0
) -> npt.NDArray[np.float64]:
    """Return cosines, then sines, of ``position * base^(-2i/D) / divisor``, float64 [P, D].

    first: the first position.

    Raises :class:`ShapeError` for an odd ``head_dim``, and for sizes, bases and divisors that are
    not positive.
    """
    if num_positions < 1 or head_dim < 2 or head_dim % 2:
        raise ShapeError(
            f"num_positions must be at least 1 and head_dim even and at least 2, got "
            f"{num_positions} and {head_dim}"
        )
    for name, number in (("base", base), ("divisor", divisor)):
        if not 0.0 < number < float("inf"):
            raise ShapeError(f"{name} must be positive and finite, got {number}")
    exponents = np.arange(0, head_dim, 2, dtype=np.float64) / head_dim
    return table_of_frequencies(num_positions, base**-exponents, divisor=divisor, first=first)


def table_of_frequencies(
    num_positions: int,
    frequencies: npt.NDArray[np.float64],
    *,
    divisor: float = 1.0,
    magnitude: float = 1.0,
    first: int = 0,
) -> npt.NDArray[np.float64]:
    """Return ``magnitude`` times cosines, then sines, of ``position * frequency / divisor``.

    first: the first position. Float64 [P, 2 F], F the number of frequencies.
    """
    places = np.arange(first, first + num_positions, dtype=np.float64)
    angles = np.outer(places / divisor, frequencies)
    table = np.concatenate((np.cos(angles), np.sin(angles)), axis=1)
    return table if magnitude == 1.0 else table * magnitude


def relative_position_buckets(num_buckets: int, max_distance: int) -> npt.NDArray[np.int64]:
    """Return the bucket of each distance -max_distance .. max_distance, int64.

    Half of the buckets are for keys after the query (Raffel et al. 2020). In each half, the first
    half of the buckets hold one distance each, the others distances in equal steps of the
    logarithm; the last bucket holds every distance from ``max_distance`` on. Raises
    :class:`ShapeError` for a number of buckets that is not a multiple of four, or a
    ``max_distance`` within the buckets of one distance each.
    """
    exact = num_buckets // 4
    if num_buckets < 4 or num_buckets % 4 or max_distance <= exact:
        raise ShapeError(
            f"num_buckets must be a positive multiple of 4 and max_distance more than a quarter of "
            f"it, got {num_buckets} and {max_distance}"
        )
    distances = np.arange(-max_distance, max_distance + 1)
    away = np.abs(distances)
    # In float32, as the models were trained: at a border, float64 may choose the other bucket.
    steps = _octaves(np.maximum(away, 1), exact, max_distance / exact) * np.float32(exact)
    far = np.minimum(exact + steps.astype(np.int64), 2 * exact - 1)
    buckets: npt.NDArray[np.int64] = np.where(away < exact, away, far) + 2 * exact * (distances > 0)
    return buckets


def log_position_entries(num_buckets: int | None, max_distance: int) -> npt.NDArray[np.int64]:
    """Return the row of DeBERTa's distance table for each distance -max_distance .. max_distance.

    The rows are int64; the table has 2 N. N is ``num_buckets``; None: ``max_distance``, and every
    distance has its own row, except the two farthest before the query, which share one. Distances
    up to N / 2 have a row each; beyond, distances share rows in equal steps of the logarithm (He et
    al. 2021, v2). Callers clip larger distances to ``max_distance``. Row numbers rise with the
    query's position minus the key's, as in the published tables. Raises :class:`ShapeError` for a
    number of buckets that is odd or below 4, or a ``max_distance`` of at most N / 2 + 1.
    """
    distance = -np.arange(-max_distance, max_distance + 1)
    if num_buckets is None:
        return np.clip(distance + max_distance, 0, 2 * max_distance - 1)
    middle = num_buckets // 2
    if num_buckets < 4 or num_buckets % 2 or max_distance - 1 <= middle:
        raise ShapeError(
            f"num_buckets must be even and at least 4, and max_distance more than num_buckets / 2 "
            f"+ 1, got {num_buckets} and {max_distance}"
        )
    away = np.maximum(np.abs(distance), middle)
    # In float32, as the models were trained: at a border, float64 may choose the other bucket.
    steps = _octaves(away, middle, (max_distance - 1) / middle) * np.float32(middle - 1)
    # Here both logarithms are of one number, but libraries round them differently.
    steps[away == max_distance - 1] = middle - 1
    far = (np.ceil(steps) + np.float32(middle)).astype(np.int64) * np.sign(distance)
    entries = np.where(np.abs(distance) <= middle, distance, far) + num_buckets
    clipped: npt.NDArray[np.int64] = np.clip(entries, 0, 2 * num_buckets - 1)
    return clipped


def relative_positions_are_settled(num_buckets: int, max_distance: int) -> bool:
    """Return whether no distance is so near a bucket's border that rounding decides its bucket."""
    exact = num_buckets // 4
    away = np.arange(exact + 1, max_distance)
    published = (num_buckets, max_distance) == PUBLISHED_BIAS
    return published or _settled(away, exact, max_distance / exact, exact)


def log_positions_are_settled(num_buckets: int | None, max_distance: int) -> bool:
    """Return whether no distance is so near an entry's border that rounding decides its entry."""
    if num_buckets is None or (num_buckets, max_distance) == PUBLISHED_VECTORS:
        return True
    middle = num_buckets // 2
    away = np.arange(middle + 1, max_distance - 1)
    return _settled(away, middle, (max_distance - 1) / middle, middle - 1)


def _settled(away: npt.NDArray[np.int64], unit: int, whole: float, count: int) -> bool:
    steps = np.log(away / unit) / math.log(whole) * count
    near = np.abs(steps - np.rint(steps)) <= ROUNDINGS * np.finfo(np.float32).eps * steps
    return not near.any()


def _octaves(away: npt.NDArray[np.int64], unit: int, whole: float) -> npt.NDArray[np.float32]:
    """Return ``log(away / unit) / log(whole)``, computed in float32."""
    ratio = away.astype(np.float32) / np.float32(unit)
    octaves: npt.NDArray[np.float32] = np.log(ratio) / np.float32(math.log(whole))
    return octaves
