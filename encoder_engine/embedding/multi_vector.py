"""Late interaction (ColBERT): one projected vector per token of queries and documents."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from encoder_engine.embedding.directory.late_interaction import (
    STANFORD_PROJECTION,
    TokenMask,
    open_late_interaction,
)
from encoder_engine.embedding.directory.recipe import PoolingRecipe
from encoder_engine.embedding.embedder import Embedder
from encoder_engine.embedding.engines.choosing import EngineRequest, load_encoder
from encoder_engine.embedding.options import EncodeCall
from encoder_engine.embedding.parts import smallest
from encoder_engine.embedding.steps.token_vectors import TokenVectors, embed_tokens
from encoder_engine.errors import ConfigError, MissingPoolerWarning, UnusedWeightsWarning
from encoder_engine.packing.module_stack import EMPTY_STACK, DenseModule, ModuleStack
from encoder_engine.packing.token_rows import TokenRows

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    import torch
    from torch import Tensor

    from encoder_engine.embedding.engines.engine import EngineChoice, Vectors
    from encoder_engine.embedding.expansion import QueryExpansion
    from encoder_engine.embedding.options import OnTruncation

__all__ = ["MultiVectorEmbedder"]


class MultiVectorEmbedder:
    """Embeds queries and documents token by token, as a ``MultiVectorEncoder`` would.

    projection_ND: projects the encoder's D features to N, without a bias; kept as float32.
    skipped: ids of tokens that documents leave out.
    modules: what follows the encoder, instead of ``projection_ND``.
    mask: the tokens that are left out, instead of ``skipped``.
    query_length, document_length: the most tokens; None: the embedder's limit.
    expansion: pads queries; None: they are not padded.

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
        modules: ModuleStack = EMPTY_STACK,
        mask: TokenMask | None = None,
        query_length: int | None = None,
        document_length: int | None = None,
        expansion: QueryExpansion | None = None,
    ) -> None:
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
        self._most_tokens = {
            "query": self._limit(query_length),
            "document": self._limit(document_length),
        }
        if expansion is not None:
            self._most_tokens["query"] = self._expanded_limit(expansion, query_length)

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike[str],
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        *,
        engine: EngineChoice = "auto",
    ) -> Self:
        """Load a directory of sentence-transformers' MultiVectorEncoder, of PyLate, or of ColBERT.

        Files are first compared with the ``SHA256SUMS`` of the directory and of its modules, if
        there are any. Raises :class:`UnsupportedFeatureError` for other modules. Other exceptions:
        see :meth:`Embedder.from_pretrained`.
        """
        found = open_late_interaction(path_or_hub_id)
        opened, folder = found.opened, found.opened.encoder_folder
        with warnings.catch_warnings():
            # Late interaction needs no pooler, and has read ColBERT's projection itself.
            warnings.simplefilter("ignore", MissingPoolerWarning)
            own = rf".*not loaded: {STANFORD_PROJECTION}$"
            warnings.filterwarnings("ignore", own, UnusedWeightsWarning)
            encoder = load_encoder(folder, EngineRequest.of(engine, device, dtype))
        recipe = PoolingRecipe(
            encoder_directory=folder,
            pooling=("mean",),
            max_seq_length=opened.max_seq_length,
            lowercase=opened.transformer.lowercase,
            prompts=opened.settings.prompts,
            default_prompt_name=opened.settings.default_prompt_name,
        )
        return cls(
            Embedder(encoder, found.tokenizer, recipe),
            modules=found.modules,
            mask=found.mask,
            normalized=found.normalized,
            query_length=found.query_length,
            document_length=found.document_length,
            expansion=found.expansion,
        )

    @property
    def dimension(self) -> int:
        """Features of a token's vector."""
        return self.modules.width(self.embedder.engine.spec.width)

    @property
    def projection_ND(self) -> Vectors | None:  # noqa: N802
        """The weight of the projection where it is all that follows the encoder; else None."""
        first = self.modules.modules[:1]
        is_alone = len(self.modules.modules) == 1 and isinstance(first[0], DenseModule)
        return first[0].arrays()["weight"] if is_alone else None

    @property
    def skipped(self) -> frozenset[int]:
        """The ids of tokens that documents leave out."""
        return self.mask.skipped if "document" in self.mask.tasks else frozenset()

    def encode_queries(
        self,
        texts: str | Iterable[str],
        *,
        batch_tokens: int | None = None,
        on_truncation: OnTruncation = "warn",
    ) -> TokenVectors:
        """Embed queries, padded where the model expands them. Options: :meth:`Embedder.encode`."""
        return self._encode(texts, "query", batch_tokens, on_truncation)

    def encode_documents(
        self,
        texts: str | Iterable[str],
        *,
        batch_tokens: int | None = None,
        on_truncation: OnTruncation = "warn",
    ) -> TokenVectors:
        """Embed documents without the skipped tokens. Options: see :meth:`Embedder.encode`."""
        return self._encode(texts, "document", batch_tokens, on_truncation)

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
        expansion = self.expansion if kind == "query" else None
        found = embed_tokens(
            *(self.embedder, texts, self.embedder.resolve(call)),
            modules=self.modules,
            max_length=self._most_tokens[kind],
            rows_of=TokenRows.of if expansion is None else expansion.expand,
        )
        mask = self.mask
        if mask.skipped and kind in mask.tasks:
            found = found.without(mask.skipped)
        if mask.kept and kind == "document":
            found = found.only(mask.kept)
        return found

    def _limit(self, length: int | None) -> int | None:
        """Return the most tokens of a text: its kind's length where there is one."""
        positions = self.embedder.engine.spec.max_length
        return self.embedder.max_seq_length if length is None else smallest(length, positions)

    def _expanded_limit(self, expansion: QueryExpansion, length: int | None) -> int | None:
        """Return the most tokens of a query; raise where the expansion has no positions."""
        positions = self.embedder.engine.spec.max_length
        if positions is not None and expansion.length > positions:
            raise ConfigError(
                f"queries are padded to {expansion.length} tokens, the encoder places {positions}"
            )
        if expansion.fixed:
            return expansion.length
        return self._limit(None if length is None else max(length, expansion.length))


def _as_array(projection_ND: Vectors | Tensor) -> Vectors:
    """Return a projection as a contiguous float32 array; a tensor is copied from its device."""
    plain: Any = projection_ND
    if not isinstance(projection_ND, np.ndarray):
        plain = projection_ND.detach().float().cpu().numpy()
    return np.ascontiguousarray(plain, dtype=np.float32)
