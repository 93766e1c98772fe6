"""Splits texts into sentences, and the tokens of whole texts into those of sentences."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from encoder_engine.text.extension import extension

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from encoder_engine.data.salient import Span
    from encoder_engine.text import Tokenizer

__all__ = ["SentenceTokens", "encode_sentences", "find_sentences", "split_sentences"]


class SentenceTokens(NamedTuple):
    """The tokens of a text, T in all, and its sentences.

    sentences: the character range of each sentence.
    ids_T: the token ids, int32; a sentence has those from one of the ``borders`` to the next.
    offsets_T2: the character range of each token.
    borders: the index of the first token of the second and of each further sentence.
    """

    sentences: list[Span]
    ids_T: npt.NDArray[np.int32]
    offsets_T2: npt.NDArray[np.integer[Any]]
    borders: npt.NDArray[np.int64]

    def split(self, rows: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """Split an array that has one row per token into one array per sentence."""
        ends = [0, *self.borders.tolist(), len(rows)]
        return [rows[ends[i] : ends[i + 1]] for i in range(len(ends) - 1)]


def find_sentences(text: str) -> list[Span]:
    """Split a text at line ends and after sentence-final marks, by rule, for many languages.

    Closing quotes and brackets stay with their sentence. Returns the character range of each
    sentence, without surrounding white space; blank sentences are left out.
    """
    spans, _ = extension().find_sentences([text])
    return _as_tuples(spans)


def _as_tuples(spans_S2: npt.NDArray[np.int64]) -> list[Span]:
    return [*zip(spans_S2[:, 0].tolist(), spans_S2[:, 1].tolist(), strict=True)]


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text; see :func:`find_sentences`."""
    return [text[begin:end] for begin, end in find_sentences(text)]


def encode_sentences(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[SentenceTokens]:
    """Yield the tokens of each text, without special tokens, and the first token of each sentence.

    Texts are encoded as a whole, because a byte-level vocabulary encodes the space before a
    sentence, which a sentence by itself does not have. A token belongs to the last sentence that
    begins before the token's end; the tokens of a text of only white space belong to no listed
    sentence.
    """
    encoded = tokenizer.encode_batch(
        list(texts), add_special_tokens=False, truncation=None, return_offsets=True
    )
    assert encoded.offsets is not None
    spans_S2, starts = extension().find_sentences(texts)
    # Characters are counted through all texts, so that places ascend from text to text.
    bases = np.concatenate([np.zeros(1, np.int64), np.cumsum([*map(len, texts)], dtype=np.int64)])
    reached_T = np.repeat(bases[:-1], np.diff(encoded.cu_seqlens))
    np.maximum.accumulate(reached_T + encoded.offsets[:, 1], out=reached_T)
    begins_S = spans_S2[:, 0] + np.repeat(bases[:-1], np.diff(starts))
    borders_S = np.searchsorted(reached_T, begins_S, side="right")
    sentences, ends = _as_tuples(spans_S2), encoded.cu_seqlens.tolist()
    for (first, last), (begin, end) in zip(pairwise(starts.tolist()), pairwise(ends), strict=True):
        yield SentenceTokens(
            sentences[first:last],
            encoded.ids[begin:end],
            encoded.offsets[begin:end],
            borders_S[first + 1 : last] - begin,
        )
