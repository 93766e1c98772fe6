"""Quantizes vectors for storage, as ``sentence_transformers.quantize_embeddings`` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from encoder_engine.errors import InputError, ShapeError

if TYPE_CHECKING:
    import numpy.typing as npt

Precision = Literal["float32", "int8", "uint8", "binary", "ubinary"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


def check_precision(precision: str) -> Precision:
    """Check the argument ``precision`` of ``encode``: return "float32", "binary" or "ubinary".

    Raises :class:`InputError` for others, int8 and uint8 included: they divide each feature's range
    into 255 steps, and one call cannot know the ranges. sentence-transformers takes them from the
    texts of the call, so the bytes of a text depend on the other texts and cannot be decoded.
    :func:`quantize_vectors` therefore takes the ranges of a representative sample.
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
    """Quantize vectors to fewer bits.

    vectors: float32 [N, D].
    precision: ``"float32"``, ``"int8"``, ``"uint8"``, ``"binary"`` or ``"ubinary"``.
    ranges: [2, D], the least and the greatest value of each feature over a representative sample;
        required for int8 and uint8, which clip values outside.

    Returns float32, int8 or uint8 [N, D]. ``binary`` and ``ubinary`` keep one bit a feature, set
    above 0, packed eight to a byte: int8 (offset by -128) or uint8 [N, ceil(D / 8)]. Raises
    :class:`ShapeError` for ``ranges`` of another shape, and :class:`InputError` for an unknown
    precision and for ranges that are missing, not finite or descending.
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
