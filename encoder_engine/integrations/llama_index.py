"""An embedder and a ranker as LlamaIndex's classes.

::

    index = VectorStoreIndex.from_documents(documents, embed_model=EmbedderModel(embedder))
    engine = index.as_query_engine(node_postprocessors=[RankerPostprocessor(ranker, top_n=5)])
"""

from __future__ import annotations

import asyncio
from typing import Any

from encoder_engine.errors import InputError, MissingDependencyError

try:
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import MetadataMode, NodeWithScore
except ImportError:
    raise MissingDependencyError(__name__, library="llama-index-core") from None

__all__ = ["EmbedderModel", "RankerPostprocessor"]


class EmbedderModel(BaseEmbedding):  # type: ignore[misc]
    """The embedding model of an index, with the prompts of queries and documents.

    ``options``: those of the embedder's ``encode``, such as ``truncate_dim``.
    """

    _embedder: Any = PrivateAttr()
    _options: dict[str, Any] = PrivateAttr()

    def __init__(self, embedder: Any, **options: Any) -> None:
        embedder.encode([], **options)  # refuses unknown options
        super().__init__(model_name=str(embedder.name), embed_batch_size=2048)  # the most allowed
        self._embedder, self._options = embedder, options

    def _get_query_embedding(self, query: str) -> Any:
        return self._embedder.encode_query(query, **self._options).tolist()

    async def _aget_query_embedding(self, query: str) -> Any:
        return await asyncio.to_thread(self._get_query_embedding, query)

    async def _aget_text_embeddings(self, texts: list[str]) -> Any:
        return await asyncio.to_thread(self._get_text_embeddings, texts)

    def _get_text_embedding(self, text: str) -> Any:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> Any:
        return self._embedder.encode_document(texts, **self._options).tolist()


class RankerPostprocessor(BaseNodePostprocessor):  # type: ignore[misc]
    """Ranks the nodes of a retriever with a ranker; ``top_n``: the most nodes to keep; None: all.

    The ranker's score replaces the score of a node. ``options``: those of the ranker's ``rank``.
    """

    top_n: int | None = None
    _ranker: Any = PrivateAttr()
    _options: dict[str, Any] = PrivateAttr()

    def __init__(self, ranker: Any, top_n: int | None = None, **options: Any) -> None:
        ranker.rank("", [], top_n, **options)
        super().__init__(top_n=top_n)
        self._ranker, self._options = ranker, options

    def _postprocess_nodes(self, nodes: list[Any], query_bundle: Any = None) -> list[Any]:
        if query_bundle is None:
            raise InputError("a ranker orders nodes for a query; pass query_str")
        texts = [one.node.get_content(metadata_mode=MetadataMode.EMBED) for one in nodes]
        order = self._ranker.rank(query_bundle.query_str, texts, self.top_n, **self._options)
        return [
            NodeWithScore(node=nodes[one["corpus_id"]].node, score=one["score"]) for one in order
        ]
