"""NumPy arrays of a checkpoint's dtypes, with bfloat16 as a structured dtype of 16-bit words.

A dtype is named as PyTorch names it: ``"float32"``, ``"bfloat16"``, ``"int8"``.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "BFLOAT16",
    "CHUNK",
    "WEIGHT_DTYPES",
    "Array",
    "arrays_sha256",
    "blocks_of",
    "cast",
    "dtype_name",
    "largest_word",
    "widen",
    "words",
]

Array = np.ndarray[Any, np.dtype[Any]]

# A field with a name, so that an array tells what its words are.
BFLOAT16 = np.dtype([("bfloat16", "<u2")])
# The dtypes of weights.
WEIGHT_DTYPES = ("float64", "float32", "float16", "bfloat16")
# Elements at a time: temporaries of 256 KiB stay in the cache and are reused by the allocator.
CHUNK = 1 << 16


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return PyTorch's name of a NumPy dtype, such as ``"bfloat16"``."""
    return "bfloat16" if dtype == BFLOAT16 else dtype.name


def words(array: Array) -> Array:
    """Return an array's memory as unsigned integers of its item size, without a copy."""
    return array.view(f"<u{array.dtype.itemsize}")


def widen(array: Array) -> Array:
    """Convert 16-bit floats to float32, which is exact; return float32 and float64 unchanged."""
    if array.dtype != BFLOAT16:
        return array.astype(np.float32) if array.dtype == np.float16 else array
    wide = words(array).astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)


def cast(array: Array, dtype: str) -> Array:
    """Convert floating-point numbers to float32 or bfloat16, rounding to nearest, ties to even.

    Float64 becomes bfloat16 by way of float32. An array that already has the dtype is returned
    itself.
    """
    if dtype_name(array.dtype) == dtype:
        return array
    if dtype == "float32":
        return widen(array).astype(np.float32)
    rounded = np.empty(array.shape, dtype=BFLOAT16)
    source, target = array.reshape(-1), words(rounded).reshape(-1)
    for start in range(0, len(source), CHUNK):
        wide = widen(source[start : start + CHUNK]).astype(np.float32).view(np.uint32)
        # Half of the last kept place, less one where that place is even.
        is_nan = (wide & 0x7FFFFFFF) > 0x7F800000
        nearest = (wide + ((wide >> 16) & 1) + 0x7FFF) >> 16
        target[start : start + CHUNK] = np.where(is_nan, 0x7FC0, nearest)
    return rounded


def arrays_sha256(arrays: Iterable[tuple[str, Array]], facts: str = "") -> str:
    """Return the SHA-256 of the text ``facts``, and of each array's name, dtype, shape and bytes.

    It equals :func:`weights_sha256` of PyTorch tensors with the same content.
    """
    digest = hashlib.sha256(facts.encode())
    for name, array in sorted(arrays, key=lambda one: one[0]):
        dtype = f"torch.{dtype_name(array.dtype)}"
        digest.update(f"\0{name} {dtype} {list(array.shape)}\0".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def largest_word(blocks: Iterable[Array]) -> int:
    """Return the largest magnitude in the blocks, as the integer with the same bits; 0 if empty.

    Magnitudes compare like these integers, with infinity and then NaN above all numbers. The
    maximum as signed integers is the largest positive number, and the maximum as unsigned integers
    the largest negative one; neither needs memory, as clearing each sign bit would.
    """
    largest = 0
    for block in blocks:
        bits = words(block)
        sign = 1 << (8 * bits.itemsize - 1)
        above, below = bits.view(f"<i{bits.itemsize}").max(), bits.max()
        largest = max(largest, int(above), int(below) % sign)
    return largest


def blocks_of(array: Array) -> Iterator[Array]:
    """Yield an array's elements in small blocks of one dimension."""
    flat = array.reshape(-1)
    return (flat[start : start + CHUNK] for start in range(0, len(flat), CHUNK))
