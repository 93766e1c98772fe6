"""Static word vectors, as a baseline for contextual vectors.

A word's own static vector is the same for all of its senses. The mean over its sentence represents
the context as a bag of words. Both come from word2vec's and GloVe's text files, or a static model's
directory.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.embedding.static.embedder import StaticEmbedder

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import numpy.typing as npt

    from encoder_engine.analysis.senses import SenseWord

    Vectors = npt.NDArray[np.float64]

__all__ = ["StaticWords"]

# The most words that can be neighbours: files of word vectors begin with the frequent words.
MOST_WORDS = 50_000


@dataclass(frozen=True, eq=False)
class StaticWords:
    """A static embedder, and its vocabulary's words with unit vectors, [V, D]."""

    embedder: StaticEmbedder
    words: list[str]
    unit: npt.NDArray[np.float32]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Read a text file of word vectors, compressed or not, or a static model's directory."""
        if Path(path).is_dir():
            embedder = StaticEmbedder.from_pretrained(path)
        else:
            embedder = StaticEmbedder.from_word_vectors(path)
        names = (embedder.tokenizer.id_to_token(n) for n in range(embedder.tokenizer.vocab_size))
        words = [name for name in names if name and name.isalpha()][:MOST_WORDS]
        return cls(embedder, words, embedder.encode(words, normalize_embeddings=True))

    def vectors(self, words: Sequence[SenseWord], *, with_sentence: bool = False) -> Vectors:
        """Return the static vector of each word, or the mean of its sentence's, float64 [n, D].

        A word that the vocabulary lacks has a vector of zeros.
        """
        texts = [" ".join(w.words) if with_sentence else w.words[w.place] for w in words]
        return np.asarray(self.embedder.encode(texts, normalize_embeddings=False), np.float64)

    def num_known(self, words: Sequence[SenseWord]) -> int:
        """Return how many of the words have a static vector."""
        return int(self.vectors(words).any(1).sum())

    def neighbours(self, word: str, number: int = 3) -> list[str]:
        """Return up to ``number`` other words of greatest cosine; [] for an unknown word."""
        vector = self.embedder.encode([word], normalize_embeddings=True)[0]
        if not vector.any():
            return []
        order = np.argsort(-(self.unit @ vector), kind="stable")[: number + 1].tolist()
        found = [self.words[n] for n in order if self.words[n].casefold() != word.casefold()]
        return found[:number]
