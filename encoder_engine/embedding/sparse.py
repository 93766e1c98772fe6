"""Sparse vectors over the vocabulary (SPLADE): a weight for each token of the vocabulary.

Dimensions: T packed tokens, B texts, V vocabulary.
"""

from __future__ import annotations

import time
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, get_args, overload

import numpy as np

from encoder_engine.embedding.directory.modules import SPARSE_ORDER
from encoder_engine.embedding.directory.opening import open_directory
from encoder_engine.embedding.directory.recipe import Settings
from encoder_engine.embedding.directory.sparse_pooling import read_sparse_pooling
from encoder_engine.embedding.engines.choosing import (
    EngineRequest,
    load_masked_lm,
    torch_engine,
    vocabulary_engine,
)
from encoder_engine.embedding.engines.engine import SparseActivation, SparsePooling
from encoder_engine.embedding.jobs.keywords import run_over_files
from encoder_engine.embedding.jobs.pickling import PickledModel, load_again
from encoder_engine.embedding.library_keywords import (
    SparseKeywords,
    naming,
    resolve_sparse_output,
)
from encoder_engine.embedding.limits import WIDEST_BYTES, MemoryLimit
from encoder_engine.embedding.options import (
    check_on_truncation,
    check_positive,
    resolve_batch_tokens,
    resolve_prompt,
)
from encoder_engine.embedding.parts import Loading, token_limit
from encoder_engine.embedding.queries import TaskMethods
from encoder_engine.embedding.saving.modules import open_target
from encoder_engine.embedding.saving.other_directories import encoder_folder, write_splade_settings
from encoder_engine.embedding.steps.batch_loop import compute_batches
from encoder_engine.embedding.steps.calls import (
    SparseCall,
    SparseCallKeywords,
    SparseOptions,
)
from encoder_engine.embedding.steps.progress import progress_bar
from encoder_engine.embedding.steps.texts import open_texts
from encoder_engine.embedding.steps.truncation import TruncationNotice
from encoder_engine.embedding.steps.window import (
    ResultWindow,
    TokenizedWindow,
    tokenize_texts,
    tokenized_windows,
)
from encoder_engine.embedding.token_weights import (
    TokenWeights,
    join_rows,
    keep_largest,
    read_query_weights,
    weigh_tokens,
)
from encoder_engine.errors import (
    ConfigError,
    InputError,
    NonFiniteVectorError,
)
from encoder_engine.families.checkpoints.files import fetching, hub_of_base, resolve_directory
from encoder_engine.packing.token_rows import TokenRows
from encoder_engine.vectors.sparse_vectors import SparseVectors, join_sparse, sparse_similarities

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Unpack

    import torch
    from torch import Tensor

    from encoder_engine.embedding.dataset.run import DatasetSummary
    from encoder_engine.embedding.engines.engine import EngineChoice, VocabularyEngine
    from encoder_engine.embedding.jobs.keywords import JobKeywords
    from encoder_engine.embedding.steps.calls import Route
    from encoder_engine.families.checkpoints.files import HubKeywords
    from encoder_engine.inference import CompiledEncoder
    from encoder_engine.models import MaskedLM
    from encoder_engine.text import Tokenizer

__all__ = ["SparseEmbedder", "SparseVectors", "TokenWeights"]


class SparseEncodeKeywords(SparseCallKeywords, SparseKeywords, total=False):
    """The keywords of :meth:`SparseEmbedder.encode`: its own, and those of the library."""


