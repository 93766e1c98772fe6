"""Sparse embeddings (SPLADE): a weight for each token of the vocabulary, mostly 0.

Dimensions: T packed tokens, B texts, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, get_args, overload

import numpy as np

from encoder_engine.embedding.library_keywords import (
    SparseKeywords,
    check_names,
    naming,
    resolve_sparse_output,
)
from encoder_engine.embedding.queries import TaskMethods
from encoder_engine.embedding.saving.modules import open_target
from encoder_engine.embedding.saving.other_directories import encoder_folder, write_splade_settings
from encoder_engine.engine.choosing import EngineRequest, engine_of, load_model, torch_engine
from encoder_engine.engine.limits import MemoryLimit
from encoder_engine.engine.outputs import SparseActivation, SparsePooling
from encoder_engine.errors import ConfigError, InputError
from encoder_engine.families.checkpoints.files import fetching, resolve_directory
from encoder_engine.jobs.keywords import JobKeywords, run_over_files
from encoder_engine.kinds.options import CallKeywords, OnTruncation, Route, token_limit
from encoder_engine.kinds.sparse import Sparse
from encoder_engine.kinds.texts import open_texts
from encoder_engine.opening.modules import SPARSE_ORDER
from encoder_engine.opening.opening import open_directory
from encoder_engine.opening.recipe import Settings
from encoder_engine.opening.router import TokenWeights, read_query_weights
from encoder_engine.opening.stack import read_sparse_pooling
from encoder_engine.vectors.sparse_vectors import SparseVectors, sparse_similarities

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping
    from typing import Unpack

    import torch
    from torch import Tensor

    from encoder_engine.engine.protocol import EncoderEngine, EngineChoice
    from encoder_engine.families.checkpoints.files import HubKeywords
    from encoder_engine.inference import CompiledEncoder
    from encoder_engine.jobs.keywords import Paths
    from encoder_engine.jobs.run import DatasetSummary
    from encoder_engine.kinds.kind import Kind
    from encoder_engine.models import MaskedLM
    from encoder_engine.text import Tokenizer

__all__ = ["SparseEmbedder", "SparseVectors", "TokenWeights"]


class SparseCallKeywords(CallKeywords, total=False):
    """The keyword arguments that :meth:`SparseEmbedder.encode` acts on, except the output's form.

    Those that it accepts only for sentence-transformers' callers: see :class:`SparseKeywords`.
    """

    max_active_dims: int | None
    on_truncation: OnTruncation
    task: Route | None
    show_progress_bar: bool | None


class SparseDatasetKeywords(CallKeywords, JobKeywords, total=False):
    """The keywords of :meth:`SparseEmbedder.encode_dataset`."""

    max_active_dims: int | None


class SparseEncodeKeywords(SparseCallKeywords, SparseKeywords, total=False):
    """The keywords of :meth:`SparseEmbedder.encode`: its own, and sentence-transformers'."""


