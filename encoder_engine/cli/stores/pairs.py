"""Reads question-answer pairs, and finds the rows of a store that contain the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.vectors.stored_vectors import StoredVectors

__all__ = ["FORMATS", "known_rows", "read_pairs"]

FORMATS = ("jsonl", "csv", "tsv", "parquet", "arrow")


def read_pairs(pairs: Sequence[str], options: dict[str, Any]) -> dict[str, list[str]]:
    """Return the answers of each question, in the order in which questions first occur."""
    from encoder_engine.inputs.readers import open_inputs

    opened = open_inputs(
        list(pairs),
        column=options["column"],
        pair_column=options["pair_column"],
        format=options["input_format"],
    )
    answers: dict[str, list[str]] = {}
    for row in opened:
        assert row.pair is not None
        answers.setdefault(row.text, []).append(row.pair)
    return answers


def known_rows(
    stored: StoredVectors, answers: dict[str, list[str]]
) -> tuple[dict[int, str], dict[str, list[int]]]:
    """Return a store's texts by row, and by question the rows whose texts are its answers."""
    from encoder_engine.vectors.origins import read_texts

    documents = read_texts(stored, range(stored.rows))
    rows_of: dict[str, list[int]] = {}
    for row, text in documents.items():
        rows_of.setdefault(text, []).append(row)
    known = {
        query: sorted({row for text in texts for row in rows_of.get(text, ())})
        for query, texts in answers.items()
    }
    return documents, known
