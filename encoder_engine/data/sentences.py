"""Cuts texts into sentences, and the tokens of whole texts into those of their sentences."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from encoder_engine.data.salient import Span
    from encoder_engine.text import Tokenizer

__all__ = ["SentenceTokens", "encode_sentences", "find_sentences", "split_sentences"]

# Closing quotes and brackets: they all belong to the sentence before.
_CLOSING = "[" + re.escape("\"')]\u201d\u2019\u00bb\u300d\u300f\uff09") + "]*+"
# Marks that end a sentence anywhere, the last of several; other marks do before white space.
_WIDE = "\u3002\uff01\uff1f\uff61"
# The ends of sentences and of lines. White space is tried from its first character alone.
_ENDS = re.compile(
    rf"(?<=[.!?\u2026])({_CLOSING})\s+|(?<=[{_WIDE}])({_CLOSING})\s*(?=[^\s{_WIDE}])"
    r"|(?<!\s)()\s*\n\s*"
)


class SentenceTokens(NamedTuple):
    """The tokens of a text, T in all.

    sentences: the characters of each sentence.
    ids_T: int32; a sentence has those from one of the ``borders`` to the next.
    offsets_T2: the characters of each token.
    borders: where the second and all further sentences begin among the tokens.
    """

    sentences: list[Span]
    ids_T: npt.NDArray[np.int32]
    offsets_T2: npt.NDArray[np.integer[Any]]
    borders: npt.NDArray[np.int64]

    def split(self, rows: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """Return the rows of each sentence, of an array with one for each token."""
        ends = [0, *self.borders.tolist(), len(rows)]
        return [rows[ends[i] : ends[i + 1]] for i in range(len(ends) - 1)]


def find_sentences(text: str) -> list[Span]:
    """Split a text at line ends and after sentence-final marks, by rule, for many languages.

    Closing quotes and brackets stay with their sentence. Returns the characters of each sentence,
    without white space around them; blank pieces are left out.
    """
    found: list[Span] = []
    start = 0

    def keep(end: int) -> None:
        piece = text[start:end]
        inner = piece.strip()
        if inner:
            begin = start + len(piece) - len(piece.lstrip())
            found.append((begin, begin + len(inner)))

    for border in _ENDS.finditer(text):
        assert border.lastindex is not None
        keep(border.end(border.lastindex))
        start = border.end()
    keep(len(text))
    return found


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text; see :func:`find_sentences`."""
    return [text[begin:end] for begin, end in find_sentences(text)]


def encode_sentences(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[SentenceTokens]:
    """Yield the tokens of each text, without special tokens, and how its sentences share them.

    Texts are encoded whole: a vocabulary of bytes writes the space before a sentence, which a
    sentence by itself does not have. A token belongs to the last sentence that begins before the
    token's end; of a text of white space alone, to a sentence that is not listed.
    """
    encoded = tokenizer.encode_batch(
        list(texts), add_special_tokens=False, truncation=None, return_offsets=True
    )
    assert encoded.offsets is not None
    ends = encoded.cu_seqlens.tolist()
    for number, text in enumerate(texts):
        here = slice(ends[number], ends[number + 1])
        sentences, offsets_T2 = find_sentences(text), encoded.offsets[here]
        begins = np.array([begin for begin, _ in sentences[1:]], np.int64)
        reached_T = np.maximum.accumulate(offsets_T2[:, 1])
        borders = np.searchsorted(reached_T, begins, side="right")
        yield SentenceTokens(sentences, encoded.ids[here], offsets_T2, borders)
