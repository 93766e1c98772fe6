"""BART's five noises (Lewis et al. 2020); the target is always the text before noising.

Every function is pure: its draws are a function of (``seed``, ``epoch``, ``row``), and differ from
those of the other noises of the same row.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from encoder_engine.errors import ConfigError
from encoder_engine.packing.draws import row_generator

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = [
    "RowKey",
    "delete_tokens",
    "infill_text",
    "mask_tokens",
    "permute_sentences",
    "rotate_document",
]

# Spans of this mean length insert ten masks for each token of the share.
LEAST_MEAN = 0.1
Token = TypeVar("Token", bound=Hashable)
Sentence = TypeVar("Sentence")


class RowKey(NamedTuple):
    """The seed, epoch and index of a row; all random draws for the row are a function of these."""

    seed: int
    epoch: int = 0
    row: int = 0


def mask_tokens(
    tokens: Sequence[Token], mask: Token, key: RowKey, *, share: float = 0.3
) -> list[Token]:
    """Replace each token by ``mask`` with probability ``share``."""
    chosen = _choose(len(tokens), key, "token masking", share)
    return [mask if is_chosen else token for token, is_chosen in zip(tokens, chosen, strict=True)]


def delete_tokens(tokens: Sequence[Token], key: RowKey, *, share: float = 0.3) -> list[Token]:
    """Delete each token with probability ``share``, without a mark in its place."""
    chosen = _choose(len(tokens), key, "token deletion", share)
    return [token for token, is_chosen in zip(tokens, chosen, strict=True) if not is_chosen]


def infill_text(
    tokens: Sequence[Token],
    mask: Token,
    key: RowKey,
    *,
    share: float = 0.3,
    mean_length: float = 3.0,
) -> list[Token]:
    """Replace spans of tokens by one ``mask`` each; a span of length 0 inserts one.

    Lengths are drawn from a Poisson distribution of mean ``mean_length`` until the spans hold
    ``share`` of the tokens. A last span that would exceed the share is kept with the probability
    that makes the expected share exact.
    All arrangements of the spans are equally probable.
    Raises :class:`ConfigError` for a ``share`` or a ``mean_length`` out of range.
    """
    _check_share(share)
    if not LEAST_MEAN <= mean_length < math.inf:
        raise ConfigError(
            f"mean_length must be a number of at least {LEAST_MEAN}, got {mean_length}: shorter "
            "spans are nearly all empty, and insert more masks than there are tokens"
        )
    generator = row_generator(*key, "text infilling")
    lengths = _span_lengths(len(tokens), share, mean_length, generator)
    if not len(lengths):
        return list(tokens)
    # Choose the places of the spans in the row of kept tokens and spans, uniformly.
    num_kept = len(tokens) - int(lengths.sum())
    places = np.sort(generator.choice(num_kept + len(lengths), len(lengths), replace=False))
    # Before the k-th span, at place p, there are k spans and p - k kept tokens.
    before = places - np.arange(len(lengths))
    starts = before + np.cumsum(lengths) - lengths
    noised: list[Token] = []
    kept_from = 0
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        noised += [*tokens[kept_from:start], mask]
        kept_from = start + length
    return [*noised, *tokens[kept_from:]]


def permute_sentences(sentences: Sequence[Sentence], key: RowKey) -> list[Sentence]:
    """Shuffle the sentences of a document; every order is equally probable."""
    order = row_generator(*key, "sentence permutation").permutation(len(sentences))
    return [sentences[place] for place in order]


def rotate_document(tokens: Sequence[Token], key: RowKey) -> list[Token]:
    """Begin the document with a token drawn uniformly; the tokens before it move to the end."""
    if not tokens:
        return []
    first = int(row_generator(*key, "document rotation").integers(len(tokens)))
    return [*tokens[first:], *tokens[:first]]


def _check_share(share: float) -> None:
    if not 0.0 <= share <= 1.0:
        raise ConfigError(f"share must be from 0 to 1, got {share}")


def _choose(number: int, key: RowKey, purpose: str, share: float) -> npt.NDArray[np.bool_]:
    """Choose each of ``number`` tokens with probability ``share``; return bool [number]."""
    _check_share(share)
    chosen: npt.NDArray[np.bool_] = row_generator(*key, purpose).random(number) < share
    return chosen


def _span_lengths(
    num_tokens: int, share: float, mean_length: float, generator: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Draw lengths until the spans hold their share of the tokens, int64 [S]."""
    left = share * num_tokens
    lengths: list[int] = []
    while left > 0.0:
        length = int(generator.poisson(mean_length))
        if length > left and generator.random() * length >= left:
            break
        lengths.append(min(length, num_tokens - sum(lengths)))
        left -= length
    return np.asarray(lengths, np.int64)
