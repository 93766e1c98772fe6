"""The inverse cloze task (Lee et al. 2019, ORQA): a sentence as query, its context as document."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from encoder_engine.errors import ConfigError
from encoder_engine.packing.draws import row_generator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.data.noising.bart import RowKey

__all__ = ["ClozePair", "inverse_cloze"]


class ClozePair(NamedTuple):
    """The indices of the sentences of a passage that are the query and that form the document."""

    query: int
    document: list[int]


def inverse_cloze(
    sentences: Sequence[object], key: RowKey, *, keep: float = 0.1
) -> ClozePair | None:
    """Draw a sentence of a passage as the query; the other sentences are the document.

    ``keep``: the probability that the sentence stays in the document, so that a model also learns
    to match words (ORQA: 0.1).
    Returns None for a passage of fewer than two sentences, whose document would be empty.
    Raises :class:`ConfigError` for a ``keep`` outside 0 to 1.
    """
    if not 0.0 <= keep <= 1.0:
        raise ConfigError(f"keep must be from 0 to 1, got {keep}")
    if len(sentences) < 2:
        return None
    generator = row_generator(*key, "inverse cloze")
    query = int(generator.integers(len(sentences)))
    kept = generator.random() < keep
    places = [place for place in range(len(sentences)) if kept or place != query]
    return ClozePair(query, places)
