"""An embedder as the embedding model of BERTopic, which knows no embedder, and refuses it.

::

    from encoder_engine.integrations.bertopic import EmbedderBackend

    model = bertopic.BERTopic(embedding_model=EmbedderBackend(embedder))
"""

from __future__ import annotations

from typing import Any

from encoder_engine.errors import MissingDependencyError

try:
    from bertopic.backend import BaseEmbedder
except ImportError:
    raise MissingDependencyError(__name__, library="bertopic") from None

__all__ = ["EmbedderBackend"]


class EmbedderBackend(BaseEmbedder):  # type: ignore[misc]
    """An embedding model of BERTopic; ``options``: those of the embedder's ``encode``."""

    def __init__(self, embedder: Any, **options: Any) -> None:
        super().__init__(embedding_model=embedder)
        self.options = options

    def embed(self, documents: Any, verbose: bool = False) -> Any:
        """Embed documents or words, float32 [N, D]."""
        return self.embedding_model.encode(documents, show_progress_bar=verbose, **self.options)
