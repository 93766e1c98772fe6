"""Late interaction (ColBERT): one projected vector per token of queries and documents."""

from __future__ import annotations

import hashlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from encoder_engine.embedding.directory.json_files import read_value
from encoder_engine.embedding.directory.opening import open_directory
from encoder_engine.embedding.directory.recipe import PoolingRecipe
from encoder_engine.embedding.embedder import Embedder
from encoder_engine.embedding.engines.choosing import EngineRequest, load_encoder
from encoder_engine.embedding.jobs.keywords import run_over_files
from encoder_engine.embedding.options import EncodeCall
from encoder_engine.embedding.parts import Loading
from encoder_engine.embedding.steps.token_vectors import (
    TokenVectors,
    embed_token_window,
    embed_tokens,
    max_similarity,
)
from encoder_engine.embedding.steps.window import ResultWindow
from encoder_engine.errors import CheckpointFileError, ConfigError, UnsupportedFeatureError
from encoder_engine.families.checkpoints.arrays import widen
from encoder_engine.families.checkpoints.files import open_tensors, resolve_directory
from encoder_engine.json_values import JsonValue

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path
    from typing import Unpack

    import torch
    from torch import Tensor

    from encoder_engine.embedding.dataset.run import DatasetSummary
    from encoder_engine.embedding.engines.engine import EngineChoice, VectorEngine, Vectors
    from encoder_engine.embedding.jobs.keywords import JobKeywords
    from encoder_engine.embedding.options import EncodeOptions, OnTruncation
    from encoder_engine.embedding.steps.window import TokenizedWindow
    from encoder_engine.families.checkpoints.files import HubKeywords
    from encoder_engine.text import Tokenizer

__all__ = ["MultiVectorEmbedder"]

_DENSE_KEYS = (
    "in_features",
    "out_features",
    "bias",
    "activation_function",
    "module_input_name",
    "module_output_name",
    "use_residual",
)
_MASK_KEYS = ("skiplist_words", "skiplist_tasks", "keep_only_token_ids")
TOKENS = "token_embeddings"


