"""Computes the table of rotary angles' cosines and sines for a specification."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.positions import rotary_table, table_of_frequencies

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.families.facts.spec import RotaryScaling, RotarySpec

__all__ = ["angle_table", "float32_angle_table"]

# Positions whose angles are in float64 at a time: 131,072 of 256 features would take 0.5 GB.
CHUNK_POSITIONS = 4096


def angle_table(rotary: RotarySpec, head_dim: int, num_positions: int) -> npt.NDArray[np.float64]:
    """Return cosines, then sines, of each position's angles: float64 [P, D], D rotated features.

    Raises :class:`ShapeError` for an odd D.
    """
    return _angles(rotary, head_dim, num_positions, 0)


def float32_angle_table(
    rotary: RotarySpec, head_dim: int, num_positions: int
) -> npt.NDArray[np.float32]:
    """Return :func:`angle_table` rounded to float32, without holding all of it in float64."""
    table = np.empty((num_positions, rotary.width(head_dim)), dtype=np.float32)
    for first in range(0, num_positions, CHUNK_POSITIONS):
        chunk = table[first : first + CHUNK_POSITIONS]
        chunk[:] = _angles(rotary, head_dim, len(chunk), first)
    return table


def _angles(rotary: RotarySpec, head_dim: int, count: int, first: int) -> npt.NDArray[np.float64]:
    """Return :func:`angle_table`'s rows of ``count`` positions from ``first`` on."""
    width = rotary.width(head_dim)
    if rotary.scaling is None:
        return rotary_table(
            count,
            width,
            base=rotary.base * rotary.stretch,
            divisor=rotary.stretch ** (2.0 / width),
            first=first,
        )
    plain = rotary.base ** -(np.arange(0, width, 2, dtype=np.float64) / width)
    return table_of_frequencies(
        count,
        _scaled(plain, rotary.scaling, rotary.base),
        magnitude=rotary.scaling.magnitude,
        first=first,
    )


def _scaled(
    plain: npt.NDArray[np.float64], scaling: RotaryScaling, base: float
) -> npt.NDArray[np.float64]:
    """Return the frequencies ``plain`` after ``scaling``, in radians per position."""
    slow = plain / scaling.factor
    if scaling.kind == "linear":
        return slow
    if scaling.kind == "llama3":
        rotations = scaling.original_length * plain / (2.0 * math.pi)
        share = (rotations - scaling.low) / (scaling.high - scaling.low)
    else:
        share = 1.0 - _yarn_ramp(2 * len(plain), scaling, base)
    kept = np.clip(share, 0.0, 1.0)
    return slow * (1.0 - kept) + plain * kept


def _yarn_ramp(width: int, scaling: RotaryScaling, base: float) -> npt.NDArray[np.float64]:
    """Return YaRN's change of each frequency, from 0 (none) to 1 (divided by the factor).

    Float64 [width / 2] (Peng et al. 2024).
    """

    def place_of(rotations: float) -> float:
        length = scaling.original_length / (rotations * 2.0 * math.pi)
        return width * math.log(length) / (2.0 * math.log(base))

    first, last = place_of(scaling.high), place_of(scaling.low)
    if scaling.whole:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    # As published: equal limits would divide by zero.
    last += 0.001 if first == last else 0.0
    places = np.arange(width // 2, dtype=np.float64)
    ramp: npt.NDArray[np.float64] = np.clip((places - first) / (last - first), 0.0, 1.0)
    return ramp
