"""Sparse vectors over the vocabulary (SPLADE): a weight for each token of the vocabulary.

Dimensions: T packed tokens, B texts, V vocabulary.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np

from encoder_engine.embedding.directory.json_files import read_value
from encoder_engine.embedding.directory.modules import SPARSE_ORDER
from encoder_engine.embedding.directory.opening import open_directory
from encoder_engine.embedding.directory.recipe import Settings, read_tokenizer, tokenizer_limit
from encoder_engine.embedding.directory.router import read_token_weights
from encoder_engine.embedding.engines.choosing import (
    EngineRequest,
    load_masked_lm,
    vocabulary_engine,
)
from encoder_engine.embedding.engines.engine import SparseActivation, SparsePooling
from encoder_engine.embedding.limits import WIDEST_BYTES, MemoryLimit
from encoder_engine.embedding.options import (
    OnTruncation,
    check_on_truncation,
    resolve_batch_tokens,
    resolve_prompt,
)
from encoder_engine.embedding.parts import check_vocabulary, smallest
from encoder_engine.embedding.steps.batch_loop import compute_batches
from encoder_engine.embedding.steps.batching import windows
from encoder_engine.embedding.steps.texts import open_texts
from encoder_engine.embedding.steps.truncation import TruncationNotice
from encoder_engine.embedding.steps.window import tokenized_windows
from encoder_engine.errors import (
    ConfigError,
    InputError,
    NonFiniteVectorError,
    ShapeError,
)
from encoder_engine.packing.token_rows import TokenRows

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from pathlib import Path

    import torch

    from encoder_engine.embedding.directory.opening import ModelDirectory
    from encoder_engine.embedding.engines.engine import EngineChoice
    from encoder_engine.inference import CompiledEncoder
    from encoder_engine.models import MaskedLM
    from encoder_engine.text import Tokenizer

__all__ = ["SparseEmbedder", "SparseVectors", "TokenWeights"]

_POOLING_KEYS = (
    "pooling_strategy",
    "activation_function",
    "embedding_dimension",
    "word_embedding_dimension",
)
Route = Literal["query", "document"]


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenWeights:
    """Weights of tokens that need no model: those of inference-free queries.

    weights_V: the weight of each token, float32 [V].
    max_length: tokens kept of a text; None: all.
    """

    tokenizer: Tokenizer
    weights_V: np.ndarray[Any, np.dtype[np.float32]]
    max_length: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseVectors:
    """A sparse matrix in CSR form: ``scipy.sparse.csr_matrix((values, indices, indptr))``.

    indptr: int64 [N + 1].
    indices: int32 [n], ascending within a row.
    values: float32 [n].
    dimension: the vocabulary size V.
    """

    indptr: np.ndarray[Any, np.dtype[np.int64]]
    indices: np.ndarray[Any, np.dtype[np.int32]]
    values: np.ndarray[Any, np.dtype[np.float32]]
    dimension: int

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def row(self, number: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the indices and values of one row."""
        part = slice(self.indptr[number], self.indptr[number + 1])
        return self.indices[part], self.values[part]

    def dense(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return the whole matrix, float32 [N, V]."""
        matrix = np.zeros((len(self), self.dimension), dtype=np.float32)
        matrix[np.repeat(np.arange(len(self)), np.diff(self.indptr)), self.indices] = self.values
        return matrix

    def similarity(self, others: SparseVectors) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return the inner products of all rows with all rows of ``others``, float32 [N, M].

        Raises :class:`ShapeError` for vectors over another vocabulary.
        """
        if self.dimension != others.dimension:
            raise ShapeError(f"vectors over {self.dimension} and over {others.dimension} tokens")
        found = np.zeros((len(self), len(others)), dtype=np.float32)
        for number in range(len(self)):
            weights = np.zeros(self.dimension, dtype=np.float32)
            indices, values = self.row(number)
            weights[indices] = values
            products = weights[others.indices] * others.values
            ends = np.concatenate([[0.0], np.cumsum(products, dtype=np.float64)])
            found[number] = ends[others.indptr[1:]] - ends[others.indptr[:-1]]
        return found


class SparseEmbedder:
    """Turns texts into sparse vectors as a ``SparseEncoder`` would with the same directory.

    A token's weight is ``log(1 + relu(logit))`` of the masked-language model, pooled over the
    text's positions (Formal et al. 2021).

    pooling: ``"max"`` or ``"sum"`` over the positions.
    activation: ``"relu"``, or ``"log1p_relu"``, which takes the logarithm twice.
    query_weights: a query's tokens have these weights, and no model is run for queries; None: a
        query is encoded as a document is.
    default_route: what :meth:`encode` takes texts for where there are ``query_weights``.
    """

    def __init__(
        self,
        model: CompiledEncoder | MaskedLM,
        tokenizer: Tokenizer,
        *,
        max_seq_length: int | None = None,
        pooling: SparsePooling = "max",
        activation: SparseActivation = "relu",
        settings: Settings | None = None,
        query_weights: TokenWeights | None = None,
        default_route: Route = "document",
    ) -> None:
        self.model, self.engine = model, vocabulary_engine(model)
        spec = self.engine.spec
        check_vocabulary(tokenizer, spec)
        for what, choice, known in (
            ("pooling", pooling, get_args(SparsePooling)),
            ("activation", activation, get_args(SparseActivation)),
        ):
            if choice not in known:
                raise InputError(f"{what} must be one of {', '.join(known)}, got {choice!r}")
        self.memory_limit = MemoryLimit()
        self.tokenizer = tokenizer
        self.max_seq_length = smallest(max_seq_length, spec.max_length)
        self.pooling, self.activation = pooling, activation
        self.settings = Settings() if settings is None else settings
        self.query_weights, self.default_route = query_weights, default_route
        if query_weights is not None:
            num_weights, vocab_size = len(query_weights.weights_V), spec.embedding.vocab_size
            if num_weights != vocab_size or query_weights.tokenizer.vocab_size > num_weights:
                raise ConfigError(
                    f"queries have {num_weights} weights for a tokenizer of "
                    f"{query_weights.tokenizer.vocab_size} tokens, documents {vocab_size} weights; "
                    "the files belong to different models"
                )

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike[str],
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        *,
        pooling: SparsePooling | None = None,
        max_seq_length: int | None = None,
        engine: EngineChoice = "auto",
    ) -> Self:
        """Load a SparseEncoder's directory, or any masked-language model.

        ``pooling`` None: the directory's, or by default ``"max"``. Exceptions: see
        :meth:`Embedder.from_pretrained`.
        """
        opened = open_directory(
            *(path_or_hub_id, "SparseEncoder", SPARSE_ORDER),
            task="fill-mask",
            reads="logits",
        )
        stated = _read_pooling(opened.modules[1].folder) if opened.modules else {}
        if pooling is not None:
            stated["pooling"] = pooling
        return cls(
            load_masked_lm(opened.encoder_folder, EngineRequest.of(engine, device, dtype)),
            opened.read_tokenizer(),
            max_seq_length=max_seq_length or opened.max_seq_length,
            settings=opened.settings,
            query_weights=_read_query_weights(opened),
            default_route="query" if opened.default_route == "query" else "document",
            **stated,
        )

    def encode(
        self,
        texts: str | Iterable[str],
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        max_active_dims: int | None = None,
        batch_tokens: int | None = None,
        on_truncation: OnTruncation = "warn",
    ) -> SparseVectors:
        """Embed texts: one row each, in the order given; one row for a single ``str``.

        ``max_active_dims`` keeps only that many of the largest values of a row; None: the
        directory's setting. Other options and exceptions: see :meth:`Embedder.encode`. A model
        with weights for queries takes texts for the directory's default, queries or documents.
        """
        options = (prompt, prompt_name, max_active_dims, batch_tokens, on_truncation)
        return self._encode(texts, self.default_route, *options)

    def encode_queries(
        self,
        texts: str | Iterable[str],
        *,
        max_active_dims: int | None = None,
        batch_tokens: int | None = None,
        on_truncation: OnTruncation = "warn",
    ) -> SparseVectors:
        """Embed queries with the prompt ``query``. Options and exceptions: see :meth:`encode`."""
        options = (None, "query", max_active_dims, batch_tokens, on_truncation)
        return self._encode(texts, "query", *options)

    def encode_documents(
        self,
        texts: str | Iterable[str],
        *,
        max_active_dims: int | None = None,
        batch_tokens: int | None = None,
        on_truncation: OnTruncation = "warn",
    ) -> SparseVectors:
        """Embed documents with the prompt ``document``. Options: see :meth:`encode`."""
        options = (None, "document", max_active_dims, batch_tokens, on_truncation)
        return self._encode(texts, "document", *options)

    def _encode(
        self,
        texts: str | Iterable[str],
        route: Route,
        prompt: str | None,
        prompt_name: str | None,
        max_active_dims: int | None,
        batch_tokens: int | None,
        on_truncation: OnTruncation,
    ) -> SparseVectors:
        settings = self.settings
        prefix = resolve_prompt(prompt, prompt_name, settings.prompts, settings.default_prompt_name)
        if max_active_dims is None:
            max_active_dims = settings.max_active_dims
        elif isinstance(max_active_dims, bool) or max_active_dims < 1:
            raise InputError(
                f"max_active_dims must be a positive whole number, got {max_active_dims!r}"
            )
        if route == "query" and self.query_weights is not None:
            return _weigh(self.query_weights, texts, prefix, max_active_dims, on_truncation)
        engine = self.engine
        vocab_size = engine.spec.embedding.vocab_size
        budget = resolve_batch_tokens(batch_tokens, max(1, 4 * WIDEST_BYTES // (4 * vocab_size)))
        parts: list[SparseVectors] = []
        check_on_truncation(on_truncation)
        notice = TruncationNotice(on_truncation, limit=self.max_seq_length)
        tokenized = tokenized_windows(
            self.tokenizer,
            open_texts(texts).rows,
            prompt=prefix,
            num_prompt_tokens=0,
            max_length=self.max_seq_length,
            num_threads=engine.num_threads,
            notice=notice,
        )
        compute = partial(engine.vocabulary, pooling=self.pooling, activation=self.activation)
        for window in tokenized:
            encoding, first_row = window.encoding, window.first_row
            found: list[Any] = [None] * len(encoding)
            for rows, weights_BV in compute_batches(
                *(engine, TokenRows.of(encoding), compute),
                batch_tokens=budget,
                limit=self.memory_limit,
                numbers=first_row + np.arange(len(encoding)),
            ):
                for row, weights_V in zip(rows, weights_BV, strict=True):
                    found[row] = _active(weights_V, max_active_dims, first_row + int(row))
            parts.append(_join(found, vocab_size))
        notice.warn()
        return _concatenate(parts, vocab_size)

    def tokens(self, vectors: SparseVectors, number: int) -> list[tuple[str, float]]:
        """Return the tokens of a row with their weights, the largest weight first."""
        indices, values = vectors.row(number)
        order = np.argsort(-values, kind="stable")
        return [(str(self.tokenizer.id_to_token(int(indices[i]))), float(values[i])) for i in order]


def _active(
    weights_V: np.ndarray[Any, np.dtype[np.float32]], most: int | None, row: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    if not np.isfinite(weights_V).all():
        raise NonFiniteVectorError(
            f"the weights of text {row} are NaN or infinite: the model's numbers overflow or are "
            "damaged",
            rows=[row],
        )
    return _largest(np.flatnonzero(weights_V), weights_V, most)


def _largest(
    indices: np.ndarray[Any, Any],
    weights_V: np.ndarray[Any, np.dtype[np.float32]],
    most: int | None,
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    if most is not None and len(indices) > most:
        best = np.argsort(-weights_V[indices], kind="stable")[:most]
        indices = np.sort(indices[best])
    return indices.astype(np.int32), weights_V[indices]


def _weigh(
    table: TokenWeights,
    texts: str | Iterable[str],
    prefix: str,
    most: int | None,
    on_truncation: OnTruncation,
) -> SparseVectors:
    """Return the weight of each token that a text has, however often."""
    check_on_truncation(on_truncation)
    notice = TruncationNotice(on_truncation, limit=table.max_length)
    dimension, parts, first_row = len(table.weights_V), [], 0
    for window in windows(open_texts(texts).rows, len):
        encoding = table.tokenizer.encode_batch(
            [prefix + text for text in window] if prefix else window,
            max_length=table.max_length,
            add_special_tokens=False,
        )
        notice.observe(np.asarray(encoding.truncated), first_row)
        first_row += len(window)
        rows = []
        for start, end in itertools.pairwise(encoding.cu_seqlens):
            found = np.unique(encoding.ids[start:end])
            present = found[table.weights_V[found] != 0]
            rows.append(_largest(present, table.weights_V, most))
        parts.append(_join(rows, dimension))
    notice.warn()
    return _concatenate(parts, dimension)


def _join(rows: list[tuple[Any, Any]], dimension: int) -> SparseVectors:
    lengths = [len(indices) for indices, _ in rows]
    return SparseVectors(
        indptr=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        indices=np.concatenate([np.zeros(0, np.int32), *(indices for indices, _ in rows)]),
        values=np.concatenate([np.zeros(0, np.float32), *(values for _, values in rows)]),
        dimension=dimension,
    )


def _concatenate(parts: list[SparseVectors], dimension: int) -> SparseVectors:
    if len(parts) == 1:
        return parts[0]
    return _join([part.row(number) for part in parts for number in range(len(part))], dimension)


def _read_pooling(folder: Path) -> dict[str, Any]:
    config = read_value(folder / "config.json")
    config.only_keys(_POOLING_KEYS)
    names = {"pooling_strategy": "pooling", "activation_function": "activation"}
    return {names[key]: value for key, value in config.object().items() if key in names}


def _read_query_weights(opened: ModelDirectory) -> TokenWeights | None:
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
