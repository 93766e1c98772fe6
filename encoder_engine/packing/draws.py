"""Counter-based random numbers: a pure function of (seed, epoch, sequence, position, purpose).

A number does not depend on the batch, the worker, the rank or earlier draws, so that a run resumes
at any step without a saved generator. SplitMix64's finaliser (Steele, Lea and Flood 2014) hashes
the key: two multiplications and three shifts a number, vectorised over all tokens.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.packing.clean import CleanBatch

    Words = npt.NDArray[np.uint64]

__all__ = ["STEP", "row_generator", "sequence_keys", "token_draws"]

# The odd number nearest to 2^64 / golden ratio: its multiples spread evenly over 64 bits.
STEP = np.uint64(0x9E3779B97F4A7C15)
_MASK = (1 << 64) - 1


def _mixed(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _fractions(words: Words) -> npt.NDArray[np.float64]:
    """Convert uint64 words to numbers in [0, 1), by their upper 53 bits."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def sequence_keys(batch: CleanBatch, seed: int, purpose: str) -> Words:
    """Return a hash of seed, epoch and purpose with each sequence's number, uint64 [B]."""
    return _keys(seed, batch.epoch, batch.numbers, purpose)


def _keys(seed: int, epoch: int, numbers: npt.NDArray[np.int64], purpose: str) -> Words:
    key = np.asarray([_purpose_key(seed, epoch, purpose)], np.uint64)
    return _mixed(key + numbers.astype(np.uint64) * STEP)


@lru_cache(maxsize=256)
def _purpose_key(seed: int, epoch: int, purpose: str) -> int:
    key = np.zeros(1, np.uint64)
    for part in (seed, epoch, *purpose.encode()):
        key = _mixed(key * STEP + np.uint64((part + 1) & _MASK))
    return int(key[0])


def token_draws(batch: CleanBatch, seed: int, purpose: str) -> npt.NDArray[np.float64]:
    """Return a uniform random number in [0, 1) for each token, float64 [T].

    ``purpose``: the name of what is drawn, such as the choice of masks; each has its own numbers.
    """
    keys = sequence_keys(batch, seed, purpose)[batch.sequence_ids]
    places = batch.positions.astype(np.uint64) + np.uint64(1)
    return _fractions(_mixed(keys + places * STEP))


def row_generator(seed: int, epoch: int, index: int, purpose: str) -> np.random.Generator:
    """Return a random generator for one row of a data set (Philox: Salmon et al. 2011).

    It is seeded by the arguments alone. ``index``: that of the row. ``purpose``: the name of
    what is drawn, such as the choice of masks; each has a generator of its own.
    """
    key = _keys(seed, epoch, np.asarray([index], np.int64), purpose)
    return np.random.Generator(np.random.Philox(key=int(key[0])))
