"""A ranker as a LangChain compressor; an :class:`Embedder` already serves as ``Embeddings``.

::

    retriever = ContextualCompressionRetriever(
        base_compressor=RankerCompressor(ranker, top_n=5), base_retriever=store.as_retriever()
    )
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.errors import MissingDependencyError

try:
    from langchain_core.documents import BaseDocumentCompressor
    from pydantic import PrivateAttr
except ImportError:
    raise MissingDependencyError(__name__, library="langchain-core") from None

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RankerCompressor"]


class RankerCompressor(BaseDocumentCompressor):  # type: ignore[misc]
    """Ranks documents with a ranker; ``top_n``: the most documents to keep; None: all.

    The scores are the metadata ``relevance_score``. ``options``: those of the ranker's ``rank``.
    """

    top_n: int | None = None
    _ranker: Any = PrivateAttr()
    _options: dict[str, Any] = PrivateAttr()

    def __init__(self, ranker: Any, top_n: int | None = None, **options: Any) -> None:
        ranker.rank("", [], top_n, **options)
        super().__init__(top_n=top_n)
        self._ranker, self._options = ranker, options

    def compress_documents(
        self,
        documents: Sequence[Any],
        query: str,
        callbacks: Any = None,  # noqa: ARG002
    ) -> list[Any]:
        """Return the best ``top_n`` documents for the query, the best first."""
        texts = [one.page_content for one in documents]
        found = []
        for one in self._ranker.rank(query, texts, self.top_n, **self._options):
            document = documents[one["corpus_id"]]
            scored = {**document.metadata, "relevance_score": one["score"]}
            found.append(document.model_copy(update={"metadata": scored}))
        return found
