"""Weights of tokens that need no model: the queries of inference-free sparse encoders.

V: the vocabulary size.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.embedding.directory.recipe import read_tokenizer, tokenizer_limit
from encoder_engine.embedding.directory.router import read_token_weights
from encoder_engine.embedding.options import check_on_truncation
from encoder_engine.embedding.steps.batching import windows
from encoder_engine.embedding.steps.texts import open_texts
from encoder_engine.embedding.steps.truncation import TruncationNotice
from encoder_engine.vectors.sparse_vectors import SparseVectors, join_sparse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from encoder_engine.embedding.directory.opening import ModelDirectory
    from encoder_engine.embedding.options import OnTruncation
    from encoder_engine.packing.token_rows import TokenizedRows
    from encoder_engine.text import Encoding, Tokenizer

__all__ = [
    "TokenWeights",
    "join_rows",
    "keep_largest",
    "read_query_weights",
    "tokenize_weighed",
    "weigh_rows",
    "weigh_tokens",
]


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenWeights:
    """Weights of tokens that need no model: those of inference-free queries.

    weights_V: the weight of each token, float32 [V].
    max_length: tokens kept of a text; None: all.
    """

    tokenizer: Tokenizer
    weights_V: np.ndarray[Any, np.dtype[np.float32]]
    max_length: int | None = None


def read_query_weights(opened: ModelDirectory) -> TokenWeights | None:
    """Read the weights of inference-free queries; None where a model encodes queries."""
    route = opened.routes.get("query", ())
    if not route or route == opened.routes["document"]:
        return None
    folder = route[0].folder
    return TokenWeights(
        tokenizer=read_tokenizer(folder, lowercase=False),
        weights_V=read_token_weights(folder),
        max_length=tokenizer_limit(folder),
    )


def weigh_tokens(
    table: TokenWeights,
    texts: str | Iterable[str],
    prefix: str,
    most: int | None,
    on_truncation: OnTruncation,
) -> SparseVectors:
    """Return the weight of each token that a text has, however often."""
    check_on_truncation(on_truncation)
    notice = TruncationNotice(on_truncation, limit=table.max_length)
    parts, first_row = [], 0
    for window in windows(open_texts(texts).rows, len):
        encoding = tokenize_weighed(table, window, prefix)
        notice.observe(np.asarray(encoding.truncated), first_row)
        first_row += len(window)
        parts.append(weigh_rows(table, encoding, most))
    notice.warn()
    return join_sparse(parts, len(table.weights_V))


def tokenize_weighed(table: TokenWeights, texts: list[str], prefix: str) -> Encoding:
    """Tokenize texts as :func:`weigh_tokens` reads them, each after the prefix."""
    return table.tokenizer.encode_batch(
        [prefix + text for text in texts] if prefix else texts,
        max_length=table.max_length,
        add_special_tokens=False,
    )


def weigh_rows(table: TokenWeights, rows: TokenizedRows, most: int | None) -> SparseVectors:
    """Return the weight of each token that a row has, however often."""
    found = []
    for start, end in itertools.pairwise(rows.cu_seqlens):
        tokens = np.unique(rows.ids[start:end])
        present = tokens[table.weights_V[tokens] != 0]
        found.append(keep_largest(present, table.weights_V, most))
    return join_rows(found, len(table.weights_V))


def keep_largest(
    indices: np.ndarray[Any, Any],
    weights_V: np.ndarray[Any, np.dtype[np.float32]],
    most: int | None,
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return ascending indices and their weights, at most the ``most`` largest."""
    if most is not None and len(indices) > most:
        best = np.argsort(-weights_V[indices], kind="stable")[:most]
        indices = np.sort(indices[best])
    return indices.astype(np.int32), weights_V[indices]


def join_rows(rows: list[tuple[Any, Any]], dimension: int) -> SparseVectors:
    """Join pairs of indices and values to a matrix."""
    lengths = [len(indices) for indices, _ in rows]
    return SparseVectors(
        indptr=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        indices=np.concatenate([np.zeros(0, np.int32), *(indices for indices, _ in rows)]),
        values=np.concatenate([np.zeros(0, np.float32), *(values for _, values in rows)]),
        dimension=dimension,
    )
