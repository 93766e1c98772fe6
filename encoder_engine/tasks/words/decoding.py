"""Combines the logits of subwords into logits of words, over all windows of a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.tasks.items import Items

__all__ = ["decode_words"]


def decode_words(
    logits: npt.NDArray[np.floating],
    items: Items,
    num_words: npt.NDArray[np.int64],
    pooling: Literal["first", "mean", "max"],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return the logits of all words, float64 [W, K], and which words have no row, bool [W].

    logits: [M, K] of the rows that ``items`` read. num_words: the number of words of each example,
    int64 [N].
    """
    read = items.ragged("words")
    owners = np.repeat(items.examples, np.diff(read.offsets))
    firsts = np.r_[0, np.cumsum(num_words)]
    word = firsts[owners] + read.values
    total = int(firsts[-1])
    counts = np.bincount(word, minlength=total)
    found = np.zeros((total, logits.shape[1]))
    if pooling == "first":
        # A word's rows are in order, within one window.
        first = np.unique(word, return_index=True)[1]
        found[word[first]] = logits[first]
    elif pooling == "mean":
        np.add.at(found, word, logits)
        found /= np.maximum(counts, 1)[:, None]
    else:
        found[counts > 0] = -np.inf
        np.maximum.at(found, word, logits)
    return found, counts == 0