class SparseEmbedder(PickledModel, TaskMethods):
    """Turns texts into sparse vectors as a ``SparseEncoder`` would with the same directory.

    A token's weight is ``log(1 + relu(logit))`` of the masked-language model, pooled over the
    text's positions (Formal et al. 2021).

    pooling: ``"max"`` or ``"sum"`` over the positions.
    activation: ``"relu"``, or ``"log1p_relu"``, which takes the logarithm twice.
    query_weights: a query's tokens have these weights, and no model is run for queries; None: a
        query is encoded as a document is.
    default_route: with ``query_weights``, whether :meth:`encode` treats texts as queries or
    documents.
    """

    engine: VocabularyEngine
    call_type = SparseCall

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
        tokenizer = tokenizer.fitted_to(spec.embedding.vocab_size)
        for what, choice, known in (
            ("pooling", pooling, get_args(SparsePooling)),
            ("activation", activation, get_args(SparseActivation)),
        ):
            if choice not in known:
                raise InputError(f"{what} must be one of {', '.join(known)}, got {choice!r}")
        self.memory_limit = MemoryLimit()
        self.tokenizer = tokenizer
        self.max_seq_length = token_limit(
            max_seq_length, spec.max_length, least=len(tokenizer.encode("")) + 1
        )
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
        self._path: str | None = None
        self._reload: Callable[..., SparseEmbedder] | None = None

    @classmethod
    @fetching
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike[str],
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        quantization: str | None = None,
        *,
        pooling: SparsePooling | None = None,
        max_seq_length: int | None = None,
        num_threads: int | None = None,
        engine: EngineChoice = "auto",
        **hub: Unpack[HubKeywords],
    ) -> Self:
        """Load a SparseEncoder's directory, or any masked-language model.

        ``pooling`` None: the directory's, or by default ``"max"``. ``quantization="int8"`` rounds
        the blocks' dense layers, not the head, on a CPU. Other options and exceptions: see
        :meth:`Embedder.from_pretrained`.
        """
        opened = open_directory(
            *(resolve_directory(path_or_hub_id, **hub), "SparseEncoder", SPARSE_ORDER),
            task="fill-mask",
            reads="logits",
        )
        stated = read_sparse_pooling(opened.modules[1].folder) if opened.modules else {}
        if pooling is not None:
            stated["pooling"] = pooling
        request = EngineRequest.of(engine, device, dtype, quantization, num_threads)
        embedder = cls(
            load_masked_lm(opened.encoder_folder, request),
            opened.read_tokenizer(),
            max_seq_length=opened.max_seq_length if max_seq_length is None else max_seq_length,
            settings=opened.settings,
            query_weights=read_query_weights(opened),
            default_route="query" if opened.default_route == "query" else "document",
            **stated,
        )
        embedder._path = str(opened.directory)
        options = {**request.options(embedder.engine.name), "pooling": pooling, **hub_of_base()}
        loading = Loading(path=embedder._path, options=options)
        embedder._reload = partial(load_again, cls, loading)
        return embedder

    @overload
    def encode(
        self, texts: str | Iterable[str], **options: Unpack[SparseEncodeKeywords]
    ) -> SparseVectors: ...

    @overload
    def encode(
        self,
        texts: str | Iterable[str],
        *,
        convert_to_tensor: bool | None = ...,
        convert_to_sparse_tensor: bool | None = ...,
        **options: Unpack[SparseEncodeKeywords],
    ) -> SparseVectors | Tensor: ...

    @naming("texts")
    def encode(
        self,
        texts: str | Iterable[str],
        *,
        convert_to_tensor: bool | None = None,
        convert_to_sparse_tensor: bool | None = None,
        **options: Unpack[SparseEncodeKeywords],
    ) -> SparseVectors | Tensor:
        """Embed texts: one row each, in the order given; one row for a single ``str``.

        max_active_dims: keeps only that many of the largest values of a row; None: the directory's
            setting.
        task: ``"query"`` or ``"document"``, of a model with weights for queries; None: the
            directory's default.
        convert_to_tensor: True returns a sparse tensor of PyTorch on the CPU, [N, V], or [V] for a
            single ``str``.
        convert_to_sparse_tensor: False returns it dense.

        ``prompt``, ``prompt_name``, ``batch_tokens``, ``batch_size``, ``on_truncation``,
        ``show_progress_bar`` and exceptions: see :meth:`Embedder.encode`; other keywords of
        sentence-transformers: see :class:`SparseKeywords`.
        """
        form = resolve_sparse_output(
            *("encode", options, SparseEncodeKeywords),
            convert_to_tensor=convert_to_tensor,
            convert_to_sparse_tensor=convert_to_sparse_tensor,
            device=self.engine.device,
        )
        engine = None if form == "vectors" else torch_engine("convert_to_tensor=True")
        found = self._encode(texts, options)
        if engine is None:
            return found
        tensor: Tensor = engine.as_sparse_tensor(
            found.indptr, found.indices, found.values, found.dimension
        )
        tensor = tensor.to_dense() if form == "dense" else tensor
        return tensor[0] if isinstance(texts, str) else tensor

    def _encode(self, texts: str | Iterable[str], keywords: SparseEncodeKeywords) -> SparseVectors:
        given: dict[str, Any] = {"on_truncation": "warn", **keywords}
        own = {f.name: given[f.name] for f in fields(SparseCall) if f.name in given}
        options = self.resolve(SparseCall(route=given.get("task"), **own))
        on_truncation = options.on_truncation
        if options.route == "query" and self.query_weights is not None:
            most = options.max_active_dims
            return weigh_tokens(self.query_weights, texts, options.prompt, most, on_truncation)
        opened = open_texts(texts)
        notice = TruncationNotice(on_truncation, limit=self.max_seq_length)
        parts = []
        with progress_bar(opened.count, shown=bool(given.get("show_progress_bar"))) as advance:
            for window in tokenized_windows(
                self.tokenizer,
                opened.rows,
                prompt=options.prompt,
                num_prompt_tokens=0,
                max_length=self.max_seq_length,
                num_threads=self.engine.num_threads,
                notice=notice,
            ):
                parts.append(self._rows(window, options))
                advance(len(parts[-1]))
        notice.warn()
        return join_sparse(parts, self.dimension)

    def similarity(
        self, first: SparseVectors, second: SparseVectors
    ) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Compare all rows by the directory's similarity or inner products: float32 [N, M].

        Raises :class:`InputError` for other values than :class:`SparseVectors`.
        """
        return sparse_similarities(first, second, self.settings.similarity)

    def encode_dataset(
        self,
        inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        output: str | os.PathLike[str],
        *,
        on_truncation: Literal["ignore", "error"] = "ignore",
        prompt: str | None = None,
        prompt_name: str | None = None,
        max_active_dims: int | None = None,
        batch_tokens: int | None = None,
        **job: Unpack[JobKeywords],
    ) -> DatasetSummary:
        """Embed files into a table, or a folder of shards, of ``indices`` and ``values``.

        ``load_vectors(output).sparse`` reads them. Texts are documents, whatever :meth:`encode`
        takes them for. Options: see :meth:`Embedder.encode_dataset` and :meth:`encode`.
        """
        call = SparseCall(
            prompt=prompt,
            prompt_name=prompt_name,
            max_active_dims=max_active_dims,
            batch_tokens=batch_tokens,
            on_truncation=on_truncation,
        )
        return run_over_files(self, inputs, output, task="sparse", call=call, job=job)

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write the directory of a ``SparseEncoder``: masked LM, tokenizer, pooling, prompts, card.

        A model with weights for queries gets a Router. Exceptions: see
        :meth:`Embedder.save_pretrained`; :class:`UnsupportedFeatureError` for a model in int8.
        """
        folder = open_target(directory, self._path, of_head=self.engine.quantization)
        encoder = encoder_folder(folder, self.query_weights)
        self.engine.save_encoder(encoder)
        self.tokenizer.save(encoder)
        write_splade_settings(
            *(folder, self.engine.spec),
            settings=self.settings,
            max_seq_length=self.max_seq_length,
            pooling=self.pooling,
            activation=self.activation,
            queries=self.query_weights,
            default_route=self.default_route,
            base_model=self._path,
        )

    @property
    def prompts(self) -> Mapping[str, str]:
        """The named prompts of the directory."""
        return self.settings.prompts

    @property
    def dimension(self) -> int:
        """The vocabulary size, V."""
        return self.engine.spec.embedding.vocab_size

    @property
    def name(self) -> str:
        """The path that the model was loaded from."""
        return self._path or "memory"

    def resolve(self, call: SparseCall) -> SparseOptions:
        """Check the options of a call and fill in the directory's settings for those not given."""
        settings, most = self.settings, call.max_active_dims
        if call.route not in (None, "query", "document"):
            raise InputError(f"task must be 'query' or 'document', got {call.route!r}")
        check_on_truncation(call.on_truncation)
        if most is not None:
            check_positive(most, "max_active_dims")
        if call.batch_size is not None:
            check_positive(call.batch_size, "batch_size")
        default_tokens = max(1, 4 * WIDEST_BYTES // (4 * self.dimension))
        return SparseOptions(
            prompt=resolve_prompt(
                *(call.prompt, call.prompt_name),
                *(settings.prompts, settings.default_prompt_name),
            ),
            max_active_dims=settings.max_active_dims if most is None else most,
            batch_tokens=resolve_batch_tokens(call.batch_tokens, default_tokens),
            batch_size=call.batch_size,
            on_truncation=call.on_truncation,
            dimension=self.dimension,
            route=self.default_route if call.route is None else call.route,
        )

    def stored_dimension(self, options: SparseOptions) -> int:
        """Return the vocabulary size."""
        return options.dimension

    def describe_model(self) -> dict[str, Any]:
        """Return what a plan records of the pooling."""
        return {
            "pooling": [],
            "layers": [],
            "sparse_pooling": self.pooling,
            "sparse_activation": self.activation,
        }

    def describe_options(self, options: SparseOptions) -> dict[str, Any]:
        """Return what a plan records of the options."""
        return options.describe()

    def tokenize_window(
        self, texts: list[str], first_row: int, options: SparseOptions
    ) -> TokenizedWindow:
        """Tokenize a window of texts."""
        return tokenize_texts(
            self.tokenizer,
            texts,
            first_row,
            prompt=options.prompt,
            num_prompt_tokens=0,
            max_length=self.max_seq_length,
            num_threads=self.engine.num_threads,
            notice=TruncationNotice(options.on_truncation, limit=self.max_seq_length),
        )

    def encode_window(self, tokenized: TokenizedWindow, options: SparseOptions) -> ResultWindow:
        """Compute the sparse vectors of a tokenized window."""
        start = time.perf_counter()
        rows = self._rows(tokenized, options)
        return ResultWindow.of(rows, tokenized, time.perf_counter() - start)

    def reload(self) -> Callable[[str, int], SparseEmbedder] | None:
        """Return a function that loads the model in another process; None without files."""
        if self._reload is None:
            return None
        return partial(self._reload, max_seq_length=self.max_seq_length, pooling=self.pooling)

    def _rows(self, window: TokenizedWindow, options: SparseOptions) -> SparseVectors:
        encoding, first_row = window.encoding, window.first_row
        compute = partial(self.engine.vocabulary, pooling=self.pooling, activation=self.activation)
        found: list[Any] = [None] * len(encoding)
        for rows, weights_BV in compute_batches(
            *(self.engine, TokenRows.of(encoding), compute),
            batch_tokens=options.batch_tokens,
            batch_size=options.batch_size,
            limit=self.memory_limit,
            numbers=first_row + np.arange(len(encoding)),
        ):
            for row, weights_V in zip(rows, weights_BV, strict=True):
                found[row] = _active(weights_V, options.max_active_dims, first_row + int(row))
        return join_rows(found, self.dimension)

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
    return keep_largest(np.flatnonzero(weights_V), weights_V, most)
