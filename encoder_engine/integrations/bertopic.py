"""An embedder as BERTopic's embedding model, which must be of BERTopic's own base class.

::

    from encoder_engine.integrations.bertopic import EmbedderBackend

    model = bertopic.BERTopic(embedding_model=EmbedderBackend(embedder))
"""

from __future__ import annotations

from encoder_engine.errors import MissingDependencyError
from encoder_engine.integrations.backend import Backend

try:
    from bertopic.backend import BaseEmbedder
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "bertopic":
        raise
    raise MissingDependencyError(__name__, library="bertopic") from None

__all__ = ["EmbedderBackend"]


class EmbedderBackend(Backend, BaseEmbedder):  # type: ignore[misc]
    """The backend that BERTopic embeds texts with; see :class:`Backend`."""
