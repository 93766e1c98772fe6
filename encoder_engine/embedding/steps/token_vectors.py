"""Token vectors of texts, and the late-interaction similarity of ColBERT.

Dimensions: T tokens of all texts, D features, Q queries, N documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.embedding.steps.batch_loop import compute_batches
from encoder_engine.embedding.steps.texts import open_texts
from encoder_engine.embedding.steps.truncation import TruncationNotice
from encoder_engine.embedding.steps.window import tokenized_windows
from encoder_engine.errors import NonFiniteVectorError, ShapeError
from encoder_engine.packing.module_stack import EMPTY_STACK
from encoder_engine.packing.token_rows import TokenRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from encoder_engine.embedding.options import EncodeOptions
    from encoder_engine.embedding.parts import EmbedderParts
    from encoder_engine.packing.module_stack import ModuleStack
    from encoder_engine.packing.token_rows import TokenizedRows

__all__ = ["TokenVectors", "embed_tokens", "max_similarity"]

Array = np.ndarray[Any, np.dtype[np.float32]]
IdArray = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenVectors:
    """The packed tokens of texts: ``vectors`` float32 [T, D], ``ids`` int32 [T].

    Text i has the rows from ``cu_seqlens[i]`` to ``cu_seqlens[i + 1]``, int64 [N + 1];
    indexing with ``[i]`` returns its vectors.
    """

    vectors: Array
    ids: IdArray
    cu_seqlens: np.ndarray[Any, np.dtype[np.int64]]

    def __len__(self) -> int:
        return len(self.cu_seqlens) - 1

    def __getitem__(self, number: int) -> Array:
        if not -len(self) <= number < len(self):
            raise IndexError(f"text {number} of {len(self)}")
        number %= len(self)
        return self.vectors[self.cu_seqlens[number] : self.cu_seqlens[number + 1]]

    def __iter__(self) -> Iterator[Array]:
        return (self[number] for number in range(len(self)))

    def without(self, ids: Iterable[int]) -> TokenVectors:
        """Return the vectors without the tokens of these ids."""
        return self._take(~np.isin(self.ids, np.fromiter(ids, dtype=np.int32)))

    def only(self, ids: Iterable[int]) -> TokenVectors:
        """Return the vectors of the tokens of these ids."""
        return self._take(np.isin(self.ids, np.fromiter(ids, dtype=np.int32)))

    def _take(self, kept: np.ndarray[Any, np.dtype[np.bool_]]) -> TokenVectors:
        before = np.concatenate([[0], np.cumsum(kept)])
        return TokenVectors(
            vectors=self.vectors[kept],
            ids=self.ids[kept],
            cu_seqlens=before[self.cu_seqlens].astype(np.int64),
        )


def max_similarity(queries: TokenVectors, documents: TokenVectors) -> Array:
    """Score documents for queries by MaxSim: float32 [Q, N].

    The score is ``sum_i max_j (query_i . document_j)`` (Khattab and Zaharia 2020), and 0 for a
    document without a token. Raises :class:`ShapeError` for vectors of different widths.
    """
    widths = queries.vectors.shape[1], documents.vectors.shape[1]
    if widths[0] != widths[1]:
        raise ShapeError(f"queries have {widths[0]} features, documents {widths[1]}")
    scores = np.zeros((len(queries), len(documents)), dtype=np.float32)
    lengths = np.diff(documents.cu_seqlens)
    there = np.flatnonzero(lengths)
    starts = documents.cu_seqlens[:-1][there]
    for number, query in enumerate(queries):
        if len(query) and len(there):
            best = np.maximum.reduceat(query @ documents.vectors.T, starts, axis=1)
            scores[number, there] = best.sum(0)
    return scores


def embed_tokens(
    parts: EmbedderParts,
    texts: str | Iterable[str],
    options: EncodeOptions,
    *,
    modules: ModuleStack = EMPTY_STACK,
    max_length: int | None = None,
    rows_of: Callable[[TokenizedRows], TokenRows] = TokenRows.of,
) -> TokenVectors:
    """Embed every token: the encoder's D features, or N after ``modules``.

    max_length: the most tokens of a text; None: the limit of ``parts``.
    rows_of: makes the rows to embed of a tokenizer's result.
    """
    engine = parts.engine
    width = modules.width(engine.spec.width)
    limit = parts.max_seq_length if max_length is None else max_length
    compute = partial(
        engine.token_vectors,
        layers=parts.recipe.layers,
        modules=modules,
        normalized=options.normalized,
    )
    vectors, ids, lengths = [], [], []
    notice = TruncationNotice(options.on_truncation, limit=limit)
    tokenized = tokenized_windows(
        parts.tokenizer,
        open_texts(texts).rows,
        prompt=options.prompt,
        num_prompt_tokens=0,
        max_length=limit,
        num_threads=engine.num_threads,
        notice=notice,
    )
    for window in tokenized:
        token_rows = rows_of(window.encoding)
        found = np.empty((len(token_rows.ids), width), dtype=np.float32)
        starts = np.asarray(token_rows.cu_seqlens, dtype=np.int64)
        for rows, computed in compute_batches(
            *(engine, token_rows, compute),
            batch_tokens=options.batch_tokens,
            limit=parts.memory_limit,
            numbers=window.first_row + np.arange(len(token_rows)),
        ):
            own = np.concatenate([[0], np.cumsum(token_rows.lengths[rows])])
            for place, row in enumerate(rows):
                found[starts[row] : starts[row + 1]] = computed[own[place] : own[place + 1]]
        vectors.append(found)
        ids.append(np.asarray(token_rows.ids))
        lengths.append(np.diff(starts))
    notice.warn()
    every = TokenVectors(
        vectors=np.concatenate([np.empty((0, width), np.float32), *vectors]),
        ids=np.concatenate([np.empty(0, np.int32), *ids]),
        cu_seqlens=np.concatenate([[0], np.cumsum(np.concatenate([[], *lengths]))]).astype(
            np.int64
        ),
    )
    broken = np.flatnonzero(~np.isfinite(every.vectors).all(axis=1))
    if len(broken):
        row = int(np.searchsorted(every.cu_seqlens, broken[0], side="right")) - 1
        raise NonFiniteVectorError(
            f"{len(broken)} tokens' vectors are NaN or infinite, the first of text {row}: the "
            "model's numbers overflow or are damaged",
            rows=[row],
        )
    return every
