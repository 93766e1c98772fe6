"""Reads a corpus's sentences as lists of words; measures its word vectors' mean and deviation."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.analysis.senses import LAST_LAYERS
from encoder_engine.analysis.zscore import ZScore
from encoder_engine.errors import InputError
from encoder_engine.inputs.conll import CONLL_SUFFIXES, plain_suffix, read_conll, read_conllu
from encoder_engine.inputs.tables import read_table

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from encoder_engine.analysis.subject import Subject

__all__ = ["measure_corpus", "read_sentences"]


def read_sentences(path: str | os.PathLike[str], num_rows: int | None = None) -> list[list[str]]:
    """Return the first ``num_rows`` sentences of a file as lists of words; None: all sentences.

    The file is CoNLL-U, CoNLL, or a table with a column ``text``. Raises :class:`InputError` for a
    file without a sentence.
    """
    found = [words for words in islice(_sentences(path), num_rows) if words]
    if not found:
        raise InputError(f"{path} has no sentence")
    return found


def _sentences(path: str | os.PathLike[str]) -> Iterator[list[str]]:
    suffix = plain_suffix(path)
    if suffix == ".conllu":
        return (record.names_of("words") for record in read_conllu(path))
    if suffix in CONLL_SUFFIXES:
        return (record.names_of("words") for record in read_conll(path))
    return (record.text("text").split() for record in read_table(path))


def measure_corpus(subject: Subject, path: str, num_rows: int) -> ZScore:
    """Measure each feature's mean and deviation over a corpus's word vectors.

    A word's vector is the sum of its vectors in the last four layers.
    """
    last = subject.num_layers
    first = max(0, last - LAST_LAYERS + 1)
    vectors = [
        batch.states[first:].astype(np.float64).sum(0)
        for batch in subject.word_states(read_sentences(path, num_rows))
    ]
    return ZScore.fit(np.concatenate(vectors))
