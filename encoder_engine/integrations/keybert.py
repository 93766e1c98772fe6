"""An embedder as the model of KeyBERT, which knows no embedder, and refuses it.

::

    from encoder_engine.integrations.keybert import EmbedderBackend

    model = keybert.KeyBERT(model=EmbedderBackend(embedder))
"""

from __future__ import annotations

from typing import Any

from encoder_engine.errors import MissingDependencyError

try:
    from keybert.backend import BaseEmbedder
except ImportError:
    raise MissingDependencyError(__name__, library="keybert") from None

__all__ = ["EmbedderBackend"]


class EmbedderBackend(BaseEmbedder):  # type: ignore[misc]
    """A model of KeyBERT; ``options``: those of the embedder's ``encode``."""

    def __init__(self, embedder: Any, **options: Any) -> None:
        super().__init__(embedding_model=embedder)
        self.options = options

    def embed(self, documents: Any, verbose: bool = False) -> Any:
        """Embed documents or words, float32 [N, D]."""
        return self.embedding_model.encode(documents, show_progress_bar=verbose, **self.options)
