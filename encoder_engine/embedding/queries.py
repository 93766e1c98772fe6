"""Queries, documents and their similarity, with the prompts that a model has for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
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

__all__ = ["QueryMethods", "document_prompt", "query_prompt", "with_prompt"]

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


class QueryMethods(ABC):
    """The methods of an embedder that depend on its prompts and on its similarity."""

    @property
    @abstractmethod
    def prompts(self) -> Mapping[str, str]:
        """The named prompts of the directory."""

    @property
    @abstractmethod
    def stated_similarity(self) -> str | None:
        """The name of the similarity that the directory states; None: it states none."""

    @abstractmethod
    def encode(self, texts: str | Iterable[str], *arguments: Any, **options: Any) -> Any:
        """Embed texts."""

    @property
    def similarity_fn_name(self) -> Similarity:
        """The similarity of :meth:`similarity`: the directory's, or cosine."""
        return check_similarity(self.stated_similarity)

    @naming("texts")
    def encode_query(self, texts: str | Iterable[str], **options: Any) -> Any:
        """Embed queries: :meth:`encode` with the prompt ``query`` unless one is given."""
        return self.encode(texts, **with_prompt(options, query_prompt(self.prompts)))

    @naming("texts")
    def encode_document(self, texts: str | Iterable[str], **options: Any) -> Any:
        """Embed documents: :meth:`encode` with the prompt of documents unless one is given.

        It is the first of ``document``, ``passage`` and ``corpus`` that the prompts have.
        """
        return self.encode(texts, **with_prompt(options, document_prompt(self.prompts)))

    def similarity(self, first: object, second: object) -> Array:
        """Compare all vectors of ``first`` with all of ``second``: float32 [N, M].

        The similarity is the directory's, cosine where it states none; see :func:`similarities`.
        """
        return similarities(first, second, self.similarity_fn_name)

    def similarity_pairwise(self, first: object, second: object) -> Array:
        """Compare the vectors of equal rows: float32 [N]; see :meth:`similarity`."""
        return pairwise_similarities(first, second, self.similarity_fn_name)


def with_prompt(options: dict[str, Any], name: str | None) -> dict[str, Any]:
    """Return options with this prompt name, unless they already have a prompt."""
    if options.get("prompt") is None and options.get("prompt_name") is None:
        return {**options, "prompt_name": name}
    return options
