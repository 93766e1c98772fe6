"""Late interaction (ColBERT): one projected vector per token of queries and documents."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from encoder_engine.embedding.embedder import Embedder
from encoder_engine.embedding.library_keywords import (
    TokenKeywords,
    check_keywords,
    check_names,
    naming,
    refuse_forms,
)
from encoder_engine.embedding.over_embedder import OverEmbedder
from encoder_engine.embedding.queries import TaskMethods
from encoder_engine.embedding.saving.modules import open_target
from encoder_engine.embedding.saving.other_directories import write_late_interaction_settings
from encoder_engine.engine.choosing import EngineRequest, load_model
from encoder_engine.errors import (
    ConfigError,
    InputError,
    MissingPoolerWarning,
    UnusedWeightsWarning,
)
from encoder_engine.families.checkpoints.files import fetching, resolve_directory
from encoder_engine.jobs.keywords import JobKeywords, run_over_files
from encoder_engine.kinds.options import CallKeywords, OnTruncation, Route
from encoder_engine.kinds.texts import open_texts
from encoder_engine.kinds.tokens import LateInteraction
from encoder_engine.opening.late_interaction import (
    STANFORD_PROJECTION,
    TokenMask,
    open_late_interaction,
)
from encoder_engine.opening.recipe import PoolingRecipe, Settings
from encoder_engine.packing.module_stack import EMPTY_STACK, DenseModule, ModuleStack
from encoder_engine.vectors.token_vectors import TokenVectors, max_similarity

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from typing import Unpack

    import torch
    from torch import Tensor

    from encoder_engine.engine.protocol import EngineChoice, Vectors
    from encoder_engine.families.checkpoints.files import HubKeywords
    from encoder_engine.jobs.keywords import Paths
    from encoder_engine.jobs.run import DatasetSummary
    from encoder_engine.kinds.kind import Kind
    from encoder_engine.opening.expansion import QueryExpansion

__all__ = ["MultiVectorEmbedder"]

# sentence-transformers' name of MaxSim divided by the number of the query's tokens.
MEAN = "meanmaxsim"


class TokenCallKeywords(CallKeywords, total=False):
    """The keyword arguments that :meth:`MultiVectorEmbedder.encode` acts on, except ``task``.

    For their meaning see :meth:`Embedder.encode`. Those accepted only for sentence-transformers'
    callers: see :class:`TokenKeywords`.
    """

    normalize_embeddings: bool | None
    on_truncation: OnTruncation
    show_progress_bar: bool | None


class TokenDatasetKeywords(JobKeywords, total=False):
    """The keywords of :meth:`MultiVectorEmbedder.encode_dataset`, except ``kind``."""

    batch_tokens: int | None


class TokenEncodeKeywords(TokenCallKeywords, TokenKeywords, total=False):
    """The keywords of :meth:`MultiVectorEmbedder.encode`: its own, and sentence-transformers'."""


