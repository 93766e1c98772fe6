"""The common base of the classes by which KeyBERT and BERTopic embed with this engine."""

from __future__ import annotations

from typing import Any

__all__ = ["Backend"]


class Backend:
    """Implements a library's ``BaseEmbedder`` with an embedder of the engine.

    ``options``: options of the embedder's ``encode``.
    """

    embedding_model: Any

    def __init__(self, embedder: Any, **options: Any) -> None:
        super().__init__(embedding_model=embedder)  # type: ignore[call-arg]
        self.options = options

    def embed(self, documents: Any, verbose: bool = False) -> Any:
        """Embed documents or words: float32 [N, D]; ``verbose``: with a progress bar."""
        return self.embedding_model.encode(documents, show_progress_bar=verbose, **self.options)