class MultiVectorEmbedder:
    """Embeds queries and documents token by token, as a ``MultiVectorEncoder`` would.

    projection_ND: projects the encoder's D features to N, without a bias; kept as float32.
    skipped: ids of tokens that documents leave out.

    Queries begin with the embedder's prompt ``query``, documents with ``document``. Compare the
    vectors by :func:`max_similarity`.
    """

    def __init__(
        self,
        embedder: Embedder,
        projection_ND: Vectors | Tensor | None = None,
        *,
        skipped: Iterable[int] = (),
        normalized: bool = True,
    ) -> None:
        width = embedder.engine.spec.width
        if projection_ND is not None and projection_ND.shape[1:] != (width,):
            raise ConfigError(
                f"the projection is {list(projection_ND.shape)}, the encoder computes {width} "
                "features; the files belong to different models"
            )
        self.embedder = embedder
        self.projection_ND = None if projection_ND is None else _as_array(projection_ND)
        self.skipped = frozenset(skipped)
        self.normalized = normalized
        # None where the parts were put together in memory.
        self.loading: Loading | None = None

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike[str],
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        quantization: str | None = None,
        *,
        num_threads: int | None = None,
        engine: EngineChoice = "auto",
        **hub: Unpack[HubKeywords],
    ) -> Self:
        """Load a MultiVectorEncoder's directory: Transformer, Dense, MultiVectorMask, Normalize.

        Files are first compared with the ``SHA256SUMS`` of the directory and of its modules, if
        there are any. Raises :class:`UnsupportedFeatureError` for queries padded with mask tokens
        (query expansion) and for other modules. Options and other exceptions: see
        :meth:`Embedder.from_pretrained`; int8 leaves the projection as it is.
        """
        kinds = ("Transformer", "Dense", "MultiVectorMask", "Normalize")
        directory = resolve_directory(path_or_hub_id, **hub)
        opened = open_directory(directory, "MultiVectorEncoder", kinds, plain=False)
        _, dense, mask, *norms = opened.modules
        folder, tokenizer = opened.encoder_folder, opened.read_tokenizer()
        request = EngineRequest.of(engine, device, dtype, quantization, num_threads)
        encoder = load_encoder(folder, request)
        recipe = PoolingRecipe(
            encoder_directory=folder,
            pooling=("mean",),
            max_seq_length=opened.max_seq_length,
            lowercase=opened.transformer.lowercase,
            prompts=opened.settings.prompts,
            default_prompt_name=opened.settings.default_prompt_name,
        )
        embedder = cls(
            Embedder(encoder, tokenizer, recipe),
            _read_projection(dense.folder),
            skipped=_read_skipped(mask.folder, tokenizer),
            normalized=bool([_check_normalize(norm.folder) for norm in norms]),
        )
        embedder.loading = Loading(
            path=str(directory),
            dtype=request.dtype,
            quantization=request.quantization,
            pooling=None,
            max_seq_length=None,
            engine=embedder.embedder.engine.name,
        )
        return embedder

    @property
    def dimension(self) -> int:
        """Features of a token's vector."""
        if self.projection_ND is None:
            return self.embedder.engine.spec.width
        return len(self.projection_ND)

    def encode_queries(
        self,
        texts: str | Iterable[str],
        *,
        batch_tokens: int | None = None,
        on_truncation: OnTruncation = "warn",
    ) -> TokenVectors:
        """Embed queries. Options and exceptions: see :meth:`Embedder.encode`."""
        return self._encode(texts, "query", batch_tokens, on_truncation)

    def encode_documents(
        self,
        texts: str | Iterable[str],
        *,
        batch_tokens: int | None = None,
        on_truncation: OnTruncation = "warn",
    ) -> TokenVectors:
        """Embed documents without the skipped tokens. Options: see :meth:`Embedder.encode`."""
        found = self._encode(texts, "document", batch_tokens, on_truncation)
        return found.without(self.skipped) if self.skipped else found

    def encode_query(self, texts: str | Iterable[str], **options: Any) -> TokenVectors:
        """Embed queries: :meth:`encode_queries`, under its name in other libraries."""
        return self.encode_queries(texts, **options)

    def encode_document(self, texts: str | Iterable[str], **options: Any) -> TokenVectors:
        """Embed documents: :meth:`encode_documents`, under its name in other libraries."""
        return self.encode_documents(texts, **options)

    def similarity(self, queries: TokenVectors, documents: TokenVectors) -> Vectors:
        """Score documents for queries by :func:`max_similarity`: float32 [Q, N]."""
        return max_similarity(queries, documents)

    def encode_dataset(
        self,
        inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        output: str | os.PathLike[str],
        *,
        kind: Literal["document", "query"] = "document",
        on_truncation: Literal["ignore", "error"] = "ignore",
        batch_tokens: int | None = None,
        **job: Unpack[JobKeywords],
    ) -> DatasetSummary:
        """Embed files into a table, or a folder of shards, of ``token_ids`` and ``embeddings``.

        ``load_vectors(output).tokens`` reads them. ``kind``: what the texts are. Other options: see
        :meth:`Embedder.encode_dataset`.
        """
        call = EncodeCall(
            prompt_name=kind,
            normalize_embeddings=self.normalized,
            batch_tokens=batch_tokens,
            on_truncation=on_truncation,
        )
        return run_over_files(
            *(TokensJob(self, kind), inputs, output), task="tokens", call=call, job=job
        )

    def _encode(
        self,
        texts: str | Iterable[str],
        kind: str,
        batch_tokens: int | None,
        on_truncation: OnTruncation,
    ) -> TokenVectors:
        call = EncodeCall(
            prompt_name=kind,
            normalize_embeddings=self.normalized,
            batch_tokens=batch_tokens,
            on_truncation=on_truncation,
        )
        return embed_tokens(
            *(self.embedder, texts, self.embedder.resolve(call)), projection_ND=self.projection_ND
        )


