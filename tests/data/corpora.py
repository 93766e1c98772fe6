"""Small corpora of drawn tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.data.shards import Corpus, Document, Vocabulary, write_corpus, write_shard

if TYPE_CHECKING:
    from pathlib import Path

CLS, SEP, MASK, PAD, SIZE = 1, 2, 3, 0, 1000
VOCABULARY = Vocabulary(
    size=SIZE, cls_id=CLS, sep_id=SEP, mask_id=MASK, pad_id=PAD, fingerprint="drawn"
)
# Tokens below begin a word.
FIRST_CONTINUING = 600
WORD_STARTS = np.arange(SIZE) < FIRST_CONTINUING


def draw_documents(
    number: int, *, seed: int = 0, most_sentences: int = 6, longest: int = 12, language: int = 0
) -> list[Document]:
    """Draw documents of 1 to so many sentences of 1 to so many tokens."""
    generator = np.random.default_rng(seed)
    return [
        Document(
            sentences=[
                generator.integers(10, SIZE, generator.integers(1, longest + 1))
                for _ in range(generator.integers(1, most_sentences + 1))
            ],
            language=language,
        )
        for _ in range(number)
    ]


def write(directory: Path, *shards: list[Document]) -> Corpus:
    """Write documents as a corpus, one list a shard."""
    entries = [write_shard(directory, n, shard, VOCABULARY) for n, shard in enumerate(shards)]
    return write_corpus(directory, entries, VOCABULARY, WORD_STARTS, languages=("en", "de"))
