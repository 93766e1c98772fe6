"""Embeds texts with the tokenizer, the encoder and the pooling of one model directory.

``kinds/kind.py`` is the loop over texts; ``kinds/dense.py`` defines the computation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from encoder_engine.embedding.library_keywords import check_names, naming
from encoder_engine.embedding.queries import DenseMethods
from encoder_engine.embedding.reading import read_parts
from encoder_engine.embedding.saving.sentence_directory import save_embedder
from encoder_engine.engine.choosing import EngineRequest, engine_of
from encoder_engine.engine.limits import MemoryLimit
from encoder_engine.errors import (
    ConfigError,
    DefaultPoolingWarning,
    InputError,
    UnsupportedFeatureError,
)
from encoder_engine.families.checkpoints.files import fetching, resolve_directory
from encoder_engine.kinds.dense import Dense, RoutedDense
from encoder_engine.kinds.long_texts import LongTexts
from encoder_engine.kinds.options import EncodeKeywords, smallest
from encoder_engine.kinds.texts import open_texts
from encoder_engine.kinds.tokens import Tokens
from encoder_engine.opening.opening import open_embedder
from encoder_engine.warn import warn_caller

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from typing import Unpack

    import torch

    from encoder_engine.engine.protocol import EncoderEngine, EngineChoice
    from encoder_engine.families.checkpoints.files import HubKeywords
    from encoder_engine.inference import CompiledEncoder
    from encoder_engine.kinds.kind import Kind
    from encoder_engine.kinds.long_texts import ChunkPooling
    from encoder_engine.kinds.options import OnTruncation, Route
    from encoder_engine.models import Encoder
    from encoder_engine.opening.opening import ModelDirectory
    from encoder_engine.opening.recipe import PoolingRecipe
    from encoder_engine.text import Tokenizer
    from encoder_engine.vectors.token_vectors import TokenVectors

__all__ = ["Embedder"]

Array = np.ndarray[Any, np.dtype[Any]]
# Numbers of layers, whose mean is taken; or their weights. 0: the embeddings; -1: the last layer.
Layers = Sequence[int] | Mapping[int, float]


class Embedder(DenseMethods):
    """Turns texts into vectors as sentence-transformers would with the same directory.

    An embedder is safe to call from several threads: a call changes no state, except that the
    encoder is put into evaluation mode, and that batches become smaller after one has exceeded the
    device's memory.

    queries: the embedder of queries, for a directory with a Router, where queries and documents
        have modules of their own. All other attributes, such as ``max_seq_length``, are then those
        of documents. None: queries and documents are embedded alike.
    default_route: with ``queries``, whether :meth:`encode` treats texts as queries or documents.

    ``encoder``, ``tokenizer`` and ``recipe`` must belong together. Raises :class:`ConfigError`
    where special tokens lie beyond the encoder's vocabulary, where the pooling was made for another
    width, or where ``max_seq_length`` leaves no room for a token. A text with another token beyond
    the vocabulary raises :class:`TextError` when it is embedded.
    """

    def __init__(
        self, encoder: CompiledEncoder | Encoder, tokenizer: Tokenizer, recipe: PoolingRecipe
    ) -> None:
        self.recipe = recipe
        self.encoder = encoder
        self.queries: DenseMethods | None = None
        self.default_route: Route = "document"
        spec = self.engine.spec
        recipe.check_width(spec.width)
        self.tokenizer = tokenizer.fitted_to(spec.embedding.vocab_size)
        self.memory_limit = MemoryLimit()
        self._max_seq_length = limit = smallest(recipe.max_seq_length, spec.max_length)
        if limit is not None and limit < self._least_length():
            raise ConfigError(
                f"{recipe.encoder_directory} limits texts to {limit} tokens, which leaves no room "
                f"beside the special tokens; set a limit of at least {self._least_length()} in "
                "the file, or pass max_seq_length="
            )

    @property
    def encoder(self) -> CompiledEncoder | Encoder:
        """The encoder, as it was passed or loaded; setting it makes a new engine."""
        return self._encoder

    @encoder.setter
    def encoder(self, encoder: CompiledEncoder | Encoder) -> None:
        self._encoder = encoder
        self.engine: EncoderEngine = engine_of(encoder, self.recipe.modules)

    @property
    def max_seq_length(self) -> int | None:
        """The most tokens of a text, special tokens included; None: no limit."""
        return self._max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        limit, least = self.engine.spec.max_length, self._least_length()
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(
                f"max_seq_length must be a whole number of at least {least}, got {value!r}"
            )
        if limit is not None and value > limit:
            raise InputError(f"max_seq_length is {value}, the model has {limit} positions")
        self._max_seq_length = value

    def _least_length(self) -> int:
        """Return the least useful ``max_seq_length``: the number of special tokens plus one."""
        return len(self.tokenizer.encode("")) + 1

    @property
    def dimension(self) -> int:
        """The number of features of a vector before ``truncate_dim``."""
        return self.recipe.modules.width(self.engine.spec.width * len(self.recipe.pooling))

    @property
    def prompts(self) -> Mapping[str, str]:
        """The directory's prompts, by name."""
        return self.recipe.prompts

    @property
    def default_prompt_name(self) -> str | None:
        """The name of the prompt for calls that give no prompt."""
        return self.recipe.default_prompt_name

    @property
    def stated_similarity(self) -> str | None:
        """The name of the similarity that the directory states, if any."""
        return self.recipe.similarity

    @property
    def name(self) -> str:
        """The path that the embedder was loaded from."""
        return self.path or str(self.recipe.encoder_directory)

    def kinds(self) -> dict[str, Kind]:
        """Return {"dense": ..., "tokens": ...}: how a vector per text or per token is computed.

        See :meth:`Model.kinds`.
        """
        dense = Dense(self, self.recipe)
        if self.queries is not None:
            dense = RoutedDense(
                self, self.recipe, queries=self.queries.kinds()["dense"], route=self.default_route
            )
        return {"dense": dense, "tokens": Tokens(self, layers=self.recipe.layers)}

    def changed_options(self) -> dict[str, Any]:
        """Return ``max_seq_length``, settable after loading; see :meth:`Model.changed_options`."""
        return {"max_seq_length": self.max_seq_length}

    def truncating(self, side: Literal["left", "right"]) -> Self:
        """Return a copy that truncates long texts at this side; see :meth:`Model.truncating`."""
        found = super().truncating(side)
        if self.queries is not None:
            found.queries = self.queries.truncating(side)
        return found

    @property
    def routes(self) -> Mapping[Route, DenseMethods]:
        """The embedders of ``"query"`` and ``"document"``; empty without ``queries``."""
        if self.queries is None:
            return {}
        documents = copy(self)
        # This embedder is only a part of what was loaded.
        documents.queries = documents.loading = None
        return {"query": self.queries, "document": documents}

    def refuse_routes(self) -> None:
        """Raise :class:`UnsupportedFeatureError` if queries have a model of their own."""
        if self.queries is not None:
            raise UnsupportedFeatureError(
                f"{self.name} has a Router, and this is of one encoder: take routes['query'] or "
                "routes['document'] of the embedder"
            )

    @naming("texts")
    def encode_query(self, texts: str | Iterable[str], **options: Any) -> Any:
        """Embed queries: :meth:`encode` with the prompt ``query`` unless one is given."""
        if self.queries is not None:
            return self.queries.encode_query(texts, **options)
        return super().encode_query(texts, **options)

    @naming("texts")
    def encode_document(self, texts: str | Iterable[str], **options: Any) -> Any:
        """Embed documents: :meth:`encode` with the prompt ``document`` unless one is given."""
        if self.queries is not None:
            return self.routes["document"].encode_document(texts, **options)
        return super().encode_document(texts, **options)

    def __repr__(self) -> str:
        """Return a line with the model's directory, family, width, limit, precision and engine."""
        engine = self.engine
        return (
            f"Embedder({self.recipe.encoder_directory}: {engine.spec.model_type}, "
            f"{engine.spec.width} features, max_seq_length={self.max_seq_length}, "
            f"{engine.quantization or engine.dtype} on {engine.device}, engine={engine.name!r}"
            f"{'' if self.queries is None else f', queries={self.queries!r}'})"
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
        pooling: str | Sequence[str] | None = None,
        max_seq_length: int | None = None,
        layers: Layers | None = None,
        num_threads: int | None = None,
        engine: EngineChoice = "auto",
        task: str | None = None,
        **hub: Unpack[HubKeywords],
    ) -> Self:
        """Load a sentence-transformers directory, or a plain transformers one with mean pooling.

        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ...; ``"auto"``: a GPU if there is one, but the
            CPU for int8.
        dtype: ``"float32"``, ``"bfloat16"``, ...; ``"auto"``: float32, and with int8 bfloat16 where
            the CPU computes it.
        quantization: ``"int8"`` rounds the weights of the blocks' dense layers, on a CPU.
        pooling: the mode or modes (``"mean"``, ``"cls"``, ...) instead of the directory's. Where
            neither names one, mean pooling with a :class:`DefaultPoolingWarning`.
        max_seq_length: replaces the directory's limit.
        layers: the layers to pool instead of the last. A list is averaged (``[-4, -3, -2, -1]``; 0
            are the embeddings); a mapping gives the weights of a sum, as of :class:`ScalarMix`.
        num_threads: the threads of a CPU; None: OMP_NUM_THREADS, or the physical cores within the
            process's affinity and the container's quota. With ``engine="torch"`` the number applies
            to the whole process, and None keeps PyTorch's setting.
        engine: ``"compiled"`` computes on a CPU without PyTorch, ``"torch"`` by PyTorch's modules
            on any device. ``"auto"`` is ``"compiled"``, except where there is a GPU, and for dtypes
            and architectures that it does not compute.
        task: the name of the adapter to merge, of a model that has one for each of several tasks
            (jina-embeddings-v3); the prompt of that name becomes the default. None: no adapter, as
            published.
        hub: options of an id on the hub: ``revision``, ``token``, ``cache_dir``,
            ``local_files_only``; see :class:`HubKeywords`.

        With a Router, ``pooling``, ``max_seq_length`` and ``layers`` are of documents, and a static
        table of queries keeps its dtype.

        Raises :class:`ConfigError`, :class:`CheckpointError` or :class:`TokenizerFileError` for
        missing, malformed or contradictory files, :class:`ImplementationError` where a requested
        engine cannot compute the model, and :class:`MissingDependencyError` where only PyTorch can
        and it is not installed.
        """
        request = EngineRequest.of(engine, device, dtype, quantization, num_threads, task)
        opened = open_embedder(resolve_directory(path_or_hub_id, **hub), routed=True)
        modes = (
            None if pooling is None else (pooling,) if isinstance(pooling, str) else tuple(pooling)
        )
        embedder = cls._read(opened, request, modes, layers, max_seq_length)
        if opened.routes and opened.routes["query"] != opened.modules:
            embedder.queries = embedder._read_queries(opened.of_queries(), request)
            embedder.default_route = "query" if opened.default_route == "query" else "document"
        recipe = embedder.recipe
        if recipe.default_pooling:
            warn_caller(
                DefaultPoolingWarning(
                    f"{opened.directory} has no modules.json to say how tokens are pooled, so "
                    "their mean is taken; to choose another, pass pooling= (cls, mean, max, ...)"
                )
            )
        return embedder.loaded_from(
            opened.directory,
            request,
            pooling=modes,
            max_seq_length=max_seq_length,
            layers=None if recipe.layers is None else dict(recipe.layers),
            task=request.adapter,
        )

    @classmethod
    def _read(
        cls,
        opened: ModelDirectory,
        request: EngineRequest,
        pooling: tuple[str, ...] | None = None,
        layers: Layers | None = None,
        max_seq_length: int | None = None,
        encoder: CompiledEncoder | Encoder | None = None,
    ) -> Self:
        """Make an embedder from an opened directory, or from the documents' part of a Router's.

        ``encoder``: the encoder, if it is already loaded; None: load it.
        """
        encoder, tokenizer, recipe = read_parts(opened, request, pooling, encoder)
        if layers is not None:
            recipe = replace(recipe, layers=_layer_weights(layers, encoder.spec.num_layers))
        if max_seq_length is None:
            return cls(encoder, tokenizer, recipe)
        embedder = cls(encoder, tokenizer, replace(recipe, max_seq_length=None))
        embedder.recipe = recipe
        embedder.max_seq_length = max_seq_length
        return embedder

    def _read_queries(self, opened: ModelDirectory, request: EngineRequest) -> DenseMethods:
        """Read the embedder of queries, which shares the documents' encoder if the Router does."""
        queries: DenseMethods
        if opened.modules[0].kind == "StaticEmbedding":
            from encoder_engine.embedding.static.embedder import StaticEmbedder
            from encoder_engine.embedding.static.reading import read_static_model

            model = read_static_model(opened.directory, route=opened.modules)
            queries = StaticEmbedder(model, num_threads=request.num_threads)
        else:
            shared = opened.encoder_folder == self.recipe.encoder_directory
            encoder = self.encoder if shared else None
            queries = self._read(opened, request, encoder=encoder)
        if queries.dimension != self.dimension:
            raise ConfigError(
                f"{opened.directory}: queries have {queries.dimension} features, documents "
                f"{self.dimension}; the modules belong to different models"
            )
        return queries

    @naming("texts")
    def encode_long(
        self,
        texts: str | Iterable[str],
        *,
        overlap: int | None = None,
        chunk_pooling: ChunkPooling = "mean",
        **options: Unpack[EncodeKeywords],
    ) -> Array:
        """Embed texts of any length: one vector each, [N, D]; [D] for a single ``str``.

        A text of more than ``max_seq_length`` tokens is cut into chunks of ``max_seq_length``
        tokens, each with the special tokens and the prompt. Neighbouring chunks share ``overlap``
        tokens (None: an eighth of a chunk). ``chunk_pooling`` joins the chunk vectors: ``"mean"``,
        ``"weighted"`` by tokens, or ``"max"``; the result is normalised if the chunk vectors are. A
        text that fits in one chunk gets exactly the vector of :meth:`encode`. Raises
        :class:`UnsupportedFeatureError` if :meth:`encode` embeds texts by ``queries``. Other
        options and exceptions: see :meth:`encode`.
        """
        check_names("encode_long", options, EncodeKeywords)
        self._refuse_default_queries()
        kind = LongTexts(self, self.recipe, overlap=overlap, chunk_pooling=chunk_pooling)
        opened = open_texts(texts)
        vectors: Array = kind.collect(opened.rows, kind.resolve(**options), count=opened.count)
        return vectors[0] if opened.single else vectors

    @naming("texts")
    def encode_tokens(
        self,
        texts: str | Iterable[str],
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        normalize_embeddings: bool = False,
        batch_tokens: int | None = None,
        on_truncation: OnTruncation = "warn",
    ) -> TokenVectors:
        """Embed every token without pooling, including special tokens and the prompt's tokens.

        Indexing the :class:`TokenVectors` by i gives the vectors of text i, float32 [n, D]. Options
        and exceptions: see :meth:`encode` and, for a model with ``queries``, :meth:`encode_long`.
        """
        self._refuse_default_queries()
        kind, opened = self.kinds()["tokens"], open_texts(texts)
        options = kind.resolve(
            prompt=prompt,
            prompt_name=prompt_name,
            normalize_embeddings=normalize_embeddings,
            batch_tokens=batch_tokens,
            on_truncation=on_truncation,
        )
        found: TokenVectors = kind.collect(opened.rows, options, count=opened.count)
        return found

    def _refuse_default_queries(self) -> None:
        """Raise :class:`UnsupportedFeatureError` if :meth:`encode` uses the model of queries."""
        if self.default_route == "query":
            self.refuse_routes()

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write a directory of sentence-transformers: encoder, tokenizer, modules, prompts, card.

        The weights are those in memory, in their precision. Raises :class:`OutputError` where the
        directory cannot be written, is the one that this embedder was loaded from, or has the
        layers of a hybrid embedder, and :class:`UnsupportedFeatureError` for an embedder that was
        loaded with ``layers=`` or has ``queries``.
        """
        save_embedder(self, directory)


def _layer_weights(layers: object, num_layers: int) -> tuple[tuple[int, float], ...]:
    """Return the selected layers with their weights, in ascending order; 0 are the embeddings.

    Raises :class:`InputError` for a layer that does not exist or is named twice, and for a weight
    that is not finite.
    """
    if isinstance(layers, Mapping):
        pairs = list(layers.items())
    elif isinstance(layers, Sequence) and not isinstance(layers, str):
        pairs = [(layer, 1.0 / len(layers)) for layer in layers]
    else:
        raise InputError(f"layers must list numbers of layers, or map them to weights: {layers!r}")
    found: dict[int, float] = {}
    for layer, weight in pairs:
        if isinstance(layer, bool) or not isinstance(layer, int):
            raise InputError(f"a layer is a whole number, got {layer!r}")
        if not -num_layers - 1 <= layer <= num_layers:
            raise InputError(
                f"there is no layer {layer}; 0 are the embeddings, {num_layers} or -1 the last"
            )
        number = layer % (num_layers + 1)
        if number in found:
            raise InputError(f"layer {number} is named twice")
        if not isinstance(weight, (int, float)) or not math.isfinite(weight):
            raise InputError(f"the weight of layer {layer} must be a finite number, got {weight!r}")
        found[number] = float(weight)
    if not found:
        raise InputError("layers is empty; name at least one")
    return tuple(sorted(found.items()))