class TokensJob:
    """A :class:`JobModel` that embeds the tokens of documents or of queries."""

    def __init__(self, model: MultiVectorEmbedder, kind: Literal["document", "query"]) -> None:
        self._model, self._kind = model, kind

    @property
    def engine(self) -> VectorEngine:
        """The engine of the encoder."""
        return self._model.embedder.engine

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        return self._model.embedder.tokenizer

    @property
    def max_seq_length(self) -> int | None:
        """Tokens kept of each text."""
        return self._model.embedder.max_seq_length

    @property
    def name(self) -> str:
        """The path that the model was loaded from."""
        return self._model.loading.path if self._model.loading else self._model.embedder.name

    def resolve(self, call: EncodeCall) -> EncodeOptions:
        """Check the options of a call and fill in the directory's settings for those not given."""
        return self._model.embedder.resolve(call)

    def stored_dimension(self, options: EncodeOptions) -> int:  # noqa: ARG002
        """Return the features of a token's vector."""
        return self._model.dimension

    def describe_model(self) -> dict[str, Any]:
        """Return what a plan records of the projection and of the tokens that are left out."""
        projection = self._model.projection_ND
        digest = None if projection is None else hashlib.sha256(projection.tobytes()).hexdigest()
        skipped = sorted(self._model.skipped) if self._kind == "document" else []
        return {"pooling": [], "layers": [], "projection": digest, "skipped": skipped}

    def describe_options(self, options: EncodeOptions) -> dict[str, Any]:
        """Return what a plan records of the options."""
        return options.describe() | {"dimension": self._model.dimension}

    def tokenize_window(
        self, texts: list[str], first_row: int, options: EncodeOptions
    ) -> TokenizedWindow:
        """Tokenize a window of texts."""
        return self._model.embedder.tokenize_window(texts, first_row, options)

    def encode_window(self, tokenized: TokenizedWindow, options: EncodeOptions) -> ResultWindow:
        """Embed the tokens of a tokenized window."""
        start, model = time.perf_counter(), self._model
        found = embed_token_window(
            *(model.embedder, tokenized, options), projection_ND=model.projection_ND
        )
        if self._kind == "document" and model.skipped:
            found = found.without(model.skipped)
        return ResultWindow.of(found, tokenized, time.perf_counter() - start)

    def reload(self) -> Callable[[str, int], TokensJob] | None:
        """Return a function that loads the model in another process; None without files."""
        if self._model.loading is None:
            return None
        return partial(_load_again, type(self._model), self._model.loading, self._kind)


def _load_again(
    model_type: type[MultiVectorEmbedder],
    loading: Loading,
    kind: Literal["document", "query"],
    device: str,
    num_threads: int,
) -> TokensJob:
    model = model_type.from_pretrained(
        *(loading.path, device, loading.dtype, loading.quantization),
        num_threads=num_threads,
        engine=loading.engine,  # type: ignore[arg-type]
    )
    return TokensJob(model, kind)


def _as_array(projection_ND: Vectors | Tensor) -> Vectors:
    """Return a projection as a contiguous float32 array; a tensor is copied from its device."""
    plain: Any = projection_ND
    if not isinstance(projection_ND, np.ndarray):
        plain = projection_ND.detach().float().cpu().numpy()
    return np.ascontiguousarray(plain, dtype=np.float32)


def _read_projection(folder: Path) -> Vectors:
    config = read_value(folder / "config.json")
    config.only_keys(_DENSE_KEYS)
    wanted = {
        "activation_function": "torch.nn.modules.linear.Identity",
        "module_input_name": TOKENS,
        "module_output_name": TOKENS,
    }
    for key, value in wanted.items():
        stated = config.get(key)
        if stated.value != value:
            raise UnsupportedFeatureError(f"{stated.where} is {stated.value!r}, not {value!r}")
    for key in ("bias", "use_residual"):
        if config.get(key).boolean(default=False):
            raise UnsupportedFeatureError(f"{config.where} sets {key}, which is not implemented")
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise CheckpointFileError(f"{folder} has no model.safetensors")
    shape = [
        config.get(key).optional(JsonValue.positive) for key in ("out_features", "in_features")
    ]
    with open_tensors(folder) as tensors:
        found = {name: list(tensor.shape) for name, tensor in tensors.items()}
        if found != {"linear.weight": shape}:
            raise CheckpointFileError(f"{weights} holds {found}, expected linear.weight {shape}")
        return widen(tensors["linear.weight"].read())


def _read_skipped(folder: Path, tokenizer: Tokenizer) -> set[int]:
    """Read the ids of the words that documents leave out; a word that is no token has no id."""
    path = folder / "config.json"
    if not path.is_file():
        return set()
    config = read_value(path)
    config.only_keys(_MASK_KEYS)
    listed = config.get("skiplist_words")
    words = [word.string() for word in listed.items()] if listed.value else []
    if words and config.object().get("skiplist_tasks", ["document"]) != ["document"]:
        raise UnsupportedFeatureError(f"{path}: skiplist_tasks must be ['document']")
    if not config.get("keep_only_token_ids").is_null:
        raise UnsupportedFeatureError(f"{path} sets keep_only_token_ids, which is not implemented")
    found = {tokenizer.token_to_id(word) for word in words}
    return {number for number in found if number is not None}


def _check_normalize(folder: Path) -> bool:
    path = folder / "config.json"
    names = ("module_input_name", "module_output_name")
    config = read_value(path) if path.is_file() else None
    if config is not None:
        config.only_keys(names)
    if config is None or any(config.get(name).value != TOKENS for name in names):
        raise UnsupportedFeatureError(f"{path}: Normalize must read and write {TOKENS}")
    return True