class SparseEmbedder(TaskMethods):
    """Turns texts into sparse vectors as a ``SparseEncoder`` would with the same directory.

    A token's weight is ``log(1 + relu(logit))`` of the masked-language model, pooled over the
    text's positions (Formal et al. 2021).

    pooling: ``"max"`` or ``"sum"`` over the positions.
    activation: ``"relu"``, or ``"log1p_relu"``, which takes the logarithm twice.
    query_weights: a table of token weights that replaces the model for queries; None: queries are
    encoded like documents.
    default_route: with ``query_weights``, whether :meth:`encode` treats texts as queries or
    documents.

    Raises :class:`ConfigError` for ``query_weights`` of another vocabulary than the model's.
    """

    engine: EncoderEngine

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
        self.model, self.engine = model, engine_of(model)
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
            resolve_directory(path_or_hub_id, **hub),
            "SparseEncoder",
            SPARSE_ORDER,
            task="fill-mask",
            reads="logits",
        )
        stated = read_sparse_pooling(opened.modules[1].folder) if opened.modules else {}
        if pooling is not None:
            stated["pooling"] = pooling
        request = EngineRequest.of(engine, device, dtype, quantization, num_threads)
        embedder = cls(
            load_model(opened.encoder_folder, request, "masked-lm"),
            opened.read_tokenizer(),
            max_seq_length=opened.max_seq_length if max_seq_length is None else max_seq_length,
            settings=opened.settings,
            query_weights=read_query_weights(opened.routes),
            default_route="query" if opened.default_route == "query" else "document",
            **stated,
        )
        return embedder.loaded_from(opened.directory, request, pooling=pooling)

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

        max_active_dims: the number of largest values to keep in a row; None: the directory's
            setting.
        task: ``"query"`` or ``"document"``, for a model with weights for queries; None: the
            directory's default.
        convert_to_tensor: True returns a sparse tensor of PyTorch on the CPU, [N, V], or [V] for a
            single ``str``.
        convert_to_sparse_tensor: False returns a dense tensor.

        ``prompt``, ``prompt_name``, ``batch_tokens``, ``batch_size``, ``on_truncation``,
        ``show_progress_bar`` and exceptions: see :meth:`Embedder.encode`; other keywords of
        sentence-transformers: see :class:`SparseKeywords`.
        """
        form = resolve_sparse_output(
            "encode",
            options,
            SparseEncodeKeywords,
            convert_to_tensor=convert_to_tensor,
            convert_to_sparse_tensor=convert_to_sparse_tensor,
            device=self.engine.device,
        )
        engine = None if form == "vectors" else torch_engine("convert_to_tensor=True")
        given: dict[str, Any] = {"on_truncation": "warn", **options}
        own = {n: given[n] for n in SparseCallKeywords.__annotations__ if n in given}
        shown, route = bool(own.pop("show_progress_bar", False)), own.pop("task", None)
        kind, opened = self.kind, open_texts(texts)
        resolved = kind.resolve(route=route, **own)
        found: SparseVectors = kind.collect(opened.rows, resolved, count=opened.count, shown=shown)
        if engine is None:
            return found
        tensor: Tensor = engine.as_sparse_tensor(
            found.indptr, found.indices, found.values, found.dimension
        )
        tensor = tensor.to_dense() if form == "dense" else tensor
        return tensor[0] if isinstance(texts, str) else tensor

    def similarity(
        self, first: SparseVectors, second: SparseVectors
    ) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Compare all rows of ``first`` with all of ``second``: float32 [N, M].

        The similarity is the directory's; inner products where it states none. Raises
        :class:`InputError` for arguments that are not :class:`SparseVectors`.
        """
        return sparse_similarities(first, second, self.settings.similarity)

    def encode_dataset(
        self,
        inputs: Paths,
        output: str | os.PathLike[str],
        **options: Unpack[SparseDatasetKeywords],
    ) -> DatasetSummary:
        """Embed files into a table, or a folder of shards, of ``indices`` and ``values``.

        ``load_vectors(output).sparse`` reads them. Texts are embedded as documents, whatever the
        default of :meth:`encode` is. Options: see :meth:`Embedder.encode_dataset` and
        :meth:`encode`.
        """
        check_names("encode_dataset", options, SparseDatasetKeywords)
        return run_over_files(self.kind, inputs, output, options)

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write the directory of a ``SparseEncoder``: masked LM, tokenizer, pooling, prompts, card.

        A model with weights for queries gets a Router. Exceptions: see
        :meth:`Embedder.save_pretrained`; :class:`UnsupportedFeatureError` for a model in int8.
        """
        folder = open_target(directory, self.path, of_head=self.engine.quantization)
        encoder = encoder_folder(folder, self.query_weights)
        self.engine.save_encoder(encoder)
        self.tokenizer.save(encoder)
        write_splade_settings(
            folder,
            self.engine.spec,
            settings=self.settings,
            max_seq_length=self.max_seq_length,
            pooling=self.pooling,
            activation=self.activation,
            queries=self.query_weights,
            default_route=self.default_route,
            base_model=self.path,
        )

    @property
    def prompts(self) -> Mapping[str, str]:
        """The directory's prompts, by name."""
        return self.settings.prompts

    @property
    def dimension(self) -> int:
        """The vocabulary size, V."""
        return self.engine.spec.embedding.vocab_size

    @property
    def default_prompt_name(self) -> str | None:
        """The name of the prompt for calls that give no prompt."""
        return self.settings.default_prompt_name

    def kinds(self) -> dict[str, Kind]:
        """Return {"sparse": ...}: how sparse vectors are computed; see :meth:`Model.kinds`."""
        sparse = Sparse(
            self,
            pooling=self.pooling,
            activation=self.activation,
            query_weights=self.query_weights,
            max_active_dims=self.settings.max_active_dims,
            route=self.default_route,
        )
        return {"sparse": sparse}

    def changed_options(self) -> dict[str, Any]:
        """Return ``max_seq_length`` and ``pooling``, which are settable after loading.

        See :meth:`Model.changed_options`.
        """
        return {"max_seq_length": self.max_seq_length, "pooling": self.pooling}

    def tokens(self, vectors: SparseVectors, number: int) -> list[tuple[str, float]]:
        """Return the tokens of row ``number`` with their weights, the largest weight first."""
        indices, values = vectors.row(number)
        order = np.argsort(-values, kind="stable")
        return [(str(self.tokenizer.id_to_token(int(indices[i]))), float(values[i])) for i in order]
