"""Embedders and rankers of the engine as components of Haystack's pipelines.

``pipeline.add_component("embedder", DocumentEmbedder("intfloat/e5-small-v2"))``. Components are
written to YAML by the names of their models and their options.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from encoder_engine.embedding import Embedder, Ranker
from encoder_engine.errors import MissingDependencyError

try:
    from haystack import Document, component
except ImportError:
    raise MissingDependencyError(__name__, library="haystack-ai") from None

__all__ = ["DocumentEmbedder", "DocumentRanker", "TextEmbedder"]


class _Component:
    """A component whose model is loaded at its first use, or by ``warm_up``.

    model: a directory or hub id.
    loading: the options of ``from_pretrained``.
    options: those of ``encode`` or ``rank``.
    """

    _kind: Any = Embedder

    def __init__(self, model: str, loading: Any = None, options: Any = None) -> None:
        self.model, self.loading, self.options = str(model), loading or {}, options or {}
        self._loaded: Any = None

    def warm_up(self) -> None:
        """Load the model."""
        if self._loaded is None:
            self._loaded = self._kind.from_pretrained(self.model, **self.loading)


@component
class TextEmbedder(_Component):
    """Embeds a query, with the model's prompt for queries."""

    @component.output_types(embedding=list[float])  # type: ignore[untyped-decorator]
    def run(self, text: str) -> dict[str, Any]:
        """Return the vector of a text as ``embedding``."""
        self.warm_up()
        return {"embedding": self._loaded.encode_query(text, **self.options).tolist()}


@component
class DocumentEmbedder(_Component):
    """Embeds documents, with the model's prompt for documents."""

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Return ``documents`` with their embeddings."""
        self.warm_up()
        vectors = self._loaded.encode_document([one.content for one in documents], **self.options)
        pairs = zip(documents, vectors.tolist(), strict=True)
        return {"documents": [replace(one, embedding=vector) for one, vector in pairs]}


@component
class DocumentRanker(_Component):
    """Ranks documents with a ranker, best first, and sets their scores."""

    _kind = Ranker

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
    def run(self, query: str, documents: list[Document], top_k: Any = None) -> dict[str, Any]:
        """Return the best ``top_k`` ``documents``; None: as many as set in the options, or ten."""
        self.warm_up()
        options = {"top_k": 10, **self.options, **({} if top_k is None else {"top_k": top_k})}
        order = self._loaded.rank(query, [one.content for one in documents], **options)
        return {
            "documents": [replace(documents[one["corpus_id"]], score=one["score"]) for one in order]
        }