class MultiVectorEmbedder(OverEmbedder, TaskMethods):
    """Embeds queries and documents token by token, as a ``MultiVectorEncoder`` would.

    projection_ND: projects the encoder's D features to N, without a bias; kept as float32.
    skipped: ids of the tokens of documents that get no vector.
    normalized: whether token vectors are scaled to length 1.
    modules: the modules after the encoder, instead of ``projection_ND``.
    mask: the rule for tokens without a vector, instead of ``skipped``.
    query_length, document_length: the most tokens; None: the embedder's limit.
    expansion: how queries are padded with mask tokens; None: not at all.

    Queries begin with the embedder's prompt ``query``, and are padded where the model expands them;
    documents begin with ``document``. Compare the vectors by :func:`max_similarity`. Raises
    :class:`ConfigError` for modules of another width, and for queries padded beyond the encoder's
    positions.
    """

    def __init__(
        self,
        embedder: Embedder,
        projection_ND: Vectors | Tensor | None = None,
        *,
        skipped: Iterable[int] = (),
        normalized: bool = True,
        modules: ModuleStack = EMPTY_STACK,
        mask: TokenMask | None = None,
        query_length: int | None = None,
        document_length: int | None = None,
        expansion: QueryExpansion | None = None,
    ) -> None:
        embedder.refuse_routes()
        if projection_ND is not None:
            modules = ModuleStack((DenseModule(weight_NK=_as_array(projection_ND)),))
        mismatch = modules.mismatch(embedder.engine.spec.width)
        if mismatch is not None:
            raise ConfigError(f"{mismatch}; the files belong to different models")
        self.embedder = embedder
        self.modules = modules
        self.mask = TokenMask(skipped=frozenset(skipped)) if mask is None else mask
        self.normalized = normalized
        self.expansion = expansion
        self._lengths: dict[Route, int | None] = {
            "query": query_length,
            "document": document_length,
        }
        positions = embedder.engine.spec.max_length
        if expansion is not None and positions is not None and expansion.length > positions:
            raise ConfigError(
                f"queries are padded to {expansion.length} tokens, the encoder has {positions} "
                "positions"
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
        num_threads: int | None = None,
        engine: EngineChoice = "auto",
        **hub: Unpack[HubKeywords],
    ) -> Self:
        """Load a directory of sentence-transformers' MultiVectorEncoder, of PyLate, or of ColBERT.

        Files are first compared with the ``SHA256SUMS`` of the directory and of its modules, if
        there are any. Raises :class:`UnsupportedFeatureError` for other modules. Options and other
        exceptions: see :meth:`Embedder.from_pretrained`; int8 leaves the projection as it is.
        """
        directory = resolve_directory(path_or_hub_id, **hub)
        found = open_late_interaction(directory)
        opened, folder = found.opened, found.opened.encoder_folder
        request = EngineRequest.of(engine, device, dtype, quantization, num_threads)
        with warnings.catch_warnings():
            # Late interaction needs no pooler, and has read ColBERT's projection itself.
            warnings.simplefilter("ignore", MissingPoolerWarning)
            own = rf".*not loaded: {STANFORD_PROJECTION}$"
            warnings.filterwarnings("ignore", own, UnusedWeightsWarning)
            encoder = load_model(folder, request)
        recipe = PoolingRecipe(
            encoder_directory=folder,
            pooling=("mean",),
            max_seq_length=opened.max_seq_length,
            lowercase=opened.transformer.lowercase,
            prompts=opened.settings.prompts,
            default_prompt_name=opened.settings.default_prompt_name,
            similarity=opened.settings.similarity,
        )
        embedder = cls(
            Embedder(encoder, found.tokenizer, recipe),
            modules=found.modules,
            mask=found.mask,
            normalized=found.normalized,
            query_length=found.query_length,
            document_length=found.document_length,
            expansion=found.expansion,
        )
        return embedder.loaded_from(directory, request)

    def kinds(self) -> dict[str, Kind]:
        """Return {"tokens": ...}: how a vector per token is computed; see :meth:`Model.kinds`."""
        tokens = LateInteraction(
            self,
            modules=self.modules,
            normalized=self.normalized,
            mask=self.mask,
            lengths=self._lengths,
            expansion=self.expansion,
        )
        return {"tokens": tokens}

    @property
    def dimension(self) -> int:
        """The number of features of a token's vector."""
        return self.modules.width(self.embedder.engine.spec.width)

    @property
    def projection_ND(self) -> Vectors | None:  # noqa: N802
        """The weight of the projection, if it is the only module after the encoder; else None."""
        first = self.modules.modules[:1]
        is_alone = len(self.modules.modules) == 1 and isinstance(first[0], DenseModule)
        return first[0].arrays()["weight"] if is_alone else None

    @property
    def skipped(self) -> frozenset[int]:
        """The ids of the tokens of documents that get no vector."""
        return self.mask.skipped if "document" in self.mask.tasks else frozenset()

    @naming("texts")
    def encode(
        self,
        texts: str | Iterable[str],
        *,
        task: Route | None = None,
        **options: Unpack[TokenEncodeKeywords],
    ) -> TokenVectors:
        """Embed texts as queries or documents: vectors of each text's tokens, in the order given.

        ``task`` None: as documents, of at most ``max_seq_length`` tokens, as in
        ``MultiVectorEncoder.encode``. The prompt is the directory's default unless one is given;
        :meth:`encode_query` and :meth:`encode_document` have their own prompts. Options and
        exceptions: see :meth:`Embedder.encode` and :class:`TokenKeywords`.
        """
        check_keywords(
            "encode",
            options,
            TokenEncodeKeywords,
            device=self.device,
            job="encode_dataset",
        )
        refuse_forms(options, "found.vectors, and found[i] of text i,")
        given: dict[str, Any] = {"on_truncation": "warn", **options}
        own = {n: given[n] for n in TokenCallKeywords.__annotations__ if n in given}
        kind, opened, shown = (
            self.kind,
            open_texts(texts),
            bool(own.pop("show_progress_bar", False)),
        )
        found: TokenVectors = kind.collect(
            opened.rows, kind.resolve(route=task, **own), count=opened.count, shown=shown
        )
        return found

    def similarity(self, queries: TokenVectors, documents: TokenVectors) -> Vectors:
        """Score documents for queries by :func:`max_similarity`: float32 [Q, N].

        A directory that states ``meanmaxsim`` divides by the number of a query's tokens. Raises
        :class:`InputError` for other values than :class:`TokenVectors`.
        """
        for value in (queries, documents):
            if not isinstance(value, TokenVectors):
                raise InputError(
                    "similarity compares TokenVectors, as encode returns them, got "
                    f"{type(value).__name__}"
                )
        scores = max_similarity(queries, documents)
        if self.embedder.recipe.similarity != MEAN:
            return scores
        lengths = np.maximum(np.diff(queries.cu_seqlens), 1)
        means: Vectors = np.divide(scores, lengths[:, None], dtype=np.float32)
        return means

    def encode_dataset(
        self,
        inputs: Paths,
        output: str | os.PathLike[str],
        *,
        kind: Route = "document",
        **options: Unpack[TokenDatasetKeywords],
    ) -> DatasetSummary:
        """Embed files into a table, or a folder of shards, of ``token_ids`` and ``embeddings``.

        ``load_vectors(output).tokens`` reads them. ``kind``: whether texts are queries or
        documents. Other options: see :meth:`Embedder.encode_dataset`.
        """
        check_names("encode_dataset", options, TokenDatasetKeywords)
        return run_over_files(
            self.kind, inputs, output, {**options, "prompt_name": kind, "route": kind}
        )

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write the directory of a ``MultiVectorEncoder``: encoder, tokenizer, modules, card.

        Exceptions: see :meth:`Embedder.save_pretrained`.
        """
        embedder, mask = self.embedder, self.mask
        recipe, tokenizer = embedder.recipe, embedder.tokenizer
        folder = open_target(directory, self.name)
        embedder.engine.save_encoder(folder)
        tokenizer.save(folder)
        write_late_interaction_settings(
            folder,
            embedder.engine.spec,
            self.modules,
            settings=Settings(
                prompts=dict(recipe.prompts),
                default_prompt_name=recipe.default_prompt_name,
                similarity=MEAN if recipe.similarity == MEAN else None,
            ),
            max_seq_length=embedder.max_seq_length,
            query_length=self._lengths["query"],
            document_length=self._lengths["document"],
            expansion=None if self.expansion is None else self.expansion.describe(tokenizer),
            skipped_words=[str(tokenizer.id_to_token(number)) for number in sorted(mask.skipped)],
            skipped_of=sorted(mask.tasks),
            kept_ids=sorted(mask.kept) or None,
            normalized=self.normalized,
            base_model=self.path,
        )


def _as_array(projection_ND: Vectors | Tensor) -> Vectors:
    """Return a projection as a contiguous float32 array; a tensor is copied from its device."""
    plain: Any = projection_ND
    if not isinstance(projection_ND, np.ndarray):
        plain = projection_ND.detach().float().cpu().numpy()
    return np.ascontiguousarray(plain, dtype=np.float32)
