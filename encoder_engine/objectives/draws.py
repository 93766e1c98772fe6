"""Random numbers that are a function of their place, so that nothing has to be remembered.

A number depends on the seed, the epoch, the sequence's number, the token's position and what it is
for, and on nothing else: not on the batch, the worker, the rank, or on what was drawn before.
SplitMix64's finaliser (Steele, Lea and Flood 2014) mixes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.packing.clean import CleanBatch

    Words = npt.NDArray[np.uint64]

__all__ = ["sequence_keys", "token_draws"]

# The odd number nearest to 2^64 divided by the golden ratio: steps of it fill 64 bits evenly.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MASK = (1 << 64) - 1


def _mixed(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _fractions(words: Words) -> npt.NDArray[np.float64]:
    """Turn words into numbers from 0 up to, but without, 1: 53 bits of each."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def sequence_keys(batch: CleanBatch, seed: int, purpose: str) -> Words:
    """Return a word for each sequence, uint64 [B], from which its numbers follow."""
    key = np.zeros(1, np.uint64)
    for part in (seed, batch.epoch, *purpose.encode()):
        key = _mixed(key * _STEP + np.uint64((part + 1) & _MASK))
    return _mixed(key + batch.numbers.astype(np.uint64) * _STEP)


def token_draws(batch: CleanBatch, seed: int, purpose: str) -> npt.NDArray[np.float64]:
    """Draw a number in [0, 1) for each token, [T]."""
    keys = sequence_keys(batch, seed, purpose)[batch.sequence_ids]
    places = batch.positions.astype(np.uint64) + np.uint64(1)
    return _fractions(_mixed(keys + places * _STEP))
