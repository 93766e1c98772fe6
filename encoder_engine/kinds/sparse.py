"""Sparse vectors over the vocabulary (SPLADE): a weight for each token of the vocabulary.

Dimensions: B texts, V vocabulary.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.engine.limits import WIDEST_BYTES
from encoder_engine.engine.outputs import SparseActivation, SparsePooling, VocabularyWeights
from encoder_engine.kinds.kind import Kind, refuse_non_finite
from encoder_engine.kinds.options import Options, Route, check_positive, check_route, route_of
from encoder_engine.vectors.sparse_vectors import SparseVectors, join_sparse

if TYPE_CHECKING:
    from encoder_engine.kinds.kind import Batches
    from encoder_engine.kinds.windows import TokenizedWindow
    from encoder_engine.opening.router import TokenWeights
    from encoder_engine.packing.token_rows import TokenizedRows, WindowRows
    from encoder_engine.text import Encoding

__all__ = ["Sparse", "SparseOptions"]


@dataclass(frozen=True, kw_only=True)
class SparseOptions(Options):
    """The options of a call that computes sparse vectors.

    max_active_dims: the most weights of a text's vector, the largest; None: all.
    """

    max_active_dims: int | None = None

    def describe(self) -> dict[str, Any]:
        """Return the options that decide the vectors, which a run over files records.

        The route is not one of them, as such runs embed documents.
        """
        return super().describe() | {"max_active_dims": self.max_active_dims}


class Sparse(Kind):
    """The :class:`Kind` that computes sparse vectors of texts, by a masked-language model.

    query_weights: fixed weights of queries' tokens; None: the model computes queries too.
    max_active_dims, route: the default options of a call.
    """

    name = "sparse"
    requested = ("input_type",)
    noun = "sparse vectors"
    has_routes = True

    def __init__(
        self,
        model: Any,
        *,
        pooling: SparsePooling,
        activation: SparseActivation,
        query_weights: TokenWeights | None,
        max_active_dims: int | None,
        route: Route,
    ) -> None:
        super().__init__(model)
        self._pooling, self._activation = pooling, activation
        self._query_weights = query_weights
        self._max_active_dims, self._route = max_active_dims, route

    @property
    def default_batch_tokens(self) -> int:
        """The most tokens of a batch by default: their float32 logits take up to 96 MiB."""
        return max(1, 4 * WIDEST_BYTES // (4 * int(self.model.dimension)))

    def resolve(
        self, *, max_active_dims: int | None = None, route: Route | None = None, **common: Any
    ) -> SparseOptions:
        """Validate the keywords of a call, and fill in defaults."""
        check_route(route)
        if max_active_dims is not None:
            check_positive(max_active_dims, "max_active_dims")
        return SparseOptions(
            **self.common_options(**common),
            dimension=self.model.dimension,
            max_active_dims=max_active_dims or self._max_active_dims,
            route=route or self._route,
        )

    def _weights(self, options: SparseOptions) -> TokenWeights | None:
        """Return the fixed weights of tokens, for queries; None: the model computes the weights."""
        return self._query_weights if options.route == "query" else None

    def limit(self, options: SparseOptions) -> int | None:
        """Return the most tokens of a text, a query or a document; None: no limit."""
        weights = self._weights(options)
        return super().limit(options) if weights is None else weights.max_length

    def tokenize(self, rows: list[str], options: SparseOptions) -> WindowRows:
        """Tokenize texts; without special tokens if tokens have fixed weights."""
        weights = self._weights(options)
        if weights is None:
            return super().tokenize(rows, options)
        return tokenize_weighed(weights, rows, options.prompt)

    def needs_tokens(self, options: SparseOptions) -> bool:
        """Return whether the model computes the weights: a text then needs a token."""
        return self._weights(options) is None

    def wanted(self, options: SparseOptions) -> tuple[VocabularyWeights, ...]:
        """Return what the engine is asked to compute for a batch: weights of the vocabulary."""
        del options
        return (VocabularyWeights(pooling=self._pooling, activation=self._activation),)

    def finish(
        self, window: TokenizedWindow, batches: Batches, options: SparseOptions
    ) -> SparseVectors:
        """Return consecutive texts' weights that are not 0: computed by the model, or fixed."""
        weights, most = self._weights(options), options.max_active_dims
        if weights is not None:
            return weigh_rows(weights, window.encoding, most)
        found: list[Any] = [None] * len(batches.rows)
        for batch, (weights_BV,) in batches:
            refuse_non_finite(np.isfinite(weights_BV), batches.numbers[batch], what="weights")
            for row, weights_V in zip(batch, weights_BV, strict=True):
                found[row] = keep_largest(np.flatnonzero(weights_V), weights_V, most)
        return join_rows(found, options.dimension)

    def join(self, parts: list[SparseVectors], options: SparseOptions) -> SparseVectors:
        """Concatenate the sparse vectors of successive parts of the input."""
        return join_sparse(parts, options.dimension)

    def describe(self, options: SparseOptions) -> dict[str, Any]:
        """Return how logits are pooled and activated, which a run over files records."""
        return {
            **super().describe(options),
            "sparse_pooling": self._pooling,
            "sparse_activation": self._activation,
        }

    def each(self, results: SparseVectors) -> list[Any]:
        """Return the token ids and weights of each text's sparse vector."""
        return [results.row(row) for row in range(len(results))]

    def of_request(self, request: Any) -> dict[str, Any]:
        """Return a server request's argument for :meth:`resolve`: the route, query or document."""
        return {"route": route_of(request)}


def tokenize_weighed(table: TokenWeights, texts: list[str], prefix: str) -> Encoding:
    """Tokenize texts, each after a prefix, without special tokens; for :func:`weigh_rows`.

    Texts are truncated to the limit of ``table``, which has the tokenizer and fixed weights.
    """
    return table.tokenizer.encode_batch(
        [prefix + text for text in texts] if prefix else texts,
        max_length=table.max_length,
        add_special_tokens=False,
    )


def weigh_rows(table: TokenWeights, rows: TokenizedRows, most: int | None) -> SparseVectors:
    """Return a sparse vector per row of tokens: the fixed weight of each distinct token.

    ``most``: the most weights of a vector, the largest; None: all.
    """
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
    """Return the indices, ascending int32, and the weights of the ``most`` largest weights.

    indices: the places in ``weights_V`` to choose from. most: None: all are kept.
    """
    if most is not None and len(indices) > most:
        best = np.argsort(-weights_V[indices], kind="stable")[:most]
        indices = np.sort(indices[best])
    return indices.astype(np.int32), weights_V[indices]


def join_rows(rows: list[tuple[Any, Any]], dimension: int) -> SparseVectors:
    """Make :class:`SparseVectors` of rows, each given by its indices and its values."""
    lengths = [len(indices) for indices, _ in rows]
    return SparseVectors(
        indptr=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        indices=np.concatenate([np.zeros(0, np.int32), *(indices for indices, _ in rows)]),
        values=np.concatenate([np.zeros(0, np.float32), *(values for _, values in rows)]),
        dimension=dimension,
    )
