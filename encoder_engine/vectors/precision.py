"""Storing vectors in fewer bits, as ``sentence_transformers.quantize_embeddings`` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from encoder_engine.errors import InputError, ShapeError

if TYPE_CHECKING:
    import numpy.typing as npt

Precision = Literal["float32", "int8", "uint8", "binary", "ubinary"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


def check_precision(precision: str) -> Precision:
    """Return a precision that needs no calibration. Raises :class:`InputError` for any other.

    int8 and uint8 cut each feature's range into 255 steps. sentence-transformers takes the ranges
    from the texts at hand: the same text then gets other bytes in other company, and nobody can
    turn them back. So they need ranges of a representative sample, in :func:`quantize_vectors`.
    """
    for known in PRECISIONS:
        if precision == known:
            if precision in ("int8", "uint8"):
                raise InputError(
                    f"precision={precision!r} needs the range of every feature, which one call "
                    "cannot know: encode as float32, then quantize_vectors(vectors, "
                    f"{precision!r}, ranges=...) with ranges of a representative sample"
                )
            return known
    raise InputError(f"no precision {precision!r}; there are {', '.join(PRECISIONS)}")


def quantize_vectors(
    vectors: npt.NDArray[np.float32],
    precision: Precision,
    *,
    ranges: npt.NDArray[np.floating] | None = None,
) -> np.ndarray[Any, np.dtype[Any]]:
    """Store vectors in fewer bits.

    ``vectors``: float32 [N, D]. ``ranges``: [2, D], the least and the greatest value of each
    feature over a representative sample; needed by int8 and uint8, beyond them values are clipped.
    Returns [N, D] float32, int8 or uint8; or bits, one per feature that is above 0, packed eight to
    a byte into int8 (``binary``, offset by -128) or uint8 (``ubinary``), [N, ceil(D / 8)].
    Raises :class:`InputError` and :class:`ShapeError`.
    """
    if precision == "float32":
        return vectors.astype(np.float32, copy=False)
    if precision in ("binary", "ubinary"):
        packed = np.packbits(vectors > 0, axis=-1)
        return packed if precision == "ubinary" else (packed ^ 0x80).view(np.int8)
    if precision not in ("int8", "uint8"):
        raise InputError(f"no precision {precision!r}; there are {', '.join(PRECISIONS)}")
    if ranges is None:
        raise InputError(f"{precision} needs ranges [2, D]: least and greatest value per feature")
    if ranges.shape != (2, vectors.shape[-1]):
        raise ShapeError(f"ranges must be [2, {vectors.shape[-1]}], got {list(ranges.shape)}")
    with np.errstate(over="ignore", invalid="ignore"):
        lows, highs = ranges.astype(np.float32)
        steps = (highs - lows) / 255
    wrong = np.flatnonzero(~(np.isfinite(steps) & (steps >= 0)))
    if len(wrong):
        raise InputError(
            f"the range of feature {wrong[0]} is {lows[wrong[0]]} to {highs[wrong[0]]}; ranges "
            "must be finite, the least value in row 0 and the greatest in row 1"
        )
    steps = np.where(steps == 0, 1, steps)
    levels = np.clip(np.floor((vectors - lows) / steps), 0, 255)
    offset, kind = (0, np.uint8) if precision == "uint8" else (128, np.int8)
    quantized: np.ndarray[Any, np.dtype[Any]] = (levels - offset).astype(kind)
    return quantized
