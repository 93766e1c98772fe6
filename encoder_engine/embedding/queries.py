"""Queries, documents and their similarity, and the names that other libraries have for them."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.embedding.library_keywords import naming
from encoder_engine.vectors.similarity import (
    check_similarity,
    pairwise_similarities,
    similarities,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from encoder_engine.vectors.similarity import Similarity

__all__ = ["DenseMethods", "QueryMethods", "TaskMethods", "document_prompt", "query_prompt"]

Array = np.ndarray[Any, np.dtype[Any]]
# The names under which directories keep the prompt of documents, the first one first.
_DOCUMENT_NAMES = ("document", "passage", "corpus")


def query_prompt(prompts: Mapping[str, str]) -> str | None:
    """Return the name of the prompt of queries; None: there is none."""
    return "query" if "query" in prompts else None


def document_prompt(prompts: Mapping[str, str]) -> str | None:
    """Return the name of the prompt of documents; None: there is none.

    As in sentence-transformers, ``document`` is in every directory's prompts, as an empty text
    unless the directory states it.
    """
    return next((name for name in _DOCUMENT_NAMES if name in prompts), None)


class _EmbedderType(ABCMeta):
    """The type of embedders, whose text says what they are called like.

    KeyBERT and BERTopic choose by the text of a type. They load their default model without a word
    for one that they do not know, and raise where sentence_transformers is named.
    """

    def __repr__(cls) -> str:
        return f"<class '{cls.__module__}.{cls.__qualname__}', called as sentence_transformers>"


class QueryMethods(metaclass=_EmbedderType):
    """The methods of an embedder that depend on its prompts, and its names in other libraries."""

    engine: Any

    @property
    @abstractmethod
    def prompts(self) -> Mapping[str, str]:
        """The named prompts of the directory."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Features of a vector."""

    @property
    def device(self) -> str:
        """The device that computes, as PyTorch writes it."""
        return str(self.engine.device)

    @abstractmethod
    def encode(self, texts: str | Iterable[str], *arguments: Any, **options: Any) -> Any:
        """Embed texts."""

    def __call__(self, texts: str | Iterable[str], **options: Any) -> Any:
        """Embed texts: :meth:`encode`."""
        return self.encode(texts, **options)

    @naming("texts")
    def encode_query(self, texts: str | Iterable[str], **options: Any) -> Any:
        """Embed queries: :meth:`encode` with the prompt ``query`` unless one is given."""
        return self.encode(texts, **_with_prompt(options, query_prompt(self.prompts)))

    @naming("texts")
    def encode_document(self, texts: str | Iterable[str], **options: Any) -> Any:
        """Embed documents: :meth:`encode` with the prompt of documents unless one is given.

        It is the first of ``document``, ``passage`` and ``corpus`` that the prompts have.
        """
        return self.encode(texts, **_with_prompt(options, document_prompt(self.prompts)))

    def get_embedding_dimension(self) -> int:
        """Return :attr:`dimension`, under its name in sentence-transformers."""
        return self.dimension

    def get_sentence_embedding_dimension(self) -> int:
        """Return :attr:`dimension`, under its former name in sentence-transformers."""
        return self.dimension


class TaskMethods(QueryMethods):
    """The methods of an embedder whose ``encode`` treats queries and documents in two ways."""

    @naming("texts")
    def encode_query(self, texts: str | Iterable[str], **options: Any) -> Any:
        """Embed queries: :meth:`encode` as queries, with their prompt unless one is given."""
        return super().encode_query(texts, **({"task": "query"} | options))

    @naming("texts")
    def encode_document(self, texts: str | Iterable[str], **options: Any) -> Any:
        """Embed documents: :meth:`encode` as documents, with their prompt unless one is given."""
        return super().encode_document(texts, **({"task": "document"} | options))

    @naming("texts")
    def encode_queries(self, texts: str | Iterable[str], **options: Any) -> Any:
        """Embed queries: :meth:`encode_query`, under another name."""
        return self.encode_query(texts, **options)

    @naming("texts")
    def encode_documents(self, texts: str | Iterable[str], **options: Any) -> Any:
        """Embed documents: :meth:`encode_document`, under another name."""
        return self.encode_document(texts, **options)


class DenseMethods(QueryMethods):
    """The methods of an embedder of one vector for each text."""

    @property
    @abstractmethod
    def stated_similarity(self) -> str | None:
        """The name of the similarity that the directory states; None: it states none."""

    @property
    def similarity_fn_name(self) -> Similarity:
        """The similarity of :meth:`similarity`: the directory's, or cosine."""
        return check_similarity(self.stated_similarity)

    def embed_documents(self, texts: Iterable[str]) -> list[list[float]]:
        """Return the vectors of :meth:`encode_document` as lists, for LangChain."""
        vectors: list[list[float]] = self.encode_document(list(texts)).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of :meth:`encode_query` as a list, for LangChain."""
        vector: list[float] = self.encode_query(text).tolist()
        return vector

    def similarity(self, first: object, second: object) -> Array:
        """Compare all vectors of ``first`` with all of ``second``: float32 [N, M].

        The similarity is the directory's, cosine where it states none; see :func:`similarities`.
        """
        return similarities(first, second, self.similarity_fn_name)

    def similarity_pairwise(self, first: object, second: object) -> Array:
        """Compare the vectors of equal rows: float32 [N]; see :meth:`similarity`."""
        return pairwise_similarities(first, second, self.similarity_fn_name)


def _with_prompt(options: dict[str, Any], name: str | None) -> dict[str, Any]:
    """Return options with this prompt name, unless they already have a prompt."""
    if options.get("prompt") is None and options.get("prompt_name") is None:
        return {**options, "prompt_name": name}
    return options
