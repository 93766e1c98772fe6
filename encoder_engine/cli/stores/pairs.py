"""Reads question-answer pairs, and finds the rows of a store that hold the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.cli.search import load_for, warn_of_lengths

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from encoder_engine.vectors.stored_vectors import StoredVectors

__all__ = ["FORMATS", "embed_queries", "known_rows", "read_pairs"]

FORMATS = ("jsonl", "csv", "tsv", "parquet", "arrow")


def read_pairs(pairs: Sequence[str], options: dict[str, Any]) -> dict[str, list[str]]:
    """Return the answers of each question, in the order in which questions first occur."""
    from encoder_engine.inputs.readers import open_inputs

    opened = open_inputs(
        list(pairs),
        column=options["query_column"],
        pair_column=options["positive_column"],
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
    """Return the texts of a store by row, and the rows of each question's answers, ascending."""
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


def embed_queries(
    stored: StoredVectors, queries: Sequence[str], options: dict[str, Any]
) -> npt.NDArray[np.float32]:
    """Embed questions with the model and the options of a store, float32 [Q, D].

    Warns if scores depend on vector lengths and the model was not trained for dot products.
    """
    embedder = load_for(stored, {"pooling": None, "max_seq_length": None, **options})
    recorded = {} if stored.manifest is None else stored.manifest["plan"]["options"]
    vectors: npt.NDArray[np.float32] = embedder.encode(
        list(queries),
        prompt=options["prompt"],
        prompt_name=options["prompt_name"],
        normalize_embeddings=recorded.get("normalized"),
        truncate_dim=recorded.get("dimension"),
    )
    warn_of_lengths(stored, embedder.stated_similarity)
    return vectors
